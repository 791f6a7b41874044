"""Filters: what they hide and keep, by name, by what a tool says of itself, by tag."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from trunkline.host.config.model import NO_FILTERS, Filters
from trunkline.host.upstreams.catalog.items import (
    denied_reason,
    hidden_reason,
    name_hidden_reason,
    tags_of,
    unlisted_hidden_reason,
)


def tool(name: str = "read_file", meta: dict[str, Any] | None = None, **hints: Any) -> t.Tool:
    said = t.ToolAnnotations(**hints) if hints else None
    return t.Tool(name=name, input_schema={"type": "object"}, annotations=said, meta=meta)


KEPT = [
    pytest.param(NO_FILTERS, tool(), id="nothing-asked"),
    pytest.param(Filters(allow=("read_*",)), tool(), id="allowed"),
    pytest.param(Filters(allow=("write_*", "read_file")), tool(), id="allowed-by-one-of-two"),
    pytest.param(Filters(deny=("write_*",)), tool(), id="not-denied"),
    pytest.param(Filters(allow=("constructor", "__proto__")), tool("__proto__"), id="object-internals"),
    pytest.param(Filters(annotations=("readOnly",)), tool(read_only_hint=True), id="read-only"),
    pytest.param(Filters(annotations=("!destructive",)), tool(read_only_hint=True), id="read-only-destroys-nothing"),
    pytest.param(Filters(annotations=("!destructive",)), tool(destructive_hint=False), id="says-not-destructive"),
    pytest.param(Filters(annotations=("destructive",)), tool(), id="says-nothing-so-may-destroy"),
    pytest.param(Filters(annotations=("!readOnly",)), tool(), id="says-nothing-so-not-read-only"),
    pytest.param(Filters(annotations=("idempotent",)), tool(idempotent_hint=True), id="idempotent"),
    pytest.param(Filters(annotations=("!openWorld",)), tool(open_world_hint=False), id="closed-world"),
    pytest.param(
        Filters(annotations=("readOnly", "!openWorld")), tool(read_only_hint=True, open_world_hint=False), id="both"
    ),
    pytest.param(Filters(tags=("files", "net")), tool(meta={"tags": ["files"]}), id="tag"),
    pytest.param(Filters(tags=("files",)), tool(meta={"_fastmcp": {"tags": ["files"]}}), id="tag-older-framework"),
    pytest.param(Filters(tags=("files",)), tool(meta={"fastmcp": {"tags": ["files"]}}), id="tag-framework"),
]
HIDDEN = [
    pytest.param(Filters(allow=("write_*",)), tool(), id="not-allowed"),
    pytest.param(Filters(deny=("read_*",)), tool(), id="denied"),
    pytest.param(Filters(allow=("*",), deny=("read_*",)), tool(), id="deny-beats-allow"),
    pytest.param(Filters(allow=("READ_*",)), tool(), id="case-matters"),
    pytest.param(Filters(annotations=("readOnly",)), tool(), id="says-nothing"),
    pytest.param(Filters(annotations=("!destructive",)), tool(), id="may-destroy"),
    pytest.param(Filters(annotations=("!openWorld",)), tool(), id="may-reach-out"),
    pytest.param(Filters(annotations=("readOnly", "!openWorld")), tool(read_only_hint=True), id="one-of-two"),
    pytest.param(Filters(annotations=("readonly",)), tool(read_only_hint=True), id="unknown-word-fails-closed"),
    pytest.param(Filters(annotations=("!unknown",)), tool(), id="unknown-negated-fails-closed"),
    pytest.param(Filters(tags=("files",)), tool(), id="no-tags"),
    pytest.param(Filters(tags=("files",)), tool(meta={"tags": ["net"]}), id="another-tag"),
    pytest.param(Filters(annotations=("readOnly",)), t.Prompt(name="a"), id="a-prompt-says-nothing"),
    pytest.param(Filters(annotations=("!readOnly",)), t.Prompt(name="a"), id="nor-the-opposite"),
]


@pytest.mark.parametrize(("filters", "definition"), KEPT)
def test_it_is_kept(filters: Filters, definition: t.Tool) -> None:
    assert hidden_reason(filters, definition, "tool") is None


@pytest.mark.parametrize(("filters", "definition"), HIDDEN)
def test_it_is_hidden_with_a_reason(filters: Filters, definition: t.Tool | t.Prompt) -> None:
    assert hidden_reason(filters, definition, "tool")


def test_resources_and_templates_are_judged_by_their_uris() -> None:
    filters = Filters(deny=("file:///etc/*",))
    judged = [
        hidden_reason(filters, t.Resource(name="file:///etc/x", uri="file:///home/x"), "resource") is None,
        hidden_reason(filters, t.Resource(name="x", uri="file:///etc/x"), "resource") is None,
        hidden_reason(filters, t.ResourceTemplate(name="x", uri_template="file:///etc/{+path}"), "template") is None,
    ]
    assert judged == [True, False, False]


def test_the_reason_names_the_glob() -> None:
    assert denied_reason(Filters(deny=("a*", "read_*")), "read_file") == 'the glob "read_*" of deny matches it'


def test_the_reason_names_what_may_be_asked_for() -> None:
    assert "readOnly, destructive" in (hidden_reason(Filters(annotations=("harmless",)), tool(), "tool") or "")


@pytest.mark.parametrize(
    "meta",
    [{"tags": "files"}, {"tags": {"files": 1}}, {"tags": [1, None]}, {"fastmcp": "files"}, {"_fastmcp": {"tags": 3}}],
    ids=["text", "object", "numbers", "framework-text", "framework-number"],
)
def test_tags_of_a_wrong_form_are_none(meta: dict[str, Any]) -> None:
    assert tags_of(tool(meta=meta)) == set()


def test_what_no_list_has_is_judged_by_its_name() -> None:
    assert (
        unlisted_hidden_reason(Filters(allow=("docs://*",)), "docs://a")
        is name_hidden_reason(NO_FILTERS, "docs://a")
        is None
    )


@pytest.mark.parametrize("filters", [Filters(tags=("a",)), Filters(annotations=("readOnly",)), Filters(allow=("b",))])
def test_what_no_list_has_cannot_show_what_a_filter_asks_for(filters: Filters) -> None:
    assert unlisted_hidden_reason(filters, "docs://a")
