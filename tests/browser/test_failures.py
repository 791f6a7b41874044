"""What is kept of a journey that fails, for the next person who reads the report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.browser import support
from tests.browser.support import journey, needs_chromium, showing, surfing, until

pytestmark = needs_chromium

TIME = f"{sys.executable} -m trunkline_servers.time"


async def _fail(home: Path) -> None:
    async with showing("inspect", TIME, "--no-open", home=home) as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await window.page.evaluate("console.warn('said by the page')")
        await until(lambda: window.lines, "the console of the page has a line")
        with (home / "stderr").open("a") as log:
            log.write("said by the command\n")
        raise AssertionError("on purpose")


@journey()
async def test_a_failure_keeps_the_page_its_console_and_the_stderr_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(support, "ARTEFACTS", tmp_path / "kept")
    home = tmp_path / "home"
    with pytest.raises(AssertionError, match="on purpose"):
        await _fail(home)
    files = {file.name.rpartition("command-")[2]: file for file in (tmp_path / "kept").iterdir()}
    assert set(files) == {"0.png", "0.console.txt", "inspect.stderr.txt"}
    assert "said by the page" in files["0.console.txt"].read_text()
    assert "said by the command" in files["inspect.stderr.txt"].read_text()
    assert files["0.png"].read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert all(str(file) in printed for file in files.values())
    assert "said by the command" in printed
