"""Servers that list their sets in another order at every start: no tool is lost, and one accept is enough."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import trunkline
from tests.support import run_async
from trunkline.errors import PolicyDenied
from trunkline.host.authorization.policy import parse_policy
from trunkline.host.host import Host
from trunkline.host.integrity.pins.store import PinStore
from trunkline.host.integrity.pins.views import pin_views

PATHS = f"{Path(__file__).parents[4]}:{Path(trunkline.__file__).parents[1]}"
ALLOW = parse_policy('[[rule]]\neffect = "allow"\nserver = "shell"\n', file="p.toml")
TOOLS = ["shell/execute", "shell/get_issue"]
#: The tool whose sentences have another order; the other tool lists single words.
REWORDED = ["shell/get_issue"]


class Machine:
    """A user's machine with one server that shuffles."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"

    @asynccontextmanager
    async def opened(self, *, env: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Host]:
        """Start the server anew, as every start of a host does."""
        entry = {
            "command": sys.executable,
            "args": ["-m", "tests.host.servers.shuffling"],
            "env": {"PYTHONPATH": PATHS, **(env or {})},
            "era": "handshake",
        }
        given = {"folder": self.state, "policy": ALLOW, "audit": False, "wait_seconds": 60.0, **options}
        async with Host.open({"shell": entry}, **given) as host:
            assert list(host.catalog.tools) == TOOLS
            yield host

    async def changed(self, **options: Any) -> list[str]:
        """Return the tools that would be asked about after one more start."""
        async with self.opened(**options) as host:
            return [item.id for item in host.catalog.tools.values() if item.changed]

    def accept(self) -> None:
        """Accept all that waits, as ``trunkline pins accept shell`` does."""
        book = PinStore(self.state / "pins.json")
        for view in pin_views(book.servers()):
            if view.is_pending:
                book.accept(view.server, view.pin.kind, view.pin.name, pin=view.now)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_a_shuffled_tool_is_refused_with_the_command_that_accepts_it(machine: Machine) -> None:
    await machine.changed(env={"PYTHONHASHSEED": "1"})
    async with machine.opened(env={"PYTHONHASHSEED": "2"}) as host:
        with pytest.raises(PolicyDenied, match=r"~ /description: .* Allow it: trunkline pins accept shell/get_issue$"):
            await host.call_tool("shell/get_issue")


async def test_a_tool_whose_listing_of_words_was_shuffled_is_called_without_a_question(machine: Machine) -> None:
    await machine.changed(env={"PYTHONHASHSEED": "1"})
    async with machine.opened(env={"PYTHONHASHSEED": "2"}) as host:
        assert (await host.call_tool("shell/execute")).text == "2"


async def test_after_one_accept_starts_with_other_seeds_ask_nothing(machine: Machine) -> None:
    first = await machine.changed(env={"PYTHONHASHSEED": "1"})
    assert (first, await machine.changed(env={"PYTHONHASHSEED": "2"})) == ([], REWORDED)
    machine.accept()
    pins = set()
    for seed in ("1", "3", "random"):
        async with machine.opened(env={"PYTHONHASHSEED": seed}) as host:
            assert [item.id for item in host.catalog.tools.values() if item.changed] == []
            assert (await host.call_tool("shell/execute")).text == seed
            pins.add(tuple(item.pin for item in host.catalog.tools.values()))
    # What was allowed for the tool holds in any order of its words, since it is known by one pin.
    assert len(pins) == 1


# --- the seed --------------------------------------------------------------------------------------------------------


async def _seed(machine: Machine, **options: Any) -> str:
    async with machine.opened(**options) as host:
        return (await host.call_tool("shell/execute")).text


async def test_every_start_has_the_seed_of_the_installation(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    seeds = [await _seed(machine), await _seed(machine, settings={"share": "session"})]
    kept = machine.state / "hash-seed"
    assert seeds == [kept.read_text().strip()] * 2
    assert 0 < int(kept.read_text()) < 2**32
    assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600
    assert await _seed(Machine(machine.state / "another")) not in seeds


@pytest.mark.parametrize(("env", "seed"), [({}, "7"), ({"PYTHONHASHSEED": "random"}, "random")])
def test_a_seed_of_the_users_own_counts_before_it(
    env: dict[str, str], seed: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert run_async(_seed(machine, env=env)) == seed
    assert not (machine.state / "hash-seed").exists()


@pytest.mark.parametrize("content", [b"random\n", b"99999999999999999999\n"])
def test_a_file_that_holds_no_seed_is_written_again(
    content: bytes, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    machine.state.mkdir(mode=0o700)
    (machine.state / "hash-seed").write_bytes(content)
    (machine.state / "hash-seed").chmod(0o600)
    assert (
        run_async(_seed(machine))
        == (machine.state / "hash-seed").read_text().strip()
        != content.decode("latin-1").strip()
    )


def test_a_seed_that_others_could_have_written_is_not_used(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    machine.state.mkdir(mode=0o700)
    (machine.state / "hash-seed").write_text("5\n")
    (machine.state / "hash-seed").chmod(0o666)
    assert run_async(_seed(machine)) == "random"
    assert "servers start without a fixed hash seed" in caplog.text
