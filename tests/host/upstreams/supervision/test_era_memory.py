"""What a server speaks, remembered between runs: a question saved, and never a start that fails for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.client.scripted_server import settle
from tests.host.gateway.support import NEW, OLD, until
from tests.host.supervised import Stage, kept_in, program, supervising
from trunkline.host.config.model import ServerEntry
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.catalog.items import Offering

WEEK = 7 * 86_400.0


class Changing:
    """A server under one and the same command, in several runs of a host."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "mode"
        self._log = folder / "mode.log"
        self._folder = folder
        self.entry: ServerEntry = program("a", "changes_era", str(self._file), NEW, era="auto")

    @asynccontextmanager
    async def hosted(self, mode: str) -> AsyncIterator[Stage]:
        """Host the server."""
        self._become(mode)
        async with supervising({"a": self.entry}, cache=kept_in(self._folder)) as stage:
            yield stage

    @property
    def asked(self) -> list[str]:
        """What the server was asked since it became what it is."""
        return self._log.read_text().split()

    async def run(self, mode: str) -> tuple[str, list[str]]:
        """Run a host until the server is ready or is given another try; give its state, and what it was asked."""
        async with self.hosted(mode) as stage:
            await stage.until(lambda: not stage.upstream().busy)
            return stage.upstream().state, self.asked

    def _become(self, mode: str) -> None:
        self._file.write_text(mode)
        self._log.write_text("")


async def test_a_server_that_shook_hands_is_not_asked_again_in_the_next_run(tmp_path: Path) -> None:
    server = Changing(tmp_path)
    assert await server.run("handshake") == ("ready", ["server/discover", "initialize", "tools/list"])
    assert await server.run("handshake") == ("ready", ["initialize", "tools/list"])
    assert await server.run("handshake") == ("ready", ["initialize", "tools/list"])


async def test_a_stateless_server_is_asked_in_each_run(tmp_path: Path) -> None:
    server = Changing(tmp_path)
    assert (await server.run("refuses"))[1][:2] == ["server/discover", "tools/list"]
    assert (await server.run("refuses"))[1][:2] == ["server/discover", "tools/list"]


@pytest.mark.parametrize("mode", ["refuses", "dies"])
async def test_a_server_that_became_stateless_costs_one_more_try(mode: str, tmp_path: Path) -> None:
    server = Changing(tmp_path)
    await server.run("handshake")
    state, asked = await server.run(mode)
    assert (state, asked[:3]) == ("ready", ["initialize", "server/discover", "tools/list"])
    assert (await server.run(mode))[1][:2] == ["server/discover", "tools/list"]


async def test_the_era_of_a_crashing_server_is_probed_again(tmp_path: Path) -> None:
    server = Changing(tmp_path)
    await server.run("handshake")
    state, asked = await server.run("crashes")
    # As one that nobody knows: the probe, and the handshake for those who die of a probe.
    assert (state, asked) == ("waiting", ["initialize", "server/discover", "initialize"])


async def test_a_server_that_became_silent_on_the_handshake_costs_one_wait_and_is_asked_at_the_next_start(
    tmp_path: Path,
) -> None:
    server = Changing(tmp_path)
    await server.run("handshake")
    async with server.hosted("silent") as stage:
        await until(lambda: server.asked == ["initialize"])
        await stage.pass_time(31)
        await stage.until_state("waiting")
        assert "the next start probes it again" in (stage.events.kept[-1].reason or "")
        await stage.pass_time(5)
        await stage.until_state("ready")
        assert server.asked == ["initialize", "server/discover", "tools/list"]
    assert (await server.run("silent"))[1][:2] == ["server/discover", "tools/list"]


async def test_two_hosts_at_once_agree_on_what_is_remembered(tmp_path: Path) -> None:
    server = Changing(tmp_path)
    async with server.hosted("handshake") as one, server.hosted("handshake") as other:
        await one.until_state("ready")
        await other.until_state("ready")
    assert await server.run("handshake") == ("ready", ["initialize", "tools/list"])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"format":1}', b'{"probed_at":1e999}'], ids=repr
)
def test_a_file_that_cannot_be_read_remembers_nothing(content: bytes, tmp_path: Path) -> None:
    kept_in(tmp_path).put(ENTRY, Offering(revision=OLD, capabilities={}), probed_at=1000.0)
    (file,) = (tmp_path / "catalogs").iterdir()
    file.write_bytes(content)
    assert kept_in(tmp_path).handshake_probed_at(ENTRY, 1000.0) is None


