"""The server side of stdio: messages over the standard streams of the process.

``StdioLink.claim`` moves the real input and output to private descriptors and puts the null device and stderr in their
place. Other code in the process (a ``print`` in a handler, a C library, a child process that inherits the streams) can
then neither write to the transport nor read from it. The claim lasts as long as the process.
"""

from __future__ import annotations

import os
import sys

from trunkline.errors import LinkError
from trunkline.protocol.caller import STDIO
from trunkline.protocol.limits import Limits
from trunkline.transports.pipes import PipeLink

__all__ = ["StdioLink"]

_LIMITS = Limits()


class StdioLink(PipeLink):
    """Carries messages over the standard input and output that the process was started with."""

    owns_process = True

    @classmethod
    def claim(cls, limits: Limits = _LIMITS) -> StdioLink:
        """Move the standard streams to private descriptors, out of reach of other code in the process.

        Raises:
            LinkError: the process was started without a standard input or output.
        """
        # Asked of the interpreter, not of the descriptors: a closed 0 or 1 may be another file's number by now.
        for stream, name in ((sys.__stdin__, "input"), (sys.__stdout__, "output")):
            if stream is None:
                raise LinkError(f"the standard {name} is closed: a stdio server needs both streams")
        read_fd, write_fd = os.dup(0), os.dup(1)
        _replace(0, os.O_RDONLY)
        try:
            os.dup2(2, 1)
        except OSError:
            _replace(1, os.O_WRONLY)
        if sys.stdout is not None and sys.stderr is not None:
            # What was printed before and is still in the buffer is written now, to stderr like all that follows.
            sys.stdout.flush()
            sys.stdout = sys.stderr
        return cls(read_fd, write_fd, limits=limits, origin=STDIO)


def _replace(fd: int, flags: int) -> None:
    null = os.open(os.devnull, flags)
    os.dup2(null, fd)
    os.close(null)
