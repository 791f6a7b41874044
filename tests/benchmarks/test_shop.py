"""The section `shop` of the bench, with our own server and few requests."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from benchmarks.driver import ServerFailed
from benchmarks.measures import Budget
from benchmarks.shop import measure_shop
from benchmarks.shop_load import REVISION
from benchmarks.subjects import SUBJECTS, Installed, Subject
from tests.store.redis_server import needs_redis

SHORT = Budget(shop_warm=0.0, shop=0.2)


def _subject(name: str) -> Subject:
    return next(subject for subject in SUBJECTS if subject.name == name)


def _here(subject: Subject) -> Installed:
    """Return a subject that runs in this environment instead of one of its own."""
    return Installed(subject, interpreter=sys.executable)


@needs_redis
@pytest.mark.parametrize("name", ["our shop", "our shop, 2 workers"])
def test_our_server_serves_all_users_without_an_error(name: str) -> None:
    (sample,) = measure_shop(_here(_subject(name)), REVISION, SHORT)
    assert sample.figures["errors"] == 0
    assert sample.figures["rate"] > 0
    assert sample.figures["cpu_us"] > 0
    assert sample.figures["p50_ms"] <= sample.figures["p99_ms"]


@needs_redis
def test_a_server_without_the_tools_fails() -> None:
    other = replace(_subject("bare shop"), server="servers/asgi_floor.py")
    with pytest.raises(ServerFailed, match="errors, the first one"):
        list(measure_shop(_here(other), REVISION, SHORT))
