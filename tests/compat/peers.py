"""The peers' own tests, from pinned source distributions, run against Trunkline: ``python -m tests.compat.peers``.

The distributions come from the package index into ``.compat`` and are never kept in the repository. The tests run in an
environment without the packages they were written for. The table counts every test of the named folders; a file that
cannot be imported counts with all its tests.

Every test that does not pass needs a reason: ``tests/compat/reasons/*.toml`` has entries with a class, a sentence and
patterns of test ids. ``--write-docs`` puts the table and the reasons into ``docs/migrating.md``. The command fails if
fewer than 65 of 100 tests pass, or if a test has no reason or several.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import translate
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["SUITES", "Outcome", "Reason", "Suite", "load_reasons", "main", "sort_out", "table"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".compat"
PYTHON = FOLDER / "env" / "bin" / "python"
REASONS = Path(__file__).parent / "reasons"
PAGE = ROOT / "docs" / "migrating.md"
#: The least share of all collected tests that pass, in percent.
BAR = 65
#: The classes of reasons, and the column each is counted in.
CLASSES = {
    "deliberate difference": "deliberate",
    "inner structure": "missing",
    "part not there": "missing",
}
#: What the tests import beside the packages that are replaced.
_NEEDED = (
    "pydantic[email]",
    "pydantic-settings",
    "starlette",
    "uvicorn",
    "httpx",
    "httpx-sse",
    "httpx2",
    "anyio",
    "sse-starlette",
    "jsonschema",
    "jsonschema-path",
    "python-multipart",
    "pyjwt[crypto]",
    "opentelemetry-sdk",
    "platformdirs",
    "python-dotenv",
    "rich",
    "exceptiongroup",
    "authlib",
    "azure-identity",
    "py-key-value-aio[filetree,keyring,memory]>=0.4.4,<0.5.0",
    "openapi-pydantic",
    "cyclopts",
    "watchfiles",
    "pyyaml",
    "jsonref",
    "websockets",
    "packaging",
    "griffelib",
    "uncalled-for",
    "joserfc",
    "fastapi",
    "psutil",
    "typer",
    "pillow",
    "trio",
    "logfire",
    "blockbuster",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "pytest-env",
    "pytest-retry",
    "inline-snapshot",
    "dirty-equals",
    "pytest-examples",
    "pytest-flakefinder",
)


class Suite(NamedTuple):
    """Some folders of one distribution, and the versions the tests are told."""

    source: str
    folders: tuple[str, ...]
    mcp: str


SUITES = (
    Suite("mcp==2.3.0", ("tests/server/mcpserver", "tests/server/lowlevel"), "2.3.0"),
    Suite("mcp==1.28.0", ("tests/server/fastmcp",), "1.28.0"),
    Suite("fastmcp==4.1.2", ("tests/tools", "tests/prompts", "tests/resources", "tests/server"), "2.3.0"),
)


def _prepare() -> None:
    """Make the environment without the real packages."""
    if (FOLDER / "env" / ".installed").exists():
        return
    venv.create(FOLDER / "env", with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", f"{ROOT}[auth,cli,compat]", *_NEEDED], check=True)
    _serve_children()
    (FOLDER / "env" / ".installed").touch()


def _serve_children() -> None:
    """Install the stand-ins in processes that tests start, too: they are told the versions by the environment."""
    line = (
        "import os; 'TRUNKLINE_COMPAT_MCP' in os.environ and __import__('trunkline.compat.pytest_plugin', "
        "fromlist=['x']).pytest_load_initial_conftests()\n"
    )
    for packages in (FOLDER / "env" / "lib").glob("python*/site-packages"):
        (packages / "trunkline_compat.pth").write_text(line)


def _source(suite: Suite) -> Path:
    """Return the unpacked source distribution of a suite."""
    name = suite.source.replace("==", "-")
    folder = FOLDER / "sources" / name
    if not folder.exists():
        archives = FOLDER / "archives"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "-d", str(archives), suite.source], check=True)
        with tarfile.open(archives / f"{name}.tar.gz") as archive:
            archive.extractall(FOLDER / "sources", filter="data")
    return folder


class Outcome(NamedTuple):
    """How one test ended: ``passed``, ``failed``, ``skipped`` by itself, or ``missing`` with its whole file."""

    id: str
    how: str


class Reason(NamedTuple):
    """Why some tests do not pass."""

    kind: str
    why: str
    patterns: tuple[str, ...]


def _run(suite: Suite, folder: str) -> list[Outcome]:
    """Run one folder and return how each of its tests ended."""
    source = _source(suite)
    report = _report(suite, folder)
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    settings = ("pythonpath=", "addopts=", "log_cli=false", "filterwarnings=default", "junit_family=xunit1")
    options = [part for each in settings for part in ("-o", each)]
    command = [str(PYTHON), "-m", "pytest", "-q", "-p", "trunkline.compat.pytest_plugin", "-p", "no:cacheprovider"]
    env = {**os.environ, "TRUNKLINE_COMPAT_MCP": suite.mcp, "TRUNKLINE_COMPAT_FASTMCP": "4.1.2"}
    more = ["--timeout", "10", "-n", "2", "--continue-on-collection-errors", "--tb=short", f"--junitxml={report}"]
    subprocess.run(
        [*command, *options, *more, folder],
        cwd=source,
        env=env,
        stdout=(report.with_suffix(".log")).open("w"),
        stderr=subprocess.STDOUT,
        check=False,
    )
    return list(_outcomes(suite, report, source))


def _report(suite: Suite, folder: str) -> Path:
    return FOLDER / "reports" / f"{suite.source}-{folder.replace('/', '-')}.xml"


def _outcomes(suite: Suite, report: Path, source: Path) -> Iterator[Outcome]:
    """Read a report; ids are ``distribution/tests/file.py::Class::test[parameters]``."""
    name = suite.source.replace("==", "-")
    ended: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        error = case.find("error")
        if error is not None and "collection failure" in (error.get("message") or ""):
            for each in _uncollected(source, case):
                ended[f"{name}/{each}"] = "missing"
            continue
        id = f"{name}/{_node_id(case)}"
        if error is not None or case.find("failure") is not None:
            # A failure while a test is torn down has an entry of its own.
            ended[id] = "failed"
        elif case.find("skipped") is not None:
            ended.setdefault(id, "skipped")
        else:
            ended.setdefault(id, "passed")
    yield from (Outcome(id, how) for id, how in ended.items())


def _node_id(case: ElementTree.Element) -> str:
    file = case.get("file") or ""
    module = file.removesuffix(".py").replace("/", ".")
    classes = (case.get("classname") or "").removeprefix(module).strip(".")
    return "::".join(part for part in (file, *classes.split("."), case.get("name") or "") if part)


def _uncollected(source: Path, case: ElementTree.Element) -> Iterator[str]:
    """Yield the tests of a file, or of a folder, that could not be imported."""
    path = source / (case.get("name") or "").replace(".", "/")
    files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path.with_suffix(".py")]
    for file in files:
        relative = file.relative_to(source).as_posix()
        if not file.exists():
            yield relative
            continue
        yield from (f"{relative}::{each}" for each in _test_names(ast.parse(file.read_text(encoding="utf-8"))))


def _test_names(node: ast.AST, within: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _test_names(child, f"{within}{child.name}::")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and _is_test(child):
            yield within + child.name


def _is_test(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    fixture = any("fixture" in ast.unparse(each) for each in function.decorator_list)
    return function.name.startswith("test") and not fixture


def load_reasons(folder: Path = REASONS) -> list[Reason]:
    """Load all reasons.

    Raises:
        ValueError: an entry is not valid; the message names the file.
    """
    found: list[Reason] = []
    for file in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(file.read_text(encoding="utf-8")).get("reason", ()):
            kind, why, tests = entry.get("class"), entry.get("why"), entry.get("tests")
            if kind not in CLASSES or not why or not tests:
                raise ValueError(f"{file.name}: a reason needs a class ({', '.join(CLASSES)}), why and tests: {entry}")
            found.append(Reason(kind, why, tuple(tests)))
    return found


class Sorted(NamedTuple):
    """The tests of one folder by column, the number of tests by reason, and those without a reason or with several."""

    counts: Counter[str]
    by_reason: Counter[Reason]
    unexplained: list[str]
    ambiguous: list[str]


def sort_out(outcomes: Sequence[Outcome], reasons: Sequence[Reason]) -> Sorted:
    """Find the reason of every test that did not pass."""
    matchers = [(reason, re.compile("|".join(map(_pattern, reason.patterns)))) for reason in reasons]
    made = Sorted(Counter(), Counter(), [], [])
    for outcome in outcomes:
        made.counts["collected"] += 1
        if outcome.how in ("passed", "skipped"):
            made.counts[outcome.how] += 1
            continue
        fitting = [reason for reason, matcher in matchers if matcher.match(outcome.id)]
        if not fitting:
            made.counts["unexplained"] += 1
            made.unexplained.append(outcome.id)
            continue
        if len(fitting) > 1:
            made.ambiguous.append(outcome.id)
        made.counts[CLASSES[fitting[0].kind]] += 1
        made.by_reason[fitting[0]] += 1
    return made


def _pattern(glob: str) -> str:
    """Return a pattern for a glob in which brackets are only brackets: test ids have parameters in them."""
    return translate(glob.replace("[", "[[]"))


_COLUMNS = ("collected", "passed", "deliberate", "missing", "skipped", "unexplained")


def table(rows: dict[str, Counter[str]], by_reason: Counter[Reason]) -> str:
    """Return the table and the reasons as Markdown."""
    lines = [
        "| tests | collected | passed | deliberate difference | missing | skipped by themselves | unexplained |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, counts in {**rows, "all": sum(rows.values(), Counter())}.items():
        share = 100 * counts["passed"] // max(counts["collected"], 1)
        cells = [f"{counts[column]:,}" for column in _COLUMNS]
        cells[1] += f" ({share} %)"
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for kind in CLASSES:
        entries = [(count, reason.why) for reason, count in by_reason.items() if reason.kind == kind]
        if entries:
            lines += ["", f"**{kind[0].upper()}{kind[1:]}** ({sum(count for count, _ in entries):,} tests):", ""]
            merged: Counter[str] = Counter()
            for count, why in entries:
                merged[why] += count
            lines += [f"- {why} ({count:,})" for why, count in merged.most_common()]
    return "\n".join(lines)


def _write_page(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition("<!-- peers -->\n")
    _, end, after = rest.partition("<!-- /peers -->")
    if not found or not end:
        raise SystemExit(f"{PAGE} has no <!-- peers --> section")
    PAGE.write_text(f"{before}{found}{text}\n{end}{after}", encoding="utf-8")


def _show(title: str, ids: Sequence[str], at_most: int = 40) -> None:
    if ids:
        sys.stdout.write(f"{title}: {len(ids)}\n")
        sys.stdout.writelines(f"  {each}\n" for each in ids[:at_most])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the peers' own tests against Trunkline.")
    parser.add_argument("--write-docs", action="store_true", help="write the table into docs/migrating.md")
    parser.add_argument("--only", default="", help="only folders whose name contains this text; nothing is judged")
    parser.add_argument("--reuse", action="store_true", help="read the reports of the last run")
    parser.add_argument("--all-ids", action="store_true", help="list every test without a reason, not only the first")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all suites and print the table; return 1 if the bar is not reached or a test is unexplained."""
    options = _options(arguments)
    FOLDER.mkdir(exist_ok=True)
    _prepare()
    reasons = load_reasons()
    rows: dict[str, Counter[str]] = {}
    by_reason: Counter[Reason] = Counter()
    unexplained: list[str] = []
    ambiguous: list[str] = []
    for suite in SUITES:
        for folder in suite.folders:
            name = f"`{suite.source}` {folder.removeprefix('tests/')}"
            if options.only not in name:
                continue
            reused = options.reuse and _report(suite, folder).exists()
            outcomes = list(_outcomes(suite, _report(suite, folder), _source(suite))) if reused else _run(suite, folder)
            found = sort_out(outcomes, reasons)
            rows[name] = found.counts
            by_reason += found.by_reason
            unexplained += found.unexplained
            ambiguous += found.ambiguous
            sys.stdout.write(f"{name}: {dict(found.counts)}\n")
            sys.stdout.flush()
    text = table(rows, by_reason)
    sys.stdout.write(f"\n{text}\n\n")
    at_most = len(unexplained) if options.all_ids else 40
    _show("without a reason", unexplained, at_most)
    _show("with several reasons", ambiguous, at_most)
    total = sum(rows.values(), Counter())
    (FOLDER / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    if options.only:
        return 0
    if options.write_docs:
        _write_page(text)
    reached = 100 * total["passed"] >= BAR * total["collected"]
    return 0 if reached and not unexplained and not ambiguous else 1


if __name__ == "__main__":
    raise SystemExit(main())
