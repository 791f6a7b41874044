"""The catalog: what is in it, under which names, what is not and why, and what changes when servers do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trunkline.types as t
from trunkline.host.config.model import Filters, ServerSettings
from trunkline.host.integrity.pins.definitions import pin_of
from trunkline.host.upstreams.catalog import items as catalog_items
from trunkline.host.upstreams.catalog.catalog import Catalog, DroppedItem, build_catalog, changed_lists
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.catalog.names import GEMINI, outer_uri

NO_SETTINGS: dict[str, ServerSettings] = {}


def tool(name: str = "read", **members: Any) -> t.Tool:
    return t.Tool(**{"name": name, "input_schema": {"type": "object"}, **members})


def offering(*tools: t.Tool, **members: Any) -> Offering:
    return Offering(revision="any", capabilities={}, tools=tools, **members)


def resources(*uris: str) -> Offering:
    return offering(resources=tuple(t.Resource(name="r", uri=uri) for uri in uris))


def templates(*uris: str) -> Offering:
    return offering(templates=tuple(t.ResourceTemplate(name="t", uri_template=uri) for uri in uris))


def catalog(settings: dict[str, ServerSettings] = NO_SETTINGS, /, **offerings: Offering) -> Catalog:
    return build_catalog(offerings, settings, counter=1)


def reasons(made: Catalog) -> list[tuple[str, str]]:
    return [(dropped.name, dropped.reason) for dropped in made.dropped]


# --- what is in it ---------------------------------------------------------------------------------------------------


def test_tools_of_all_servers_are_in_it_by_id() -> None:
    made = catalog(files=offering(tool("write"), tool("read")), net=offering(tool("read")))
    assert list(made.tools) == ["files/read", "files/write", "net/read"]


def test_an_item_has_all_that_others_need_of_it() -> None:
    definition = tool("read", description="Read.", annotations=t.ToolAnnotations(read_only_hint=True))
    item = catalog({"files": ServerSettings(trusted=True)}, files=offering(definition)).tools["files/read"]
    assert (item.kind, item.server, item.name, item.wire) == ("tool", "files", "read", "files__read")
    assert (item.definition, item.pin, item.trusted, item.annotations.read_only) == (
        definition,
        pin_of(definition),
        True,
        True,
    )


def test_a_tool_is_found_by_id_and_by_wire_name() -> None:
    made = catalog(files=offering(tool("read")))
    assert made.find_tool("files/read") is made.find_tool("files__read") is made.tools["files/read"]


@pytest.mark.parametrize("name", ["read", "files", "other/read", "__proto__", "", "files/", "FILES/READ"])
def test_a_tool_is_found_by_nothing_else(name: str) -> None:
    assert catalog(files=offering(tool("read"))).find_tool(name) is None


def test_prompts_are_found_as_tools_are() -> None:
    made = catalog(files=offering(tool("same"), prompts=(t.Prompt(name="same"),)))
    found = made.find_prompt("files/same"), made.find_prompt("files__same")
    assert [item and item.kind for item in found] == ["prompt", "prompt"]


@pytest.mark.parametrize(
    ("kind", "member", "wire"),
    [
        ("tools", "name", "files__a"),
        ("prompts", "name", "files__a"),
        ("resources", "uri", "x://files/a"),
        ("templates", "uri_template", "x://files/{a}"),
    ],
)
def test_outside_a_definition_has_its_wire_name(kind: str, member: str, wire: str) -> None:
    made = catalog(
        files=offering(
            tool("a"),
            prompts=(t.Prompt(name="a"),),
            resources=(t.Resource(name="r", uri="x://a"),),
            templates=(t.ResourceTemplate(name="t", uri_template="x://{a}"),),
        )
    )
    (item,) = getattr(made, kind).values()
    assert getattr(item.outer, member) == wire


@pytest.mark.parametrize("name", ["constructor", "__proto__", "__class__", "ünï", "a/b", "a.b", "a b"])
def test_a_tool_may_have_any_name_that_can_be_seen(name: str) -> None:
    made = catalog(files=offering(tool(name)))
    (item,) = made.tools.values()
    assert (made.find_tool(item.wire), made.find_tool(f"files/{name}"), made.dropped) == (item, item, ())


def test_icons_and_meta_cost_a_model_nothing() -> None:
    heavy = tool("read", icons=[t.Icon(src="data:image/png;base64," + "A" * 9000)], meta={"x": "y" * 9000})
    plain, loaded = (catalog(files=offering(each)).tools["files/read"].tokens for each in (tool("read"), heavy))
    assert plain == loaded


def test_a_catalog_has_the_instructions_of_its_servers() -> None:
    made = catalog(a=offering(instructions="Be kind."), b=offering())
    assert (made.instructions, made.servers) == ({"a": "Be kind."}, ("a", "b"))


# --- two servers -----------------------------------------------------------------------------------------------------


NAMES = st.text(alphabet="ab_/", min_size=1, max_size=4)


@given(st.dictionaries(st.text(alphabet="ab_", min_size=1, max_size=4), st.sets(NAMES), max_size=5))
def test_a_wire_name_does_not_depend_on_who_else_is_there(servers: dict[str, set[str]]) -> None:
    together = build_catalog({name: offering(*map(tool, tools)) for name, tools in servers.items()}, {}, counter=1)
    alone = [build_catalog({name: offering(*map(tool, tools))}, {}, counter=1) for name, tools in servers.items()]
    assert {wire: item.id for each in alone for wire, item in each.by_wire["tool"].items()} == {
        wire: item.id for wire, item in together.by_wire["tool"].items()
    }


def test_tools_that_share_a_wire_name_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_items, "wire_name", lambda server, name, naming: name)
    made = catalog(a=offering(tool("read"), tool("own")), b=offering(tool("read")))
    assert (list(made.tools), made.find_tool("read")) == (["a/own"], None)
    assert [(drop.server, drop.name, '"read"' in drop.reason) for drop in made.dropped] == [
        ("a", "read", True),
        ("b", "read", True),
    ]


@pytest.mark.parametrize("server", ["a/b", "", "a\nb", "x" * 200])
def test_a_server_with_an_impossible_name_is_dropped_alone(server: str) -> None:
    made = build_catalog({server: offering(tool()), "files": offering(tool())}, {}, counter=1)
    assert (list(made.tools), [(drop.server, drop.kind) for drop in made.dropped]) == (
        ["files/read"],
        [(server, "server")],
    )


# --- what is dropped -------------------------------------------------------------------------------------------------


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


BAD_TOOLS = [
    pytest.param(tool(input_schema={}), '"type": "object"', id="no-type"),
    pytest.param(tool(input_schema={"type": "array"}), '"type": "object"', id="array"),
    pytest.param(tool(input_schema={"type": "object", "properties": {"a": {"type": "strin"}}}), "input", id="type"),
    pytest.param(tool(input_schema={"type": "object", "$ref": "https://a.example/s"}), "leaves", id="remote-ref"),
    pytest.param(tool(input_schema=deep(100)), "nested deeper", id="deep"),
    pytest.param(tool(input_schema=deep(3000)), "too deep", id="bottomless"),
    pytest.param(tool(meta={"a": deep(150)}), "too deep", id="deep-meta"),
    pytest.param(tool(meta={"a": deep(3000)}), "too deep", id="bottomless-meta"),
    pytest.param(tool(input_schema={"type": "object", "$schema": "urn:x"}), "Dialect", id="dialect"),
    pytest.param(tool(output_schema={"type": 7}), "output schema", id="output"),
    pytest.param(tool(description="x" * 300_000), "too large", id="large"),
    pytest.param(tool(description="\ud800"), "not valid JSON", id="no-unicode"),
    pytest.param(tool(""), "empty", id="no-name"),
    pytest.param(tool("a\x1b[2Jb"), "U+001B", id="escape-sequence"),
    pytest.param(tool("read\u200b"), "U+200B", id="invisible"),
    pytest.param(tool("x" * 257), "257", id="long-name"),
    pytest.param(
        tool(input_schema={"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "a b"}}}),
        "x-mcp-header",
        id="header",
    ),
]


@pytest.mark.parametrize(("bad", "word"), BAD_TOOLS)
def test_one_bad_tool_is_dropped_alone_with_a_reason(bad: t.Tool, word: str) -> None:
    made = catalog(files=offering(tool("good"), bad, tool("other")))
    assert list(made.tools) == ["files/good", "files/other"]
    assert [word in reason for _, reason in reasons(made)] == [True]


def test_a_tool_with_two_definitions_is_not_served() -> None:
    made = catalog(files=offering(tool("read"), tool("read", description="Other."), tool("good")))
    assert (list(made.tools), len(made.dropped)) == (["files/good"], 1)


def test_a_tool_that_is_listed_twice_the_same_way_is_one() -> None:
    made = catalog(files=offering(tool("read"), tool("read")))
    assert (list(made.tools), made.dropped) == (["files/read"], ())


def test_of_a_twin_that_a_filter_would_hide_nothing_is_left() -> None:
    only_reading = {"files": ServerSettings(tools=Filters(annotations=("readOnly",)))}
    twin = tool("go", annotations=t.ToolAnnotations(read_only_hint=True))
    assert list(catalog(only_reading, files=offering(tool("go"), twin)).tools) == []


def test_a_template_that_is_none_is_dropped_alone() -> None:
    made = catalog(files=templates("x://{a", "x://{b}"))
    assert (list(made.templates), [name for name, _ in reasons(made)]) == (["files/x://{b}"], ["x://{a"])


def test_of_a_list_without_end_only_so_many_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_items, "_MOST_ITEMS", 2)
    made = catalog(files=offering(tool("a"), tool("b"), tool("c")))
    assert (list(made.tools), [drop.kind for drop in made.dropped]) == (["files/a", "files/b"], ["tool"])


def test_what_a_filter_hides_is_no_fault() -> None:
    settings = {"files": ServerSettings(tools=Filters(deny=("write*",)), prompts=Filters(allow=("x",)))}
    made = catalog(settings, files=offering(tool("read"), tool("write"), prompts=(t.Prompt(name="p"),)))
    assert (list(made.tools), list(made.prompts), made.dropped) == (["files/read"], [], ())
    assert [(drop.kind, drop.name) for drop in made.hidden] == [("tool", "write"), ("prompt", "p")]
    assert (made.find_tool("files/write"), made.find_tool("files__write")) == (None, None)


# --- resources -------------------------------------------------------------------------------------------------------


def where(made: Catalog, uri: str) -> tuple[str, str, str | None] | None:
    server, own, item = made.find_resource(uri) or (None, "", None)
    return None if server is None else (server, own, None if item is None else item.kind)


@pytest.mark.parametrize(
    "uri", ["docs://files/guide", "files/docs://guide", "docs://guide"], ids=["outer", "id", "own"]
)
def test_a_resource_is_found_by_outer_uri_id_and_own_uri(uri: str) -> None:
    assert where(catalog(files=resources("docs://guide")), uri) == ("files", "docs://guide", "resource")


@pytest.mark.parametrize("uri", ["docs://files/a/b", "files/docs://a/b", "docs://a/b"], ids=["outer", "id", "own"])
def test_what_a_template_makes_is_found_with_the_template(uri: str) -> None:
    assert where(catalog(files=templates("docs://{+path}")), uri) == ("files", "docs://a/b", "template")


def test_a_resource_that_is_listed_comes_before_a_template_that_fits() -> None:
    both = msgspec.structs.replace(templates("docs://{a}"), resources=resources("docs://a").resources)
    assert where(catalog(files=both), "docs://files/a") == ("files", "docs://a", "resource")


def test_what_a_server_does_not_list_may_still_be_read_there() -> None:
    assert where(catalog(files=resources()), "docs://files/secret") == ("files", "docs://secret", None)


@pytest.mark.parametrize("uri", ["docs://unknown", "docs://nobody/a", "nobody/docs://a", "", "files", "x:"])
def test_what_belongs_to_no_server_is_not_found(uri: str) -> None:
    assert catalog(files=resources("docs://a")).find_resource(uri) is None


def test_an_own_uri_of_two_servers_is_that_of_neither() -> None:
    made = catalog(a=resources("docs://guide"), b=resources("docs://guide"))
    assert where(made, "docs://guide") is None
    assert [where(made, outer_uri(server, "docs://guide")) for server in "ab"] == [
        ("a", "docs://guide", "resource"),
        ("b", "docs://guide", "resource"),
    ]


@pytest.mark.parametrize("listed", ["docs://guide", "docs://other"], ids=["listed", "unlisted"])
def test_a_server_cannot_take_what_is_anothers_by_listing_its_outer_uri(listed: str) -> None:
    made = catalog(evil=resources("docs://files/guide"), files=resources(listed))
    found = made.find_resource("docs://files/guide")
    assert found is not None
    assert found[:2] == ("files", "docs://guide")


@pytest.mark.parametrize(
    ("filters", "uri"),
    [
        (Filters(deny=("docs://guide",)), "docs://files/guide"),
        (Filters(allow=("other://*",)), "docs://files/unlisted"),
        (Filters(deny=("docs://s*",)), "docs://files/secret"),
        (Filters(tags=("public",)), "docs://files/unlisted"),
        (Filters(allow=("made://{+path}",), deny=("made:///etc/*",)), "made://files//etc/passwd"),
    ],
    ids=["denied", "not-allowed", "unlisted-denied", "unlisted-without-tags", "made-from-a-template"],
)
def test_what_a_filter_hides_cannot_be_read_by_its_uri(filters: Filters, uri: str) -> None:
    offered = msgspec.structs.replace(resources("docs://guide"), templates=templates("made://{+path}").templates)
    assert catalog({"files": ServerSettings(resources=filters)}, files=offered).find_resource(uri) is None


def test_an_allowed_template_allows_the_uris_that_match_it() -> None:
    settings = {"files": ServerSettings(resources=Filters(allow=("made://{+path}",), deny=("made:///etc/*",)))}
    made = catalog(settings, files=templates("made://{+path}"))
    assert where(made, "made://files//home/x") == ("files", "made:///home/x", "template")


def test_a_resource_that_was_dropped_cannot_be_read_as_if_unlisted() -> None:
    twice = offering(resources=(t.Resource(name="a", uri="x://a"), t.Resource(name="b", uri="x://a")))
    assert catalog(files=twice).find_resource("x://files/a") is None


def test_a_template_is_found_by_its_outer_form_and_id() -> None:
    made = catalog(files=templates("docs://{a}"))
    assert made.find_template("docs://files/{a}") is made.find_template("files/docs://{a}") is not None


# --- change ----------------------------------------------------------------------------------------------------------


def test_what_did_not_change_is_taken_as_it_was() -> None:
    files, net = offering(tool("read")), offering(tool("get"))
    before = build_catalog({"files": files, "net": net}, {}, counter=1)
    after = build_catalog(
        {"files": files, "net": offering(tool("get", description="New."))}, {}, counter=2, before=before
    )
    assert after.tools["files/read"] is before.tools["files/read"]
    assert after.tools["net/get"] is not before.tools["net/get"]


def test_a_change_of_one_tool_judges_that_tool_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = catalog(files=offering(*(tool(f"t{number}") for number in range(100))))
    judged: list[Any] = []
    monkeypatch.setattr(catalog_items, "compile_schema", judged.append)
    changed = offering(*(tool(f"t{number}") for number in range(99)), tool("t99", input_schema=deep(1)))
    build_catalog({"files": changed}, {}, counter=2, before=before)
    assert judged == [deep(1)]


def test_true_in_place_of_one_is_a_change() -> None:
    one, true = (tool(input_schema={"type": "object", "default": value}) for value in (1, True))
    before = catalog(files=offering(one))
    after = build_catalog({"files": offering(true)}, {}, counter=2, before=before)
    assert (after.tools["files/read"].pin, changed_lists(before, after)) == (pin_of(true), ("tools",))


def test_new_settings_are_applied_to_lists_that_did_not_change() -> None:
    files = offering(tool("read"), tool("write"))
    before = build_catalog({"files": files}, {}, counter=1)
    settings = {"files": ServerSettings(trusted=True, tools=Filters(deny=("write",)))}
    after = build_catalog({"files": files}, settings, counter=2, before=before)
    assert [(item.id, item.trusted) for item in after.tools.values()] == [("files/read", True)]


def test_another_naming_names_all_again() -> None:
    files = offering(tool("x" * 50 + "." + "y" * 9))
    before = build_catalog({"files": files}, {}, counter=1)
    after = build_catalog({"files": files}, {}, counter=2, naming=GEMINI, before=before)
    assert [GEMINI.is_legal(wire) for wire in after.by_wire["tool"]] == [True]
    assert after.by_wire["tool"].keys() != before.by_wire["tool"].keys()


FULL = offering(
    tool("a"),
    tool("b"),
    prompts=(t.Prompt(name="p"),),
    resources=(t.Resource(name="r", uri="x://r"),),
    templates=(t.ResourceTemplate(name="t", uri_template="x://{t}"),),
)
CHANGES = [
    pytest.param({}, (), id="nothing"),
    pytest.param({"listed_at": 5.0}, (), id="listed-again"),
    pytest.param({"instructions": "New."}, (), id="instructions"),
    pytest.param({"tools": (tool("b"), tool("a"))}, (), id="another-order"),
    pytest.param({"tools": (tool("a"),)}, ("tools",), id="tool-gone"),
    pytest.param({"tools": (tool("a"), tool("b"), tool("c"))}, ("tools",), id="tool-came"),
    pytest.param({"tools": (tool("a"), tool("b", title="B"))}, ("tools",), id="tool-changed"),
    pytest.param({"tools": (tool("a"), tool("b"), tool("c", input_schema={}))}, (), id="bad-tool-came"),
    pytest.param({"prompts": ()}, ("prompts",), id="prompt-gone"),
    pytest.param({"resources": ()}, ("resources",), id="resource-gone"),
    pytest.param({"templates": ()}, ("resources",), id="template-gone"),
    pytest.param({"resources": (), "templates": ()}, ("resources",), id="both-gone"),
    pytest.param({"tools": (), "prompts": ()}, ("tools", "prompts"), id="two-kinds"),
]


@pytest.mark.parametrize(("change", "kinds"), CHANGES)
def test_only_lists_that_differ_are_named(change: dict[str, Any], kinds: tuple[str, ...]) -> None:
    before = catalog(files=FULL)
    after = build_catalog({"files": msgspec.structs.replace(FULL, **change)}, {}, counter=2, before=before)
    assert changed_lists(before, after) == kinds


def test_the_first_catalog_differs_from_none_by_what_it_has() -> None:
    assert changed_lists(None, catalog(files=offering(tool()))) == ("tools",)


def test_servers_in_another_order_are_no_difference() -> None:
    one = catalog(a=offering(tool()), b=offering(tool()))
    assert changed_lists(one, catalog(b=offering(tool()), a=offering(tool()))) == ()


def test_drops_are_kept_with_the_part_they_belong_to() -> None:
    bad = offering(tool(input_schema={}))
    before = catalog(files=bad)
    after = build_catalog({"files": bad, "net": offering()}, {}, counter=2, before=before)
    assert _kinds(after.dropped) == _kinds(before.dropped) == [("files", "tool", "read")]


def _kinds(dropped: Iterable[DroppedItem]) -> list[tuple[str, str, str]]:
    return [(drop.server, drop.kind, drop.name) for drop in dropped]
