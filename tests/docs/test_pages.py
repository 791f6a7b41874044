"""Every code block of the README and the docs is a file of the project, or is run here."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
BLOCKS = [block for page in pages() for block in blocks(page)]

#: The languages a block may have: `text` is what is neither code nor data.
LANGUAGES = {"console", "json", "python", "sh", "text"}


def _of(language: str) -> list[object]:
    return [pytest.param(block, id=block.name) for block in BLOCKS if block.language == language]


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module for a page's blocks to run in: dataclasses look theirs up by name."""
    made = types.ModuleType("docs_page")
    sys.modules["docs_page"] = made
    yield made
    del sys.modules["docs_page"]


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with asyncio.Runner() as runner:
        for block in blocks(page):
            if block.language == "python":
                _run(block, module, runner)


def _run(block: Block, module: types.ModuleType, runner: asyncio.Runner) -> None:
    """Run a block as ``python -m asyncio`` would, so that a page may show an await by itself."""
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, module.__dict__))
    else:
        exec(code, module.__dict__)


@pytest.mark.parametrize("block", [pytest.param(each, id=each.name) for each in BLOCKS if each.file])
def test_a_block_that_names_a_file_is_that_file(block: Block) -> None:
    assert block.file is not None
    assert block.text.strip() == (ROOT / block.file).read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("block", _of("json"))
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", _of("console"))
def test_a_command_prints_what_the_page_shows(block: Block) -> None:
    for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n?)*)", block.text, re.M):
        program, *arguments = shlex.split(command)
        assert program == "trunkline"
        ended = subprocess.run(
            [sys.executable, "-m", "trunkline", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=50,
            check=False,
        )
        assert ended.stdout.decode().strip() == shown.strip()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_uses_languages_that_are_held_to_their_word(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_link_to_a_file_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_make_target_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", page.read_text(encoding="utf-8"), re.M))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert {one or other for one, other in named} <= targets
