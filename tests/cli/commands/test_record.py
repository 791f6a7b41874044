"""``trunkline record``: the server behind it works as it does without it, and everything that is said is written."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.hosted import demo_entry, write_config
from tests.cli.recorded import ERAS, TALKER, said_by, trunkline_command, use_everything, watched
from tests.cli.support import DEMO, Cli, Served, command
from tests.support import run_async
from trunkline import Client
from trunkline.devtools.recording.exchanges import label, read_exchanges
from trunkline.devtools.recording.format import Recording

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}


def _record_stdio(path: Path, revision: str) -> list[Any]:
    return use_everything(trunkline_command("record", TALKER, "-o", str(path)), revision)


def _record_stdio_to_url(path: Path, revision: str) -> list[Any]:
    with watched("run", TALKER, "--http", "0") as (_, url):
        return use_everything(trunkline_command("record", url, "-o", str(path)), revision)


def _record_http(path: Path, revision: str) -> list[Any]:
    with (
        watched("run", TALKER, "--http", "0") as (_, url),
        watched("record", url, "-o", str(path), "--http", "0") as (_, front),
    ):
        return use_everything(front, revision)


#: Each way of recording, and each era once with HTTP.
WAYS = [
    pytest.param((_record_stdio, ERAS[1]), id="stdio to a process"),
    pytest.param((_record_stdio_to_url, ERAS[0]), id="stdio to a URL"),
    pytest.param((_record_http, ERAS[0]), id="HTTP to a URL"),
    pytest.param((_record_http, ERAS[1]), id="HTTP to a URL, stateless"),
]


class Made(NamedTuple):
    """A recording that a test looks at, and what whoever was recorded saw."""

    revision: str
    seen: list[Any]
    path: Path


@pytest.fixture(scope="module", params=WAYS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One recording for each way and era; all tests look at the same."""
    way, revision = request.param
    path = tmp_path_factory.mktemp("recorded") / "talk.jsonl"
    return Made(revision, way(path, revision), path)


def test_a_recorded_server_works_as_it_does_alone(made: Made) -> None:
    assert made.seen == list(said_by)


def test_every_message_is_recorded(made: Made) -> None:
    recording = Recording.load(made.path)
    found = read_exchanges(recording)
    listed = [len(each.answer["result"]["tools"]) for each in found if each.answer and each.method == "tools/list"]
    hung = next(each for each in found if label(each.message) == "tools/call hang")
    asked = [question.request["method"] for each in found for question in each.questions]
    rounds = [each.answer["result"].get("resultType") for each in found if each.answer and each.id is not None]
    notices = [entry.json.get("method") for entry in recording.sent_by("server") if entry.json]
    assert (listed[0], listed[-1]) == (5, 6)
    assert hung.answer is None
    assert "elicitation/create" in asked or "input_required" in rounds
    assert (notices.count("notifications/progress"), "notifications/tools/list_changed" in notices) == (3, True)
    assert (recording.revision, recording.head is not None) == (made.revision, True)


def test_credentials_are_not_in_the_file_and_the_owner_alone_can_read_it(made: Made) -> None:
    text = made.path.read_text()
    assert [secret for secret in ("hunter22", "abcdefghijklmnop") if secret in text] == []
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    headers = [entry.headers for entry in Recording.load(made.path).entries if entry.headers]
    sessions = [each["mcp-session-id"] for each in headers if "mcp-session-id" in each]
    assert set(sessions) <= {"***"}


def test_a_schema_with_a_password_in_it_is_kept_whole(made: Made) -> None:
    listed = next(each for each in read_exchanges(Recording.load(made.path)) if each.method == "tools/list")
    assert listed.answer is not None
    login = next(tool for tool in listed.answer["result"]["tools"] if tool["name"] == "login")
    assert login["inputSchema"]["properties"]["password"] == {"type": "string"}


def test_each_message_has_its_time(made: Made) -> None:
    times = [entry.at for entry in Recording.load(made.path).entries]
    assert times == sorted(time for time in times if time is not None)


# --- one way or another -----------------------------------------------------------------------------------------------


def test_a_request_that_is_piped_in_is_answered(tmp_path: Path) -> None:
    code, out, err = command("record", DEMO, "-o", str(tmp_path / "talk.jsonl"), stdin=f"{PING}\n")
    assert (code, json.loads(out), err) == (0, PONG, "")


def test_lines_that_are_no_messages_pass_and_are_noted(tmp_path: Path) -> None:
    script = "import sys\nfor line in sys.stdin: print('echo', line.strip(), flush=True)"
    path = tmp_path / "talk.jsonl"
    (tmp_path / "parrot").write_text(script)
    code, out, _ = command("record", f"python3 {tmp_path / 'parrot'}", "-o", str(path), stdin="{nonsense\n")
    recording = Recording.load(path)
    notes = [entry.note or "" for entry in (*recording.sent_by("client"), *recording.sent_by("server"))]
    assert (code, out) == (0, "echo {nonsense\n")
    assert [note.rpartition(": ")[2] for note in notes] == ["{nonsense", "echo {nonsense"]


