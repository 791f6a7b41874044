"""What users test with, beside ``Client(server)``, which is the whole set-up of most tests.

``FakeClock`` stands still until a test moves it; ``check_link`` holds a transport to every promise of a Link;
``Recorder`` writes a conversation down and ``replay`` plays it again, to see whether a server still answers as it did.
"""

from __future__ import annotations

from trunkline.testing.clock import FakeClock, FakeTimer
from trunkline.testing.links import LinkRecorder, check_link
from trunkline.testing.recordings import Entry, Recorder, Recording, Side
from trunkline.testing.replays import Answer, Replay, replay

__all__ = [
    "Answer",
    "Entry",
    "FakeClock",
    "FakeTimer",
    "LinkRecorder",
    "Recorder",
    "Recording",
    "Replay",
    "Side",
    "check_link",
    "replay",
]
