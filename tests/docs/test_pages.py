"""Every page: its code blocks are files of the project or are run here, and every name in it exists."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
import shlex
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from tests.docs.pages import ROOT, Block, blocks, pages
from tests.docs.reader import Reader, is_installed, matches, steps
from trunkline.cli.main import _trunkline
from trunkline.host.authorization.policy.loader import local_path_context, parse_policy
from trunkline.server.http import AsgiOptions, HttpOptions

#: The pages whose blocks are not tested.
OTHERS = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "PYPI.md", "servers/PYPI.md")]
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))

#: The packages whose names are public. ``trunkline.cli`` has the prompters for a terminal, and nothing else.
PUBLIC = {
    "trunkline",
    *(f"trunkline.{name}" for name in ("auth", "cli", "client", "errors", "extensions", "host", "net")),
    *(f"trunkline.{name}" for name in ("server", "testing", "transports", "types")),
}
#: Names that look like modules: a method of the everything server.
NOT_MODULES = {"trunkline.everything"}
#: Scripts that generate pages from the source; they need what the pages describe.
GENERATORS = {"docs/make_reference.py"}

NOT_RUN_AT_MOST = 20

_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
_SOURCE = re.compile(r"(?<![\w/.-])((?:src|servers|compat|tests|examples|docs|benchmarks)/[\w./-]*\w(?:\.\w+)?)")
_DOTTED = re.compile(r"(?<![\w./@-])(trunkline(?:_servers|_compat)?(?:\.[A-Za-z_]\w*)+)")
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def followed(page: Path) -> list[Block]:
    """Return the blocks of a page that a reader follows."""
    return [block for block in blocks(page) if block.not_run is None and is_installed(block.needs)]


def _marks(page: Path) -> list[pytest.MarkDecorator]:
    """A page with commands starts many processes; what its commands say is tested without them, too."""
    commands = (
        block.first or (block.title is None and block.language in ("console", "sh")) for block in followed(page)
    )
    return [pytest.mark.slow] if any(commands) else []


def _page(page: Path, *marks: pytest.MarkDecorator) -> object:
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


# --- following a page -------------------------------------------------------------------------------------------------


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module in which the code of a page runs: dataclasses look up their module by name."""
    made = types.ModuleType("docs_page")
    sys.modules["docs_page"] = made
    yield made
    del sys.modules["docs_page"]


