"""The site: its navigation has every page, links out of the docs lead somewhere, the API has every public name."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from types import ModuleType

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_pages import PUBLIC

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_hooks"] = module
    spec.loader.exec_module(module)
    return module


HOOKS = _load()


def test_the_navigation_has_every_page_once() -> None:
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", CONFIG.partition("\nnav:\n")[2], re.M)
    written = [str(page.relative_to(ROOT / "docs")) for page in sorted((ROOT / "docs").rglob("*.md"))]
    made = [*(f"project/{name}" for name in HOOKS.PROJECT), *(f"api/{name}.md" for name in HOOKS.PACKAGES)]
    assert sorted(listed) == sorted([*written, *made, "examples/README.md"])


def test_the_api_has_every_public_package() -> None:
    assert set(HOOKS.PACKAGES) == PUBLIC


def test_the_api_describes_every_exported_name_once() -> None:
    known: dict[str, str] = {}
    described: list[str] = []
    for package in HOOKS.PACKAGES:
        exported = importlib.import_module(package).__all__
        assert [each.name for each in HOOKS.exported(package)] == exported
        page = HOOKS.api_page(package, {})
        assert [name for name in exported if f"::: {package}.{name}\n" not in page] == []
        described += re.findall(r"^::: trunkline[\w.]*\.(\w+)$", HOOKS.api_page(package, known), re.M)
    assert len(described) == len(set(described))


def test_in_the_search_a_word_of_a_guide_outweighs_a_title_of_the_api() -> None:
    """The theme weighs a title 1000 times as much; ``make docs-build`` runs searches with the theme's own code."""
    title = 1000 * HOOKS.search_boost("api/trunkline.md")
    guides = ("README.md", "tutorial.md", "how-to/log-in.md", "explanation/sandbox.md")
    assert [uri for uri in guides if HOOKS.search_boost(uri) <= title] == []


@pytest.mark.parametrize(
    ("uri", "written", "shown"),
    [
        ("tutorial.md", "[a](how-to/x.md#b)", "[a](how-to/x.md#b)"),
        ("how-to/a.md", "[a](../../SECURITY.md)", "[a](../project/SECURITY.md)"),
        ("how-to/a.md", "[a](../../examples/hello/server.py)", "[a](../examples/hello.md#serverpy)"),
        ("how-to/a.md", "[a](../../examples/hosting)", "[a](../examples/hosting.md)"),
        ("project/ARCHITECTURE.md", "[a](docs/glossary.md#pin)", "[a](../glossary.md#pin)"),
        ("project/ARCHITECTURE.md", "[a](README.md)", "[a](../README.md)"),
        ("project/CONTRIBUTING.md", "[a](benchmarks/README.md)", "a"),
        ("examples/weather.md", "[a](../../docs/glossary.md#era)", "[a](../glossary.md#era)"),
        (
            "a.md",
            "<!-- file: x -->\n```python\n[a](b.md)  # <!-- c -->\n```",
            "```python\n[a](b.md)  # <!-- c -->\n```",
        ),
        ("a.md", "| `x\\|y` | z \\| |", "| `x|y` | z \\| |"),
        ("a.md", "[a](https://example.com) [b](#c)", "[a](https://example.com) [b](#c)"),
    ],
)
def test_a_link_of_the_repository_is_one_of_the_site(uri: str, written: str, shown: str) -> None:
    assert HOOKS.rewrite(written, uri) == shown


def test_the_file_for_models_lists_pages_with_their_first_sentence() -> None:
    HOOKS._TEXTS["x.md"] = "# X\n\nOne [thing](y.md): here. Another.\n"
    text = HOOKS.llms([("Start", [("X", "x.md", "x/")])], "https://docs.example/")
    assert "## Start\n\n- [X](https://docs.example/x/): One thing: here.\n" in text


def test_a_list_or_table_follows_an_empty_line() -> None:
    """GitHub does not need it, the site does."""
    faults = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        shown = HOOKS.rewrite(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT / "docs")))
        text = re.sub(r"^```.*?^```$", "", shown, flags=re.M | re.S)
        faults[page.name] = re.findall(r"^(?![-*|]|\d+\.| |$).+\n(?:[-*] |1\. |\|.*\|$)", text, re.M)
    assert {name: lines for name, lines in faults.items() if lines} == {}
