"""Test tools, in addition to ``Client(server)``, which is the whole set-up of most tests.

``FakeClock`` stands still until a test advances it; ``check_link`` checks a transport against the whole contract of a
Link; ``Recorder`` records a conversation and ``replay`` replays it, to check that a server still answers as it did;
``ReplayServer`` is a recording in place of its server, and ``compare`` finds the differences of two recordings. Import
from here: the modules inside are not part of the public API, whatever their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.devtools.recording.diff import Comparison, Difference, compare
    from trunkline.devtools.recording.replay import ReplayServer
    from trunkline.testing.clock import FakeClock, FakeTimer
    from trunkline.testing.link_check import RecordingReceiver, check_link
    from trunkline.testing.recordings import (
        Recorder,
        Recording,
        RecordingEntry,
        RecordingHeader,
        Replay,
        ReplayedAnswer,
        Sender,
        Side,
        replay,
    )

__all__ = [
    "Comparison",
    "Difference",
    "FakeClock",
    "FakeTimer",
    "Recorder",
    "Recording",
    "RecordingEntry",
    "RecordingHeader",
    "RecordingReceiver",
    "Replay",
    "ReplayServer",
    "ReplayedAnswer",
    "Sender",
    "Side",
    "check_link",
    "compare",
    "replay",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.devtools.recording.diff": ("Comparison", "Difference", "compare"),
            "trunkline.devtools.recording.replay": ("ReplayServer",),
            "trunkline.testing.clock": ("FakeClock", "FakeTimer"),
            "trunkline.testing.link_check": ("RecordingReceiver", "check_link"),
            "trunkline.testing.recordings": (
                "Recorder",
                "Recording",
                "RecordingEntry",
                "RecordingHeader",
                "Replay",
                "ReplayedAnswer",
                "Sender",
                "Side",
                "replay",
            ),
        },
    )