@pytest.mark.parametrize("page", [_page(page, *_marks(page)) for page in pages() if followed(page)])
def test_a_page_can_be_followed_from_top_to_bottom(
    page: Path, module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are written, its code and its commands run, in a folder that is empty at the beginning."""
    steps_of_page = followed(page)
    reader = Reader(tmp_path, module, in_a_clone=any("examples/" in block.text for block in steps_of_page))
    for name, value in reader.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(reader.folder)
    monkeypatch.syspath_prepend(str(reader.folder))
    known = set(sys.modules)
    try:
        with asyncio.Runner() as runner:
            for block in steps_of_page:
                reader.follow(block, runner)
    finally:
        reader.leave()
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


def test_few_blocks_cannot_be_run_and_each_says_why() -> None:
    every = [block for page in pages() for block in blocks(page)]
    reasons = {block.name: block.not_run for block in every if block.not_run is not None}
    assert all(reason and len(reason) > 10 for reason in reasons.values())
    assert len(reasons) <= NOT_RUN_AT_MOST, reasons


def test_an_output_matches_what_is_shown() -> None:
    assert matches("a b\nc", "a  b\nc\n")
    assert matches("a ...\n...\nd", "a b\nc\nc\nd")
    assert not matches("a\nc", "a\nb\nc")
    assert not matches("a", "ab")


# --- what a block says ------------------------------------------------------------------------------------------------


def _faults_of_python(block: Block) -> Iterator[str]:
    compile(block.text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    yield from (f"imports {name}, which is not public" for name in private_imports(block.text))
    known = {*AsgiOptions.__annotations__, *HttpOptions.__annotations__}
    for call in ast.walk(ast.parse(block.text)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if (call.func.attr == "run" and call.args) or call.func.attr == "asgi":
            yield from (f"{each.arg} is no option of HTTP" for each in call.keywords if each.arg not in known)


def _faults_of_rules(block: Block) -> Iterator[str]:
    tomllib.loads(block.text)
    if "[[rule]]" in block.text or "[[redact]]" in block.text:
        parse_policy(block.text, file=block.name, path_context=local_path_context())
    yield from ()


def _faults_of_json(block: Block) -> Iterator[str]:
    json.loads(block.text)
    yield from ()


def _faults_of_commands(block: Block) -> Iterator[str]:
    for verb in re.findall(r"(?:^|[|&$] )trunkline ([a-z]+)", block.text, re.M):
        if verb not in _verbs():
            yield f"there is no command {verb}"
    for line, _ in steps(block) if block.language != "text" else ():
        words = shlex.split(line.replace("\\\n", " "), comments=True)
        if words[:1] == ["trunkline"]:
            yield from (f"{word} is no option of: {line}" for word in unknown_options(words[1:]))


#: The languages of blocks, and what finds their faults; `text` is neither code nor data.
FAULTS: dict[str, Callable[[Block], Iterator[str]]] = {
    "python": _faults_of_python,
    "toml": _faults_of_rules,
    "json": _faults_of_json,
    "sh": _faults_of_commands,
    "console": _faults_of_commands,
    "text": _faults_of_commands,
    "html": lambda _: iter(()),
}


def unknown_options(words: list[str]) -> list[str]:
    """Return the options of a command line that its command does not have."""
    command: click.Command = _trunkline
    known = set[str]()
    unknown = []
    for word in words:
        context = click.Context(command)
        known |= {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is not None:
            command = found
        elif word in ("|", ";", "&&", ">", "2>&1", "--", "--compat"):  # the rest is for another program
            break
        elif re.match(r"--[a-z]", word) and word.partition("=")[0] not in known:
            unknown.append(word)
    return unknown


@cache
def _verbs() -> frozenset[str]:
    return frozenset(_trunkline.list_commands(click.Context(_trunkline)))


def test_an_option_that_a_command_does_not_have_would_be_noticed() -> None:
    assert unknown_options(["grants", "list", "--json", "--jsno"]) == ["--jsno"]


def _faults_of_blocks(page: Path) -> Iterator[str]:
    for block in blocks(page):
        if block.language not in FAULTS:
            yield f"{block.name}: {block.language} is not tested"
            continue
        if block.file and block.text.strip() != (ROOT / block.file).read_text(encoding="utf-8").strip():
            yield f"{block.name}: is not {block.file}"
        try:
            yield from (f"{block.name}: {fault}" for fault in FAULTS[block.language](block))
        except Exception as error:  # noqa: BLE001 - a parser says in its own way what is wrong
            yield f"{block.name}: {error}"


def _faults_of_targets(page: Path) -> Iterator[str]:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", page.read_text(encoding="utf-8"), re.M))
    yield from (f"there is no make {one or other}" for one, other in named if (one or other) not in targets)


def private_imports(source: str) -> list[str]:
    """Return the modules of trunkline that are imported and not public."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.append(node.module)
    ours = [name for name in imported if name.split(".")[0] == "trunkline"]
    return [name for name in ours if name not in PUBLIC]


# --- what the text says -----------------------------------------------------------------------------------------------


def _faults_of_names(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    inline = "\n".join(re.findall(r"`([^`\n]+)`", _FENCED.sub("", text)))
    yield from (f"there is no {path}" for path in _SOURCE.findall(inline) if not (ROOT / path).exists())
    yield from (f"there is no {name}" for name in dict.fromkeys(_DOTTED.findall(text)) if not _exists(name))


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


def _faults_of_links(page: Path) -> Iterator[str]:
    for target, anchor in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        file = page.parent / target if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            yield f"the link to {target}#{anchor} leads nowhere"


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain)


def _faults_of_words(page: Path) -> Iterator[str]:
    """A program is not a person, and an internal name of an earlier version is not a term."""
    prose = _FENCED.sub("", page.read_text(encoding="utf-8")).partition("## Differences from the official server")[0]
    yield from re.findall(r"\b(?:whoever|nobody|somebody|errands?|lanes?|judged?|judges|his|him)\b", prose, re.I)


@pytest.mark.parametrize("page", [_page(page) for page in (*pages(), *OTHERS, *EXAMPLES)])
def test_a_page_has_no_fault(page: Path) -> None:
    faults = [*_faults_of_names(page), *_faults_of_links(page)]
    if page in pages():
        faults += [*_faults_of_blocks(page), *_faults_of_targets(page)]
    if page not in OTHERS[:2]:
        faults += _faults_of_words(page)
    assert faults == []


def test_an_example_imports_public_packages_only() -> None:
    files = [file for folder in ("docs", "examples") for file in sorted((ROOT / folder).rglob("*.py"))]
    assert {
        str(file.relative_to(ROOT)): names
        for file in files
        if str(file.relative_to(ROOT)) not in GENERATORS
        and (names := private_imports(file.read_text(encoding="utf-8")))
    } == {}


def test_a_how_to_page_opens_with_a_snippet() -> None:
    """What the reader gets, then something to run or copy, before the first section."""
    openings = {
        page.name: page.read_text(encoding="utf-8").partition("\n## ")[0]
        for page in (ROOT / "docs" / "how-to").glob("*.md")
    }
    introductions = {
        name: re.sub(r"<!--.*?-->\n", "", opening.partition("```")[0], flags=re.S) for name, opening in openings.items()
    }
    assert [name for name, opening in openings.items() if "```" not in opening] == []
    assert [name for name, text in introductions.items() if len(text) >= 700] == []


def test_terms_of_our_own_are_in_the_glossary() -> None:
    terms = {"approval mode", "dedicated connection", "doctor", "era", "handshake", "parked call", "pin", "profile"}
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M)
    assert {*terms, "spill", "stateless", "taint", "vault"} - {heading.lower() for heading in headings} == set()
    assert headings == sorted(headings)
