"""The faults, one class each, by the name in ``FAULTS``: servers that die, hang, stop reading or go their own ways.

Those that lie about what they have and answer are in ``lying``, those that write too much in ``flooding``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from tests.faults.programs.flooding import FLOODING
from tests.faults.programs.honest import Honest
from tests.faults.programs.lying import LYING

__all__ = ["FAULTS", "main"]

_FOR_EVER = 3600.0


class HangsInCall(Honest):
    """Never answers some of its calls, and all others."""

    def answer(self, id: Any, call: str, value: str) -> None:
        """Answer, or not."""
        if self.chance.random() < 0.6:
            super().answer(id, call, value)


class TurnsDeaf(Honest):
    """Stops reading and answering after a few calls, without ending."""

    def answer(self, id: Any, call: str, value: str) -> None:
        """Answer, and perhaps never again."""
        super().answer(id, call, value)
        if self.calls >= 3:
            time.sleep(_FOR_EVER)


class ReadsSlowly(Honest):
    """Takes its time over every few bytes."""

    def read(self) -> None:
        """Wait, then read."""
        time.sleep(0.05)
        super().read()


class HangsAtStart(Honest):
    """Reads everything and answers nothing."""

    def take(self, message: dict[str, Any]) -> None:
        """Ignore it."""


class HangsInList(Honest):
    """Connects, and never lists its tools."""

    def on_tools_list(self, id: Any, params: dict[str, Any]) -> None:
        """Do nothing."""


class CrashesAtStart(Honest):
    """Ends before it reads anything, with a reason."""

    def run(self) -> None:
        """End."""
        sys.stderr.write("cannot open the database\n")
        sys.exit(3)


class CrashesInCall(Honest):
    """Ends in some of its calls, before or after it has executed them."""

    def execute(self, call: str) -> None:
        """Execute, or end."""
        fate = self.chance.random()
        if fate < 0.05:
            os._exit(7)
        super().execute(call)
        if fate < 0.10:
            os.kill(os.getpid(), signal.SIGKILL)


class EndsInAnswer(Honest):
    """Ends when half of an answer is written."""

    def write(self, data: bytes) -> None:
        """Write, or write half and end."""
        if self.calls and self.chance.random() < 0.08:
            os.write(1, data[: len(data) // 2])
            os._exit(0)
        super().write(data)


class WillNotEnd(Honest):
    """Serves well, but ends neither with its input nor by a polite signal."""

    def run(self) -> None:
        """Serve, and stay."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        super().run()
        time.sleep(_FOR_EVER)


class HasChildren(Honest):
    """Serves well, and has children in its group that ignore polite signals and hold its pipes."""

    def run(self) -> None:
        """Start them, and serve."""
        for _ in range(2):
            if os.fork() == 0:
                _stay()
        super().run()


class HasRunaways(Honest):
    """Serves well, and starts processes that leave its group and its session."""

    def run(self) -> None:
        """Start them, and serve."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                _stay()
            os._exit(0)
        os.wait()
        super().run()


def _stay() -> None:
    """Outlive everything but SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(_FOR_EVER)
    os._exit(0)


FAULTS: dict[str, type[Honest]] = {
    "honest": Honest,
    "hangs-in-call": HangsInCall,
    "turns-deaf": TurnsDeaf,
    "reads-slowly": ReadsSlowly,
    "hangs-at-start": HangsAtStart,
    "hangs-in-list": HangsInList,
    "crashes-at-start": CrashesAtStart,
    "crashes-in-call": CrashesInCall,
    "ends-in-answer": EndsInAnswer,
    "will-not-end": WillNotEnd,
    "has-children": HasChildren,
    "has-runaways": HasRunaways,
    **FLOODING,
    **LYING,
}


def main(arguments: list[str]) -> None:
    """Run one; the arguments are kind, name, era, revision, ledger and seed."""
    kind, name, era, revision, ledger, seed = arguments
    # Each life of a server has other luck, else one that dies at once dies at once for ever.
    luck = f"{seed} {os.getpid()}"
    FAULTS[kind](name, revision=revision, stateless=era == "stateless", ledger=ledger, seed=luck).run()


if __name__ == "__main__":
    main(sys.argv[1:])
