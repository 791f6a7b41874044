"""Roots by server: what is configured, what changes while the host runs, and how servers of both eras learn of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import trunkline.types as t
from tests.host.gateway.support import OLD, quiet, server, until
from tests.host.server_requests.support import ERAS, entry, opened, sampling
from trunkline import Context, Server
from trunkline.errors import ConfigError
from trunkline.host.models.scripted import ScriptedModel
from trunkline.host.server_requests.handlers import ServerRoots, root_path
from trunkline.host.server_requests.sampling.handler import SamplingDecision, SamplingReview


def uris(roots: list[t.Root] | None) -> list[str]:
    """Give the URIs of roots that there are."""
    assert roots is not None
    return [root.uri for root in roots]


# --- the list ---------------------------------------------------------------------------------------------------------


def test_a_server_without_roots_gets_those_of_the_caller() -> None:
    assert ServerRoots().of(entry()) is None
    assert ServerRoots().paths(entry()) == ()


def test_what_is_configured_holds_and_what_is_added_comes_after_it() -> None:
    roots, own = ServerRoots(), entry(roots=("/srv/a", "file:///srv/b"))
    assert roots.add("notes", "/srv/c")
    assert uris(roots.of(own)) == ["file:///srv/a", "file:///srv/b", "file:///srv/c"]
    assert roots.paths(own) == ("/srv/a", "/srv/b", "/srv/c")


def test_a_root_is_added_to_one_server_alone() -> None:
    roots = ServerRoots()
    roots.add("notes", "/srv/c")
    assert roots.of(entry("other")) is None


def test_what_is_there_already_is_no_news() -> None:
    roots = ServerRoots()
    assert roots.add("notes", "/srv/c")
    assert not roots.add("notes", "file:///srv/c")
    assert roots.paths(entry()) == ("/srv/c",)


@pytest.mark.parametrize("written", ["/srv/a", "file:///srv/a", "/srv/x/../a"])
def test_a_root_is_removed_however_it_is_written(written: str) -> None:
    roots, own = ServerRoots(), entry(roots=("/srv/a", "/srv/b"))
    assert roots.remove(own, written)
    assert roots.paths(own) == ("/srv/b",)
    assert not roots.remove(own, written)


def test_a_root_that_was_removed_may_be_added_again() -> None:
    roots, own = ServerRoots(), entry(roots=("/srv/a",))
    roots.remove(own, "/srv/a")
    assert roots.of(own) == []
    assert roots.add("notes", "/srv/a")
    assert roots.paths(own) == ("/srv/a",)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        pytest.param("/srv/x/../a", "/srv/a", id="dots"),
        pytest.param(Path("/srv/a"), "/srv/a", id="path"),
        pytest.param(t.Root(uri="file:///srv/a%20b"), "/srv/a b", id="root"),
        pytest.param("file://localhost/srv/%2e%2e/a", "/a", id="escaped-dots"),
    ],
)
def test_a_root_is_an_absolute_path(written: object, path: str) -> None:
    assert root_path(written) == path


@pytest.mark.parametrize(
    "written",
    ["https://example.com/", "file://server/share", "file:relative", "file:///a?b", "file:///a%00b", "a\0b", "", 7],
)
def test_what_is_no_folder_of_this_machine_is_no_root(written: object) -> None:
    with pytest.raises(ConfigError):
        root_path(written)


# --- through a host, in both eras -------------------------------------------------------------------------------------


def rooted(era: str, heard: list[str] | None = None) -> Server:
    """Make a server that tells the roots it is given, and hears when they change."""
    news = [] if heard is None else heard
    made = server("notes", era)

    @made.tool
    async def folders(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    made.notification("notifications/roots/list_changed")(lambda: news.append("changed"))
    return made


@ERAS
async def test_a_root_that_is_added_or_removed_is_known_at_the_next_call(era: str, tmp_path: Path) -> None:
    async with opened({"notes": rooted(era)}, tmp_path, settings={"roots": ("/srv/a",)}) as host:
        assert (await host.call_tool("notes/folders")).text == "file:///srv/a"
        await host.add_root("notes", "/srv/b")
        assert (await host.call_tool("notes/folders")).text == "file:///srv/a file:///srv/b"
        await host.remove_root("notes", "/srv/a")
        assert (await host.call_tool("notes/folders")).text == "file:///srv/b"


@ERAS
async def test_a_server_without_roots_may_be_given_some_while_it_runs(era: str, tmp_path: Path) -> None:
    async with opened({"notes": rooted(era)}, tmp_path, roots=["/home/me"]) as host:
        assert (await host.call_tool("notes/folders")).text == "file:///home/me"
        await host.add_root("notes", "/srv/b")
        assert (await host.call_tool("notes/folders")).text == "file:///srv/b"


async def test_a_handshake_server_is_notified_at_once_on_every_connection(tmp_path: Path) -> None:
    heard = list[str]()
    async with opened({"notes": rooted(OLD, heard)}, tmp_path, roots=["/home/me"]) as host:
        await host.call_tool("notes/folders")
        await host.add_root("notes", "/srv/b")
        await until(lambda: len(heard) == 2)


async def test_a_root_that_changes_nothing_is_not_announced(tmp_path: Path) -> None:
    heard = list[str]()
    async with opened({"notes": rooted(OLD, heard)}, tmp_path, settings={"roots": ("/srv/a",)}) as host:
        await host.remove_root("notes", "/srv/b")
        await host.add_root("notes", "/srv/c")
        await until(lambda: heard)
        await host.add_root("notes", "/srv/c")
        await quiet()
    assert heard == ["changed"]


# --- context, through a host ------------------------------------------------------------------------------------------


@ERAS
async def test_context_is_what_the_server_itself_answered_in_this_session(era: str, tmp_path: Path) -> None:
    model = ScriptedModel([{"says": "ok", "again": True}])

    async def yes(review: SamplingReview) -> SamplingDecision:
        return SamplingDecision(allow=True, context=True)

    bank = server("bank", era)

    @bank.tool
    async def balance() -> str:
        return "1000 EUR"

    servers = {"notes": sampling(era), "bank": bank}
    async with opened(servers, tmp_path, models=[model], review=yes) as host:
        await host.call_tool("notes/note")
        await host.call_tool("bank/balance")
        await host.call_tool("notes/summarize", {"text": "milk", "context": "allServers"})
    assert model.requests[0].system == "What this server answered earlier:\n\nnote:\nthe milk is sour"
