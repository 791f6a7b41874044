"""Every code block of the README and the docs is a file of the project, or is run here."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.docs.pages import ROOT, Block, blocks, pages
from tests.docs.reader import Reader, is_installed, matches
from trunkline.cli.main import _trunkline
from trunkline.host.authorization.policy.loader import local_path_context, parse_policy
from trunkline.server.http import AsgiOptions, HttpOptions

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
BLOCKS = [block for page in pages() for block in blocks(page)]

#: Blocks without a run, by the page and a part of their text; other pages say it in a comment before the block.
NOT_RUN: dict[tuple[str, str], str] = {
    ("docs/migrating.md", "trunkline run --compat"): "names a server of the reader; tests/compat runs the command",
}
NOT_RUN_AT_MOST = 20

#: The languages of blocks; `text` is neither code nor data.
LANGUAGES = {"console", "html", "json", "python", "sh", "text", "toml"}


def reason_not_to_run(block: Block) -> str | None:
    """Return why a block cannot be run; None if it can."""
    if block.not_run is not None:
        return block.not_run
    page = str(block.page.relative_to(ROOT))
    return next((why for (where, part), why in NOT_RUN.items() if where == page and part in block.text), None)


def _of(language: str) -> list[object]:
    return [pytest.param(block, id=block.name) for block in BLOCKS if block.language == language]


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module in which the code of a page runs: dataclasses look up their module by name."""
    made = types.ModuleType("docs_page")
    sys.modules["docs_page"] = made
    yield made
    del sys.modules["docs_page"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed_from_top_to_bottom(
    page: Path, module: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are written, its code and its commands run, in a folder that is empty at the beginning."""
    followed = [block for block in blocks(page) if reason_not_to_run(block) is None and is_installed(block.needs)]
    reader = Reader(tmp_path, module, in_a_clone=any("examples/" in block.text for block in followed))
    for name, value in reader.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(reader.folder)
    monkeypatch.syspath_prepend(str(reader.folder))
    known = set(sys.modules)
    try:
        with asyncio.Runner() as runner:
            for block in followed:
                reader.follow(block, runner)
    finally:
        reader.leave()
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


def test_few_blocks_cannot_be_run_and_each_says_why() -> None:
    reasons = {block.name: reason_not_to_run(block) for block in BLOCKS if reason_not_to_run(block) is not None}
    assert all(reason and len(reason) > 10 for reason in reasons.values())
    assert len(reasons) <= NOT_RUN_AT_MOST, reasons


def test_an_output_matches_what_is_shown() -> None:
    assert matches("a b\nc", "a  b\nc\n")
    assert matches("a ...\n...\nd", "a b\nc\nc\nd")
    assert not matches("a\nc", "a\nb\nc")
    assert not matches("a", "ab")


@pytest.mark.parametrize("block", _of("python"))
def test_python_that_cannot_run_here_can_be_read(block: Block) -> None:
    assert compile(block.text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize("block", _of("python"))
def test_an_option_of_http_that_a_page_uses_exists(block: Block) -> None:
    given = [
        keyword.arg
        for call in ast.walk(ast.parse(block.text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        for keyword in call.keywords
        if (call.func.attr == "run" and call.args) or call.func.attr == "asgi"
    ]
    assert set(given) <= {*AsgiOptions.__annotations__, *HttpOptions.__annotations__}


@pytest.mark.parametrize("block", [pytest.param(each, id=each.name) for each in BLOCKS if each.file])
def test_a_block_that_names_a_file_is_that_file(block: Block) -> None:
    assert block.file is not None
    assert block.text.strip() == (ROOT / block.file).read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("block", _of("json"))
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", _of("toml"))
def test_toml_is_toml(block: Block) -> None:
    tomllib.loads(block.text)


@pytest.mark.parametrize("block", _of("toml"))
def test_rules_of_a_page_are_a_valid_policy(block: Block) -> None:
    if "[[rule]]" in block.text or "[[redact]]" in block.text:
        assert parse_policy(block.text, file=block.name, path_context=local_path_context())


@pytest.mark.parametrize("block", [*_of("sh"), *_of("console"), *_of("text")])
def test_a_command_that_a_page_shows_exists(block: Block) -> None:
    shown = re.findall(r"(?:^|[|&$] )trunkline ([a-z]+)", block.text, re.M)
    assert [verb for verb in shown if verb not in _verbs()] == []


def _verbs() -> list[str]:
    return _trunkline.list_commands(click.Context(_trunkline))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_uses_languages_that_are_tested(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_link_to_a_file_is_valid(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_make_target_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", page.read_text(encoding="utf-8"), re.M))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert {one or other for one, other in named} <= targets
