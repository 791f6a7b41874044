"""``trunkline completion``: what is proposed, and that the scripts propose it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trunkline
from tests.cli.hosted import demo_entry, leaving, write_config
from tests.cli.support import DEMO, Cli, Served
from trunkline.cli import completion

HOSTILE = """\
from typing import Literal
from trunkline import Server

server = Server("hostile")


@server.tool
def pick(way: Literal["a;b", "c"]) -> str:
    return way


for uri in ("file:///;touch$IFS", "file:///$(touch&x)"):
    server.add_resource(uri, "text")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo: Served) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    # The machine that runs the tests may be busy.
    monkeypatch.setattr(completion, "_DEADLINE_SECONDS", 20.0)
    write_config(work / "servers.json", {"demo": {"url": demo.url}, "quiet": leaving(work / "started")})
    return work


def proposed(cli: Cli, *words: str) -> list[str]:
    code, out, err = cli("completion", "--query", "--", *words)
    assert (code, err) == (0, "")
    return [line.partition("\t")[0] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("li",), ["list", "listen"], id="commands"),
        pytest.param(("grants", "re"), ["revoke"], id="commands of a group"),
        pytest.param(("call", "x", "--ti"), ["--timeout"], id="options"),
        pytest.param(("serve", "--approval", ""), ["client", "ask", "deny"], id="values of an option"),
        pytest.param(("list", "t"), ["tools", "templates"], id="kinds"),
        pytest.param(("call", "--policy", ""), [":files"], id="a file as the value of an option"),
        pytest.param(("call", "-c", "servers.json", "q"), ["quiet", ":files"], id="servers"),
        pytest.param(("call", "--config=servers.json", "q"), ["quiet", ":files"], id="servers, written with ="),
        pytest.param(("call", "-c", "missing.json", "q"), [":files"], id="a configuration that is missing"),
        pytest.param(("call", "-c", "servers.json", "quiet", ""), [], id="tools that are not known"),
        pytest.param(("call", "http://127.0.0.1:9/mcp", ""), [], id="tools of a URL"),
        pytest.param(("call", DEMO, "ad"), ["add"], id="tools of a file"),
        pytest.param(("call", DEMO, "add", ""), ["a=", "b="], id="arguments"),
        pytest.param(("call", DEMO, "add", "a=1", ""), ["b="], id="arguments that are left"),
        pytest.param(("get", DEMO, "gre"), ["greet"], id="prompts"),
        pytest.param(("run", ""), [":files"], id="files"),
        pytest.param(("status", ""), [], id="no argument"),
        pytest.param(("nonsense", "x"), [], id="nonsense"),
    ],
)
def test_what_may_follow(words: tuple[str, ...], expected: list[str], folder: Path, cli: Cli) -> None:
    assert proposed(cli, *words) == expected
    assert not (folder / "started").exists()


def test_the_tools_of_a_configured_server_come_from_its_last_run(folder: Path, cli: Cli) -> None:
    assert proposed(cli, "call", "-c", "servers.json", "demo", "ec") == []
    assert cli("list", "tools", "demo", "-c", "servers.json").code == 0
    assert proposed(cli, "call", "-c", "servers.json", "demo", "ec") == ["echo"]
    assert proposed(cli, "call", "-c", "servers.json", "demo/ec") == ["demo/echo", ":files"]
    assert proposed(cli, "call", "-c", "servers.json", "demo", "echo", "") == ["text="]


def test_resource_templates_are_no_tools(folder: Path, cli: Cli) -> None:
    source = """
from trunkline import Server
server = Server("beds")

@server.tool
def dig() -> str: return ""

@server.resource("bed://{name}")
def bed(name: str) -> str: return name

@server.prompt
def advise() -> str: return ""
"""
    (folder / "beds.py").write_text(source)
    write_config(
        folder / "mine.json", {"beds": {"command": sys.executable, "args": ["-m", "trunkline", "run", "beds.py"]}}
    )
    assert cli("list", "tools", "beds", "-c", "mine.json").code == 0
    assert proposed(cli, "call", "-c", "mine.json", "beds", "") == ["dig"]
    assert proposed(cli, "get", "-c", "mine.json", "beds", "") == ["advise"]
    assert proposed(cli, "read", "-c", "mine.json", "beds", "") == ["bed://{name}"]
    assert proposed(cli, "complete", "-c", "mine.json", "beds", "") == ["advise", "bed://{name}"]


def test_a_file_that_hangs_delays_no_one(folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(completion, "_DEADLINE_SECONDS", 0.5)
    (folder / "hangs.py").write_text("import time\ntime.sleep(60)\n")
    assert proposed(cli, "call", "hangs.py", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, cli: Cli) -> None:
    code, out, _ = cli("completion", shell)
    assert code == 0
    assert "completion --query --" in out
    done = (
        subprocess.run([shell, "-n"], input=out, text=True, capture_output=True, check=False) if _has(shell) else None
    )
    assert done is None or (done.returncode, done.stderr) == (0, "")


def _has(shell: str) -> bool:
    import shutil

    return shutil.which(shell) is not None


def test_the_help_says_where_the_script_goes(cli: Cli) -> None:
    page = cli("completion", "--help").out
    for place in ("bash-completion/completions/trunkline", "_trunkline", "fish/completions/trunkline.fish"):
        assert place in page


@pytest.mark.skipif(not _has("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trunkline call demo add -c servers.json ", ["a=", "b="]),
        ("trunkline call --config=servers.json dem", ["demo"]),
        ("trunkline run we", ["weather file.py"]),
    ],
)
def test_bash_proposes_it(line: str, expected: list[str], folder: Path, cli: Cli) -> None:
    assert cli("list", "tools", "demo", "-c", "servers.json").code == 0
    (folder / "weather file.py").touch()
    assert completed_by_bash(line, folder) == expected


@pytest.mark.skipif(not _has("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trunkline read hostile.py file:///", [r"///\;touch\$IFS", r"///\$\(touch\&x\)"]),
        ("trunkline call hostile.py pick way=", [r"a\;b", "c"]),
    ],
)
def test_bash_quotes_what_a_server_named(line: str, expected: list[str], folder: Path) -> None:
    """Bash inserts proposals as they are, so that a name such as ``x;command`` would be run with the next Enter."""
    (folder / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    assert completed_by_bash(line, folder) == expected


@pytest.mark.skipif(not _has("bash"), reason="there is no bash")
def test_bash_omits_what_it_would_have_to_quote_beside_file_names(folder: Path) -> None:
    """Readline quotes these itself, but not every character: a ``$`` stays."""
    write_config(folder / "servers.json", {"plain": demo_entry(), "pl$HOME": demo_entry()})
    assert completed_by_bash("trunkline call --config=servers.json pl", folder) == ["plain"]


def completed_by_bash(line: str, folder: Path) -> list[str]:
    """Return what bash proposes at the end of a line."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "trunkline"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trunkline "$@"\n')
    program.chmod(0o755)
    script = f"""
source <(trunkline completion bash)
COMP_LINE={line!r} COMP_POINT={len(line)} _trunkline
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    environment: dict[str, Any] = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(trunkline.__file__).parents[1]),
    }
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
