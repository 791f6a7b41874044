"""``trunkline diff``: what two recordings have not in common, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.support import Cli


def _write(path: Path, *pairs: tuple[str, Any, Any]) -> str:
    """Write a recording of requests and their results."""
    lines = []
    for id, (method, params, result) in enumerate(pairs, 1):
        request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        lines.append({"from": "client", "message": request})
        lines.append({"from": "server", "message": {"jsonrpc": "2.0", "id": id, "result": result}})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


CALL = ("tools/call", {"name": "add", "arguments": {"a": 1}}, {"content": [{"type": "text", "text": "2"}]})


def test_a_changed_result_is_shown_member_by_member(tmp_path: Path, cli: Cli) -> None:
    changed = (*CALL[:2], {"content": [{"type": "text", "text": "3"}], "isError": True})
    one, two = _write(tmp_path / "a", CALL), _write(tmp_path / "b", changed)
    assert cli("diff", one, two) == (
        5,
        "tools/call add\n"
        "  /result/content/0/text\n"
        '    - "2"\n'
        '    + "3"\n'
        "  /result/isError\n"
        "    + true\n"
        "1 request compared, 1 different\n",
        "",
    )


def test_no_line_is_wider_than_80_columns(tmp_path: Path, cli: Cli) -> None:
    long = ("tools/call", {"name": "n" * 200}, {"text": f"{'x' * 300}1{'y' * 300}", "p" * 90: 1})
    other = ("tools/call", {"name": "n" * 200}, {"text": f"{'x' * 300}2{'y' * 300}"})
    outcome = cli("diff", _write(tmp_path / "a", long), _write(tmp_path / "b", other))
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "x1y" in outcome.out


def test_what_could_control_a_terminal_is_shown_as_an_escape(tmp_path: Path, cli: Cli) -> None:
    evil = ("tools/call", {"name": "add", "arguments": {"a": 1}}, {"content": [{"type": "text", "text": "\x1b[2J"}]})
    outcome = cli("diff", _write(tmp_path / "a", CALL), _write(tmp_path / "b", evil))
    assert "\x1b" not in outcome.out


def test_programs_get_one_document(tmp_path: Path, cli: Cli) -> None:
    changed = (*CALL[:2], {"content": [{"type": "text", "text": "3"}]})
    one, two = _write(tmp_path / "a", CALL), _write(tmp_path / "b", changed)
    outcome = cli("diff", one, two, "--json")
    assert (outcome.code, json.loads(outcome.out)) == (
        5,
        {
            "same": False,
            "first": one,
            "second": two,
            "compared": 1,
            "differing": 1,
            "differences": [
                {
                    "request": "tools/call add",
                    "number": 1,
                    "kind": "changed",
                    "path": "/result/content/0/text",
                    "first": "2",
                    "second": "3",
                }
            ],
        },
    )


def test_a_file_that_is_not_there_is_named_also_in_json(tmp_path: Path, cli: Cli) -> None:
    outcome = cli("diff", str(tmp_path / "no"), str(tmp_path / "no"), "--json")
    assert outcome.code == 2
    assert "No such file" in json.loads(outcome.out)["error"]["message"]
