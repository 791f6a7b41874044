"""The PostgreSQL server as a program: over stdio, over HTTP with a token, and started with invalid options."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from servers.tests.over_http import TOKEN, listening
from servers.tests.postgres.shop import called
from servers.tests.postgres_cluster import Cluster
from trunkline import Client, RequestFailed

PROGRAM = [sys.executable, "-m", "trunkline_servers.postgres"]
ONE = ['[\n  {\n    "a": 1\n  }\n]']


async def test_it_serves_over_stdio(cluster: Cluster) -> None:
    async with Client([*PROGRAM, cluster.url("reader")]) as client:
        assert await called(client, "SELECT 1 AS a") == ONE


async def test_http_requires_a_token(cluster: Cluster) -> None:
    async with listening("postgres", env={"DATABASE_URL": cluster.url("reader")}) as url:
        async with Client(url, auth=TOKEN) as client:
            assert await called(client, "SELECT 1 AS a") == ONE
        with pytest.raises(RequestFailed) as refused:
            await Client(url).__aenter__()
        assert refused.value.status == 401


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 1, "Missing argument '[URL]': give it, or set DATABASE_URL."),
        (["mysql://ann:hunter2@db/x"], 2, "does not begin with postgresql://"),
    ],
    ids=["no-url", "another-scheme"],
)
def test_a_url_that_is_missing_or_wrong_is_one_sentence(arguments: list[str], code: int, said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    made = subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=20, check=False, env=environment
    )
    assert (made.returncode, said in made.stderr, made.stderr.count("\n")) == (code, True, 1)
    assert "hunter2" not in made.stderr
