"""The peers' own tests, from pinned source distributions, run against Trunkline: ``python -m tests.compat.peers``.

The distributions come from the package index into ``.compat`` and are never kept in the repository. The tests run in an
environment without the packages they were written for. The table counts every test of the named folders; a file that
cannot be imported counts with all its tests as missing.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tarfile
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["SUITES", "Suite", "main"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".compat"
PYTHON = FOLDER / "env" / "bin" / "python"
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
    subprocess.run([*pip, "-e", f"{ROOT}[http,auth,cli]", *_NEEDED], check=True)
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


def _run(suite: Suite, folder: str) -> Counter[str]:
    """Run one folder and count how its tests ended."""
    source = _source(suite)
    report = FOLDER / "reports" / f"{suite.source}-{folder.replace('/', '-')}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    options = ["-o", "pythonpath=", "-o", "addopts=", "-o", "log_cli=false", "-o", "filterwarnings=default"]
    command = [str(PYTHON), "-m", "pytest", "-q", "-p", "trunkline.compat.pytest_plugin", "-p", "no:cacheprovider"]
    env = {**os.environ, "TRUNKLINE_COMPAT_MCP": suite.mcp, "TRUNKLINE_COMPAT_FASTMCP": "4.1.2"}
    subprocess.run(
        [
            *command,
            *options,
            "--timeout",
            "10",
            "-n",
            "2",
            "--continue-on-collection-errors",
            "--tb=short",
            f"--junitxml={report}",
            folder,
        ],
        cwd=source,
        env=env,
        stdout=(report.with_suffix(".log")).open("w"),
        stderr=subprocess.STDOUT,
        check=False,
    )
    return _counted(report, source)


def _counted(report: Path, source: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        error = case.find("error")
        if error is not None and "collection failure" in (error.get("message") or ""):
            path = source / (case.get("name") or "").replace(".", "/")
            files = path.rglob("test_*.py") if path.is_dir() else [path.with_suffix(".py")]
            counts["missing"] += sum(map(_tests_in, files))
        elif error is not None or case.find("failure") is not None:
            counts["failed"] += 1
        elif case.find("skipped") is not None:
            counts["skipped"] += 1
        else:
            counts["passed"] += 1
    return counts


def _tests_in(path: Path) -> int:
    """Count the test functions of a file that could not be imported."""
    if not path.exists():
        return 1
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test") for node in nodes
    )


def main() -> int:
    """Run all suites and print the table; return 0, since the table is the result."""
    FOLDER.mkdir(exist_ok=True)
    _prepare()
    rows: dict[str, dict[str, int]] = {}
    total: Counter[str] = Counter()
    for suite in SUITES:
        for folder in suite.folders:
            counts = _run(suite, folder)
            total += counts
            rows[f"{suite.source} {folder}"] = dict(counts)
            _print(f"{suite.source} {folder}", counts)
    _print("all", total)
    (FOLDER / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    return 0


def _print(name: str, counts: Counter[str]) -> None:
    everything = sum(counts.values()) or 1
    share = 100 * counts["passed"] / everything
    sys.stdout.write(
        f"{name:40} collected {everything:5}  passed {counts['passed']:5}  failed {counts['failed']:5}  "
        f"missing {counts['missing']:5}  skipped {counts['skipped']:4}  {share:.0f} %\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