# --- the file --------------------------------------------------------------------------------------------------------

ENTRY = program("a", "plain", era="auto")


@pytest.mark.parametrize(
    ("revision", "now", "expected"),
    [
        pytest.param(OLD, 1000.0, 1000.0, id="at once"),
        pytest.param(OLD, 999.0 + WEEK, 1000.0, id="within a week"),
        pytest.param(OLD, 1000.0 + WEEK, None, id="after a week it is asked again"),
        pytest.param(OLD, 500.0, None, id="a clock that was set back"),
        pytest.param(NEW, 1000.0, None, id="stateless"),
        pytest.param("nonsense", 1000.0, None, id="nonsense"),
    ],
)
def test_a_handshake_is_remembered_for_a_week(
    revision: str, now: float, expected: float | None, tmp_path: Path
) -> None:
    kept: CatalogCache = kept_in(tmp_path)
    kept.put(ENTRY, Offering(revision=revision, capabilities={}), probed_at=1000.0)
    assert kept_in(tmp_path).handshake_probed_at(ENTRY, now) == expected


def test_a_handshake_is_remembered_for_its_launch_alone(tmp_path: Path) -> None:
    kept_in(tmp_path).put(ENTRY, Offering(revision=OLD, capabilities={}), probed_at=1000.0)
    assert kept_in(tmp_path).handshake_probed_at(program("a", "leaky", era="auto"), 1000.0) is None


def test_a_catalog_that_was_kept_before_eras_were_remembers_none(tmp_path: Path) -> None:
    kept_in(tmp_path).put(ENTRY, Offering(revision=OLD, capabilities={}))
    assert kept_in(tmp_path).handshake_probed_at(ENTRY, 2e9) is None
    assert kept_in(tmp_path).get(ENTRY) is not None


def test_what_is_doubted_is_asked_again_and_what_was_offered_stays_known(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    kept.put(ENTRY, Offering(revision=OLD, capabilities={"tools": {}}), probed_at=2e9)
    kept.forget_era(ENTRY)
    assert kept.handshake_probed_at(ENTRY, 2e9) is None
    assert kept.get(ENTRY) == Offering(revision=OLD, capabilities={"tools": {}})


def test_nothing_is_written_of_a_server_that_is_not_known(tmp_path: Path) -> None:
    kept_in(tmp_path).forget_era(ENTRY)
    assert not (tmp_path / "catalogs").exists()


# --- a server that is slow to start ----------------------------------------------------------------------------------


class Slow:
    """A server of both eras that comes up when it is told to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.go = folder / "go"
        self.entry = program("a", "both_eras", str(self.go), NEW, era="auto")

    @asynccontextmanager
    async def hosted(self) -> AsyncIterator[Stage]:
        """Host it, not up yet."""
        up = self.go.with_suffix(".up")
        for file in (self.go, up):
            file.unlink(missing_ok=True)
        async with supervising({"a": self.entry}, cache=kept_in(self._folder)) as stage:
            # The process runs, so the probe has left and its clock with it.
            await until(up.exists)
            await settle()
            yield stage


async def test_one_slow_start_costs_nothing_afterwards(tmp_path: Path) -> None:
    server = Slow(tmp_path)
    async with server.hosted() as stage:
        await stage.pass_time(10.1)
        server.go.touch()
        await stage.until_state("ready")
        assert (stage.upstream().status.era, stage.upstream().status.tools) == (OLD, 2)
        await until(lambda: kept_in(tmp_path).discovers(server.entry))
    async with server.hosted() as stage:
        # As slow as before, and slower than the probe waits for a server that is not known.
        await stage.pass_time(25.0)
        server.go.touch()
        await stage.until_state("ready")
        assert (stage.upstream().status.era, stage.upstream().status.tools) == (NEW, 10)
