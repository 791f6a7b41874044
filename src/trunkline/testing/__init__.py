"""What users test with, beside ``Client(server)``, which is the whole set-up of most tests.

``FakeClock`` stands still until a test moves it; ``check_link`` holds a transport to every promise of a Link;
``Recorder`` writes a conversation down and ``replay`` plays it again, to see whether a server still answers as it did;
``PlayedServer`` is a recording in the place of its server, and ``compare`` finds what two recordings do not share.
"""

from __future__ import annotations

from trunkline.host.record.diff import Comparison, Difference, compare
from trunkline.host.record.playing import PlayedServer
from trunkline.testing.clock import FakeClock, FakeTimer
from trunkline.testing.links import LinkRecorder, check_link
from trunkline.testing.recordings import Entry, Head, Recorder, Recording, Sender, Side
from trunkline.testing.replays import Answer, Replay, replay

__all__ = [
    "Answer",
    "Comparison",
    "Difference",
    "Entry",
    "FakeClock",
    "FakeTimer",
    "Head",
    "LinkRecorder",
    "PlayedServer",
    "Recorder",
    "Recording",
    "Replay",
    "Sender",
    "Side",
    "check_link",
    "compare",
    "replay",
]
