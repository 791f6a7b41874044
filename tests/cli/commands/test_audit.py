"""The audit trail on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Cli, Outcome
from trunkline.host.audit.trail import AuditEntry, AuditTrail


@pytest.fixture
def trail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trail of this user, with three entries."""
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    path = tmp_path / "audit.jsonl"
    times = iter([0.0, 60.0, 120.0])
    made = AuditTrail.open(path, clock=lambda: 4e9 + next(times))
    made.record(
        AuditEntry(act_id="1", stage="begun", server="files", name="read", arguments={"path": "/a"}, by="policy")
    )
    made.record(AuditEntry(act_id="1", stage="ended", server="files", name="read", outcome="ok", latency_ms=1.5))
    made.record(
        AuditEntry(act_id="2", stage="denied", server="sh\x1b[31m", name="run\nit", outcome="denied", effect="deny")
    )
    made.close()
    return path


def test_an_unchanged_trail_verifies(trail: Path, cli: Cli) -> None:
    outcome = cli("audit", "verify")
    last = json.loads(trail.read_bytes().splitlines()[-1])["hash"]
    assert outcome == Outcome(0, f"{trail}: intact, 3 entries; the last is 3, {last}\n", "")


def test_a_trail_that_was_changed_ends_with_5(trail: Path, cli: Cli) -> None:
    trail.write_bytes(trail.read_bytes().replace(b'"/a"', b'"/b"'))
    outcome = cli("audit", "verify", str(trail))
    assert outcome.code == 5
    assert outcome.out == (
        f"{trail}: NOT intact after 0 good entries: {trail}:1: the line was changed: its hash does not match\n"
    )


def test_a_missing_end_stands_in_no_line(trail: Path, cli: Cli) -> None:
    trail.write_bytes(b"")
    outcome = cli("audit", "verify")
    reason = "the end is missing: the trail had reached entry 3, but ends at 0"
    assert outcome.out == f"{trail}: NOT intact after 0 good entries: {reason}\n"


def test_the_proof_as_json(trail: Path, cli: Cli) -> None:
    found = cli("audit", "verify", "--json").json
    assert (found["ok"], found["entries"], found["seq"]) == (True, 3, 3)
    trail.write_bytes(trail.read_bytes()[1:])
    outcome = cli("audit", "verify", "--json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["ok"], found["first_bad_line"], found["file"]) == (5, False, 1, str(trail))


def test_an_anchor_must_be_in_the_trail(trail: Path, cli: Cli) -> None:
    anchor = json.loads(trail.read_bytes().splitlines()[0])["hash"]
    assert cli("audit", "verify", "--anchor", anchor).code == 0
    assert cli("audit", "verify", "--anchor", "0" * 64).code == 5


def test_the_rest_of_a_trail_can_be_verified(trail: Path, cli: Cli) -> None:
    trail.write_bytes(b"".join(trail.read_bytes().splitlines(keepends=True)[1:]))
    assert cli("audit", "verify").code == 5
    assert cli("audit", "verify", "--partial").code == 0


@pytest.mark.parametrize("verb", ["verify", "query"])
def test_no_trail_is_a_wrong_file(verb: str, tmp_path: Path, cli: Cli) -> None:
    ended = cli("audit", verb, str(tmp_path / "none.jsonl"))
    assert (ended.code, "there is no audit trail" in ended.err) == (2, True)


def test_entries_are_shown_as_a_table_that_cannot_control_the_terminal(trail: Path, cli: Cli) -> None:
    lines = cli("audit", "query").out.splitlines()
    assert lines[0].split() == ["SEQ", "TIME", "STAGE", "WHAT", "FOR", "RULE", "BY", "OUTCOME", "ARGUMENTS"]
    assert lines[1].endswith('{"path":"/a"}')
    assert "ok 1.5 ms" in lines[2]
    assert "sh\\x1b[31m/run it" in lines[3]
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), [1, 2, 3]),
        (("--server", "fi*"), [1, 2]),
        (("--tool", "read", "--outcome", "ok"), [2]),
        (("--denied",), [3]),
        (("--effect", "deny"), [3]),
        (("--principal", "ann"), []),
        (("--session", "s"), []),
        (("--limit", "1"), [3]),
        (("--since", "1h"), [1, 2, 3]),
        (("--until", "1h"), []),
        (("--since", "2096-10-02T07:07:00+00:00"), [2, 3]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_entries_are_found(options: tuple[str, ...], found: list[int], trail: Path, cli: Cli) -> None:
    outcome = cli("audit", "query", "--json", *options)
    assert [each["seq"] for each in json.loads(outcome.out)["entries"]] == found


def test_an_empty_search_result_is_reported(trail: Path, cli: Cli) -> None:
    assert cli("audit", "query", "--server", "x") == Outcome(0, "", "trunkline: no matching entries\n")


def test_a_line_that_is_not_an_entry_is_reported(trail: Path, cli: Cli) -> None:
    trail.write_bytes(trail.read_bytes() + b"nonsense\n")
    outcome = cli("audit", "query", "--limit", "1", "--json")
    assert outcome.err == f"trunkline: 1 lines are not entries, the first is {trail}:4; run: trunkline audit verify\n"


@pytest.mark.parametrize("when", ["yesterday", "5", "1y", "-3h", "99999-01-01"])
def test_an_invalid_time_is_rejected(when: str, trail: Path, cli: Cli) -> None:
    ended = cli("audit", "query", "--since", when)
    assert (ended.code, "neither an age such as 30m" in ended.err) == (1, True)
