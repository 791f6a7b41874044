"""The reference is current: what is made from the source is made from this source, and every public name is in it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from msgspec.structs import fields

import trunkline.testing
from tests.docs.pages import ROOT
from trunkline import Client, Context, Host, Server
from trunkline.client.options import ClientOptions
from trunkline.host import HostOptions, ServeOptions
from trunkline.server.http import AsgiOptions, HttpOptions
from trunkline.server.prompts import PromptOptions
from trunkline.server.resources import ResourceOptions
from trunkline.server.server_options import ServerOptions
from trunkline.server.tools import ToolOptions

REFERENCE = ROOT / "docs" / "reference"
#: Members of a server or a client that are called by the package itself.
INNER = {
    *("acquire_lifespans", "answered", "call_in_middleware", "call_mounted", "capabilities", "check_apps"),
    *("discovered", "draining", "handles", "has_shared_store", "initialized", "lifespan_value"),
    *("metrics", "notification_received", "pool", "put_page", "read", "release", "seal", "state"),
    *("telemetry", "timers"),
}


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_reference"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["limits", "errors"])
def test_a_page_made_from_the_source_is_current(name: str) -> None:
    made: str = getattr(_load(), f"{name}_page")()
    assert (REFERENCE / f"{name}.md").read_text(encoding="utf-8") == made, "run python docs/make_reference.py"


def test_every_limit_is_in_the_table() -> None:
    page = (REFERENCE / "limits.md").read_text(encoding="utf-8")
    assert [each.name for each in fields(trunkline.Limits) if f"| `{each.name}` |" not in page] == []


def _public(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_") and name not in INNER)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        pytest.param("server", _public(Server), id="methods-of-a-server"),
        pytest.param("server", sorted(ServerOptions.__annotations__), id="options-of-a-server"),
        pytest.param("server", sorted(AsgiOptions.__annotations__), id="options-of-an-application"),
        pytest.param("server", sorted(HttpOptions.__annotations__), id="options-of-http"),
        pytest.param("server", list(ToolOptions.__struct_fields__), id="options-of-a-tool"),
        pytest.param("server", [each.name for each in fields(ResourceOptions)], id="options-of-a-resource"),
        pytest.param("server", [each.name for each in fields(PromptOptions)], id="options-of-a-prompt"),
        pytest.param("context", _public(Context), id="methods-of-a-context"),
        pytest.param("client", _public(Client), id="methods-of-a-client"),
        pytest.param("client", sorted(ClientOptions.__annotations__), id="options-of-a-client"),
        pytest.param("host", _public(Host), id="methods-of-a-host"),
        pytest.param("host", sorted(HostOptions.__annotations__), id="options-of-a-host"),
        pytest.param("host", sorted(ServeOptions.__annotations__), id="options-of-serving-a-host"),
        pytest.param("testing", trunkline.testing.__all__, id="the-testing-kit"),
    ],
)
def test_every_public_name_is_in_the_reference(page: str, names: list[str]) -> None:
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    words = {word for code in re.findall(r"`([^`]+)`", prose) for word in re.findall(r"\w+", code)}
    assert [name for name in names if name not in words] == []


def _verbs() -> dict[str, Any]:
    from trunkline.cli.main import _trunkline

    context = click.Context(_trunkline)
    return {name: _trunkline.get_command(context, name) for name in _trunkline.list_commands(context)}


def test_every_verb_and_option_of_the_command_line_is_in_the_reference() -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    options = {
        option
        for verb in _verbs().values()
        for each in (verb, *getattr(verb, "commands", {}).values())
        for parameter in each.params
        if not getattr(parameter, "hidden", False)
        for option in parameter.opts
        if option.startswith("--")
    } - {"--config", "--output", "--verbose"}
    assert [f"trunkline {verb}" for verb in _verbs() if f"trunkline {verb} " not in text] == []
    assert sorted(option for option in options if option not in text) == []


def test_the_readme_is_short() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    features = readme.partition("## What you can do\n")[2].partition("\n## ")[0]
    assert len(readme.splitlines()) <= 150
    assert len(re.findall(r"^- ", features, re.M)) <= 10
    assert len(re.findall(r"(?<!!)\[[^\]]+\]\([^)]+\)", readme)) <= 8


def test_the_readme_opens_with_the_installation_a_picture_and_a_server() -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25]
    starts = ("pip install", "![", "@server.tool")
    assert [start for start in starts if not any(line.startswith(start) for line in opening)] == []


def test_every_page_of_the_docs_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        seen.add(page)
        links = re.findall(r"\]\((?!\w+:|#)([^)\s#]+\.md)[^)]*\)", page.read_text(encoding="utf-8"))
        found = {(page.parent / link).resolve() for link in links}
        todo += [each for each in found if each not in seen and each not in todo and (ROOT / "docs") in each.parents]
    assert [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")) if page not in seen] == []


def test_an_index_lists_the_pages_of_its_folder() -> None:
    missing = {}
    for folder in ("explanation", "how-to", "reference", "servers"):
        text = (ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")
        names = sorted(page.name for page in (ROOT / "docs" / folder).glob("*.md") if page.name != "README.md")
        missing[folder] = [name for name in names if f"]({name})" not in text]
    assert {folder: names for folder, names in missing.items() if names} == {}
