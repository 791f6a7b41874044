"""The tour of the host, walked without anybody in front of it."""

from __future__ import annotations

import pytest

from examples.host_tour.tour import main
from tests.support import run_async


def test_the_tour_shows_servers_consent_review_denial_and_the_trail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    run_async(main(interactive=False), seconds=50)
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
