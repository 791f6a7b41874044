"""Test tools, in addition to ``Client(server)``, which is the whole set-up of most tests.

``FakeClock`` stands still until a test advances it; ``check_link`` checks a transport against the whole contract of a
Link; ``Recorder`` records a conversation and ``replay`` replays it, to check that a server still answers as it did;
``PlayedServer`` is a recording in place of its server, and ``compare`` finds the differences of two recordings.
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
