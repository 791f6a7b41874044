"""The tour of the host, walked without anybody in front of it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from examples.host_tour.start import main as start
from examples.host_tour.tour import main
from tests.support import run_async

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_tour_shows_servers_consent_review_denial_and_the_trail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    run_async(main(interactive=False), seconds=120)
    shown = capsys.readouterr().out
    wanted = (
        "notes: ready",
        "weather: ready",
        "May notes/write_note be called?",
        "the note now: - umbrella: yes",
        "weather asks a model",
        "denied: Notes are not deleted here.",
        "begun  notes/write_note                ask    by user",
        "the chain is intact",
    )
    assert [text for text in wanted if text not in shown] == []


def test_without_a_terminal_the_start_is_the_tour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[bool] = []

    async def walk(*, interactive: bool) -> None:
        walked.append(interactive)

    monkeypatch.setattr("examples.host_tour.start.walk_the_tour", walk)
    run_async(start(interactive=False))
    assert walked == [False]


def test_on_a_terminal_the_start_ends_with_the_address_of_a_console() -> None:
    pytest.importorskip("uvicorn")
    ours, theirs = pty.openpty()
    # A browser that does nothing.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "BROWSER": "true", "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.host_tour.start"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=ROOT,
        env=environ,
    )
    os.close(theirs)
    try:
        found = re.search(r"(http://127[.]0[.]0[.]1:[0-9]+)/#token=([0-9A-Za-z_-]+)\s", _seen(ours, "#token="))
        assert found is not None
        request = Request(f"{found[1]}/api/state", headers={"Authorization": f"Bearer {found[2]}"})
        with urlopen(request, timeout=120) as response:
            state = json.load(response)
        assert len(state["servers"]) == 18
        # Its folder is shown as it is, not masked as the value of a variable.
        [command] = [server["command"] for server in state["servers"] if server["name"] == "filesystem"]
        assert command.endswith("/workspace/project")
        os.killpg(process.pid, signal.SIGINT)
        assert "What next" in _seen(ours, "make tour")
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _seen(terminal: int, wanted: str) -> str:
    """Read what is shown up to the line with a text."""
    text, until = "", time.monotonic() + 120
    while time.monotonic() < until and wanted not in text.rpartition("\n")[0]:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                text += os.read(terminal, 65536).decode("utf-8", "replace")
            except OSError:
                break
    return text
