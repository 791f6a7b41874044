"""Tests of both: the script in this process, the gateway as a separate process."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.hosting import script
from trunkline import Client
from trunkline.types import ElicitRequestParams

ROOT = Path(__file__).parents[2]


def test_a_script_uses_two_servers(capsys: pytest.CaptureFixture[str]) -> None:
    """The user approves what no rule allows; what the policy denies is not asked about."""
    asyncio.run(script.main())
    assert capsys.readouterr().out.splitlines() == [
        "clock/now, shop/buy, shop/price",
        "half past nine",
        "May shop buy? {'thing': 'kite', 'amount': 12} - yes",
        "Which colour for the kite? - green",
        "bought a green kite for 12",
        "denied: This is more than this house spends.",
    ]


@pytest.fixture
def served() -> Iterator[tuple[str, str]]:
    """Start the gateway on a free port, and stop it after the test."""
    program = [sys.executable, "-m", "examples.hosting.gateway"]
    environment = {**os.environ, "PORT": "0"}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        _, url, token = process.stdout.readline().split()
        yield url, token
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_gateway_serves_both_as_one(served: tuple[str, str], revision: str) -> None:
    """The gateway has no terminal, so it asks its client for approval."""
    url, token = served

    def answer(question: ElicitRequestParams) -> object:
        return {"decision": "allow once"} if question.message.startswith("May") else "red"

    async def main() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with Client(url, revision=revision, headers=headers, elicitation=answer) as client:
            assert [tool.name for tool in await client.list_tools()] == ["clock__now", "shop__buy", "shop__price"]
            bought = await client.call_tool("shop__buy", {"thing": "kite", "amount": 12})
            assert bought.data == "bought a red kite for 12"

    asyncio.run(asyncio.wait_for(main(), 20))