def test_the_server_sees_the_environment_of_the_recorder_and_its_stderr_is_passed_on(tmp_path: Path) -> None:
    script = "import os, sys\nprint(os.environ['GREETING'])\nsys.stderr.write('aside\\n')"
    (tmp_path / "shout").write_text(script)
    outcome = command(
        "record", f"python3 {tmp_path / 'shout'}", "-o", str(tmp_path / "a.jsonl"), env={"GREETING": "hello"}
    )
    assert (outcome.out, outcome.err) == ("hello\n", "aside\n")


def test_a_server_that_dies_ends_the_recorder_with_the_reason(tmp_path: Path) -> None:
    call = trunkline_command("record", DEMO, "-o", str(tmp_path / "talk.jsonl"))
    outcome = command("call", " ".join(call), "die")
    assert outcome.code == 4
    assert "last words" in outcome.err
    assert "exited with status 3" in (Recording.load(tmp_path / "talk.jsonl").entries[-1].note or "")


def test_a_file_that_is_no_recording_is_not_overwritten(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    outcome = cli("record", DEMO, "-o", str(path))
    assert (outcome.code, path.read_text()) == (2, "{}")
    assert "is not a recording" in outcome.err


def test_a_server_that_is_started_is_not_served_over_http(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("record", DEMO, "-o", str(tmp_path / "a.jsonl"), "--http", "0")
    assert outcome.code == 1
    assert "record that URL" in outcome.err


def test_recording_rejects_an_address_that_other_machines_can_reach(cli: Cli, tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/mcp"
    outcome = cli("record", url, "-o", str(tmp_path / "a.jsonl"), "--http", "0.0.0.0:0")
    assert outcome.code == 1
    assert "is reachable from other machines" in outcome.err


def test_a_name_of_a_configuration_is_recorded_and_its_secrets_are_hidden(tmp_path: Path) -> None:
    entry = demo_entry()
    entry["env"] = {**entry["env"], "DEMO_TOKEN": "s3cret-value"}
    config = write_config(tmp_path / "mcp.json", {"demo": entry})
    path = tmp_path / "talk.jsonl"
    recorder = " ".join(trunkline_command("record", "demo", "-c", str(config), "-o", str(path)))
    outcome = command("call", recorder, "variables", "name=DEMO_TOKEN")
    assert outcome.out.startswith("s3cret-value")
    assert "s3cret-value" not in path.read_text()


def test_a_projects_server_that_is_not_approved_is_not_recorded(tmp_path: Path) -> None:
    write_config(tmp_path / ".mcp.json", {"demo": demo_entry()})
    outcome = command(
        "record", "demo", "-o", "talk.jsonl", cwd=tmp_path, env={"TRUNKLINE_STATE_DIR": str(tmp_path / "state")}
    )
    assert outcome.code == 6
    assert "trust approve" in outcome.err


def test_a_recorder_over_http_refuses_pages_of_others_and_sigterm_ends_it_with_a_whole_file(
    tmp_path: Path, demo: Served
) -> None:
    path = tmp_path / "talk.jsonl"
    with watched("record", demo.url, "-o", str(path), "--http", "0") as (process, front):
        with pytest.raises(HTTPError) as caught:
            urlopen(Request(front, data=PING.encode(), headers={"Origin": "https://evil.example"}), timeout=120)
        caught.value.close()
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)
    assert (caught.value.code, code, Recording.load(path).cut) == (403, 0, False)


async def _list_over_sse(target: Any) -> int:
    async with Client(target, revision="2024-11-05") as client:
        return len(await client.list_tools())


def test_the_oldest_http_transport_is_recorded(tmp_path: Path, demo: Served) -> None:
    one, other = tmp_path / "stdio.jsonl", tmp_path / "http.jsonl"
    tools = run_async(_list_over_sse(trunkline_command("record", f"{demo.url}/sse", "-o", str(one))))
    with watched("record", f"{demo.url}/sse", "-o", str(other), "--http", "0") as (_, front):
        assert run_async(_list_over_sse({"url": front, "type": "sse"})) == tools
    assert "HTTP+SSE" in one.read_text()
    assert "tools/list" in [each.method for each in read_exchanges(Recording.load(other))]


def test_a_recorder_that_is_killed_leaves_all_that_was_said(tmp_path: Path) -> None:
    import subprocess

    path = tmp_path / "talk.jsonl"
    words = trunkline_command("record", DEMO, "-o", str(path))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{PING}\n".encode())
        process.stdin.flush()
        process.stdout.readline()
        process.kill()
    assert [entry.json.get("result") for entry in Recording.load(path).sent_by("server")] == [{}]
