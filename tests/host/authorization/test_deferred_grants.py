"""Grants that wait for a server are settled by its first whole list, and by nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from trunkline.host.authorization.authorizer import grantable_tools
from trunkline.host.authorization.deferred_grants import DeferredGrants
from trunkline.host.authorization.grants import GrantStore, make_deferred_grant
from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.integrity.pins.store import endpoint_identity
from trunkline.host.upstreams.catalog.catalog import Catalog, build_catalog
from trunkline.host.upstreams.catalog.items import Offering

ENTRY = ServerEntry(name="files", source=Source("user"), command=("files-server",))
READS = t.ToolAnnotations(read_only_hint=True)


def catalog(server: str = "files", **failures: Any) -> Catalog:
    """Make a catalog of one server with a tool that reads and one that writes."""
    schema: dict[str, Any] = {"type": "object"}
    tools = (t.Tool(name="read", input_schema=schema, annotations=READS), t.Tool(name="write", input_schema=schema))
    return build_catalog(
        {server: Offering(revision="2025-11-25", capabilities={}, tools=tools, **failures)}, {}, counter=1
    )


@pytest.fixture
def book(tmp_path: Path) -> GrantStore:
    made = GrantStore(tmp_path / "grants.json")
    made.add(make_deferred_grant("files", endpoint_identity(ENTRY)[0], now=0.0))
    return made


def test_the_first_list_settles_it(book: GrantStore) -> None:
    DeferredGrants(book, {"files": ENTRY}.get)(catalog())
    (grant,) = book.all()
    assert grant.awaits is None
    assert list(grant.tools or {}) == ["read"]


@pytest.mark.parametrize(
    ("entries", "listed"),
    [
        ({"files": ENTRY}, catalog("other")),
        ({}, catalog()),
        ({"files": ServerEntry(name="files", source=Source("user"), command=("other-server",))}, catalog()),
        ({"files": ENTRY}, catalog(failures={"tools/list": "no"})),
    ],
    ids=["another server", "no entry", "another command", "a list that failed"],
)
def test_it_waits_for_the_list_of_that_very_server(
    entries: dict[str, ServerEntry], listed: Catalog, book: GrantStore
) -> None:
    DeferredGrants(book, entries.get)(listed)
    assert len(book.deferred()) == 1


def test_an_unreadable_file_is_reported_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "grants.json").write_text("{")
    settling = DeferredGrants(GrantStore(tmp_path / "grants.json"), {"files": ENTRY}.get)
    settling(catalog())
    settling(catalog())
    assert caplog.text.count("the grants cannot be read, so none is used") == 1


def test_what_may_not_be_used_is_not_counted() -> None:
    assert [tool.name for tool in grantable_tools(catalog(), "files")] == ["read", "write"]
    assert [tool.name for tool in grantable_tools(catalog(), "files", lambda item: item.name == "read")] == ["read"]
    assert grantable_tools(catalog(), "nothing") == ()
