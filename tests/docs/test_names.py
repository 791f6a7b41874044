"""Every name that a page mentions exists: modules, classes, files, links and their anchors."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages

#: The pages of the repository's root that are not in ``pages()``.
OTHERS = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))
ALL = [*pages(), *OTHERS, *EXAMPLES]

#: The packages whose names are public. ``trunkline.cli`` has the prompters for a terminal, and nothing else.
PUBLIC = {
    "trunkline",
    *(f"trunkline.{name}" for name in ("auth", "cli", "client", "errors", "extensions", "host", "net")),
    *(f"trunkline.{name}" for name in ("server", "testing", "transports", "types")),
}
#: Names that look like modules: a method of the everything server.
NOT_MODULES = {"trunkline.everything"}
#: Scripts that generate pages from the source; they need what the pages describe.
GENERATORS = {"docs/make_reference.py", "docs/draw_states.py"}

_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
_SOURCE = re.compile(r"(?<![\w/.-])((?:src|servers|tests|examples|docs|benchmarks)/[\w./-]*\w(?:\.\w+)?)")
_DOTTED = re.compile(r"(?<![\w./@-])(trunkline(?:_servers)?(?:\.[A-Za-z_]\w*)+)")
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def _parameters(found: list[Path]) -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in found]


def _inline(page: Path) -> str:
    """Return the text in backticks outside fenced blocks."""
    prose = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return "\n".join(re.findall(r"`([^`\n]+)`", prose))


@pytest.mark.parametrize("page", _parameters(ALL))
def test_a_path_that_a_page_mentions_exists(page: Path) -> None:
    missing = [path for path in _SOURCE.findall(_inline(page)) if "*" not in path and not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", _parameters(ALL))
def test_a_dotted_name_that_a_page_mentions_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [name for name in dict.fromkeys(_DOTTED.findall(text)) if not _exists(name)] == []


@cache
def _exists(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    if name in NOT_MODULES:
        return True
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for attribute in parts[length:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.mark.parametrize("page", _parameters(ALL))
def test_a_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target, anchor in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        file = page.parent / target if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert broken == []


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain)


@pytest.mark.parametrize(
    "block",
    [pytest.param(each, id=each.name) for page in pages() for each in blocks(page) if each.language == "python"],
)
def test_a_page_imports_public_packages_only(block: Block) -> None:
    assert _private_imports(block.text) == []


@pytest.mark.parametrize(
    "file",
    _parameters(
        [
            file
            for folder in ("docs", "examples")
            for file in sorted((ROOT / folder).rglob("*.py"))
            if str(file.relative_to(ROOT)) not in GENERATORS
        ]
    ),
)
def test_an_example_imports_public_packages_only(file: Path) -> None:
    assert _private_imports(file.read_text(encoding="utf-8")) == []


def _private_imports(source: str) -> list[str]:
    """Return the modules of trunkline that are imported and not public."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.append(node.module)
    ours = [name for name in imported if name.split(".")[0] == "trunkline"]
    return [name for name in ours if name not in PUBLIC and name != "trunkline.compat"]


@pytest.mark.parametrize("page", _parameters(sorted((ROOT / "docs" / "how-to").glob("*.md"))))
def test_a_how_to_page_opens_with_a_snippet(page: Path) -> None:
    """What the reader gets, then something to run or copy, before the first section."""
    opening = page.read_text(encoding="utf-8").partition("\n## ")[0]
    introduction = re.sub(r"<!--.*?-->\n", "", opening.partition("```")[0], flags=re.S)
    assert "```" in opening
    assert len(introduction) < 700


@pytest.mark.parametrize(
    "term",
    [
        "approval mode",
        "dedicated connection",
        "doctor",
        "era",
        "handshake",
        "parked call",
        "pin",
        "profile",
        "spill",
        "stateless",
        "taint",
        "vault",
    ],
)
def test_a_term_of_our_own_is_in_the_glossary(term: str) -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M)
    assert term in [heading.lower() for heading in headings]
    assert headings == sorted(headings)


@pytest.mark.parametrize("page", _parameters([*pages(), ROOT / "SECURITY.md", *EXAMPLES]))
def test_a_page_is_written_in_plain_terms(page: Path) -> None:
    """A program is not a person, and an internal name of an earlier version is not a term."""
    prose = _FENCED.sub("", page.read_text(encoding="utf-8")).partition("## Differences from the official server")[0]
    assert re.findall(r"\b(?:whoever|nobody|somebody|errands?|lanes?|judged?|judges|his|him)\b", prose, re.I) == []
