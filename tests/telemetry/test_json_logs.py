"""Log lines as JSON: the request and the trace of each, secrets masked, from the command line and the environment."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from trunkline import Client
from trunkline.telemetry.json_logs import NOTICES, JsonFormatter

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"

PROGRAM = """
import logging
from trunkline import Server

server = Server("tiny")
log = logging.getLogger("shop")

@server.tool
async def buy(what: str) -> str:
    log.info("bought %s", what)
    return what

@server.tool
def sell(what: str) -> str:
    log.warning("sold %s", what)
    return what

if __name__ == "__main__":
    server.run()
"""


def record(message: str, *args: object, name: str = "shop", **more: Any) -> dict[str, Any]:
    made = logging.LogRecord(name, logging.WARNING, __file__, 1, message, args, more.get("exc_info"))
    line = JsonFormatter(lambda text: text.replace("known-secret", "***")).format(made)
    assert "\n" not in line
    return dict(json.loads(line))


def test_a_line_has_time_level_logger_and_message() -> None:
    found = record("a %s\nb", "é")
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "warning", "logger": "shop", "message": "a é\nb"}


def test_secrets_are_masked_in_messages_and_exceptions() -> None:
    try:
        raise ValueError("known-secret and password=hunter2hunter2")
    except ValueError:
        found = record("known-secret, token sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", exc_info=sys.exc_info())
    assert "known-secret" not in json.dumps(found)
    assert "hunter2" not in found["exception"]
    assert "abcdefghijkl" not in found["message"]


def test_a_notice_is_written_as_it_is() -> None:
    # A generated token is shown once, there.
    text = "token, generated for this run: " + "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
    assert record("%s", text, name=NOTICES)["message"] == text


async def _lines(command: list[str], *, env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Call both tools of a server process; return the lines on its stderr."""
    import shlex

    stderr = Path(command[-1]).with_suffix(".log")
    shell = f"exec {shlex.join(command)} 2> {shlex.quote(str(stderr))}"
    async with Client(["/bin/sh", "-c", shell], env=env) as client:
        meta = {"traceparent": PARENT}
        for name in ("buy", "sell"):
            await client.request("tools/call", {"name": name, "arguments": {"what": "tea"}, "_meta": meta})
    text = await asyncio.to_thread(stderr.read_text, encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("command", "chosen"),
    [(["-m", "trunkline", "run", "--log-format", "json"], {}), ([], {"TRUNKLINE_LOG_FORMAT": "json"})],
    ids=["option of the command line", "environment of an own program"],
)
async def test_lines_of_tools_name_their_request_and_trace(
    command: list[str], chosen: dict[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "tiny.py"
    program.write_text(PROGRAM, encoding="utf-8")
    lines = await _lines([sys.executable, *command, str(program)], env={**os.environ, **chosen})
    by_message = {line["message"]: line for line in lines}
    for message in ("bought tea", "sold tea"):
        line = by_message[message]
        assert (line["method"], line["trace_id"], line["logger"]) == ("tools/call", TRACE, "shop")
        assert line["request_id"]
