"""Every code block of the README and the docs is a file of the project, or is run here."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from tests.cli.support import serving
from tests.docs.pages import ROOT, Block, blocks, module_of, pages, served
from trunkline.cli.main import _trunkline
from trunkline.host.authorization.policy.loader import local_path_context, parse_policy
from trunkline.server.http import AsgiOptions, HttpOptions

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
BLOCKS = [block for page in pages() for block in blocks(page)]

#: The address of the server in the pages.
ADDRESS = "127.0.0.1:8000"

#: The languages of blocks; `text` is neither code nor data.
LANGUAGES = {"console", "json", "python", "sh", "text", "toml"}


def _of(language: str) -> list[object]:
    return [pytest.param(block, id=block.name) for block in BLOCKS if block.language == language]


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module in which the blocks of a page run: dataclasses look up their module by name."""
    made = types.ModuleType("docs_page")
    sys.modules["docs_page"] = made
    yield made
    del sys.modules["docs_page"]


@contextmanager
def _address(page: Path) -> Iterator[str]:
    """Yield the address that replaces the page's: that of a server started for the page, if it needs one."""
    file = served(page)
    if file is None:
        yield ADDRESS
        return
    with serving(file, "--http", "0", cwd=ROOT) as server:
        yield urlsplit(server.url).netloc


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    if (name := module_of(page)) is not None:
        monkeypatch.setitem(sys.modules, name, module)
    with _address(page) as address, asyncio.Runner() as runner:
        for block in blocks(page):
            if block.language == "python" and _is_here(block.needs):
                _run(block._replace(text=block.text.replace(ADDRESS, address)), module, runner)


def _is_here(package: str | None) -> bool:
    return package is None or importlib.util.find_spec(package) is not None


def _run(block: Block, module: types.ModuleType, runner: asyncio.Runner) -> None:
    """Run a block as ``python -m asyncio`` would, so that a page may show an await by itself."""
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, module.__dict__))
    else:
        exec(code, module.__dict__)


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


@pytest.mark.parametrize("block", _of("sh"))
def test_a_command_that_a_page_shows_exists(block: Block) -> None:
    shown = re.findall(r"(?:^|[|&] )trunkline ([a-z]+)(?: ([a-z]+))?", block.text, re.M)
    assert [verb for verb, _ in shown if verb not in _verbs()] == []


def _verbs() -> list[str]:
    return _trunkline.list_commands(click.Context(_trunkline))


@pytest.mark.parametrize("block", _of("console"))
def test_a_command_prints_what_the_page_shows(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with _address(block.page) as address:
        for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n?)*)", block.text, re.M):
            assert _printed(command.replace(ADDRESS, address)).replace(address, ADDRESS) == shown.strip()


def _printed(command: str) -> str:
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
    return ended.stdout.decode().strip()


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
