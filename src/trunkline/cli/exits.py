"""How a command ends: the exit codes that scripts rely on, and which failure has which.

It knows exceptions only. A failure is told in one sentence on stderr; a traceback is shown to whoever sets
``TRUNKLINE_DEBUG=1``.
"""

from __future__ import annotations

import os
from enum import IntEnum

from trunkline.errors import (
    AuthError,
    ConfigError,
    HttpError,
    LinkError,
    LocalProtocolError,
    PolicyDenied,
    RequestFailed,
    RequestTimeout,
    RevisionMismatch,
    TrunklineError,
)

__all__ = ["Exit", "Failure", "debugging", "exit_for"]


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    #: The command line itself is wrong, or asks for what this version does not have.
    USAGE = 1
    #: A file or a setting that the command names is wrong.
    CONFIG = 2
    #: The server, or a proxy in front of it, does not let us in.
    AUTH = 3
    #: The server cannot be started or reached, speaks no revision we do, or went away.
    UNREACHABLE = 4
    #: The tool says that it failed, or the server answered with an error or with nonsense.
    FAILED = 5
    #: A question of the server's was declined or a policy forbids the call, whatever the server made of that.
    DENIED = 6
    TIMED_OUT = 7
    INTERRUPTED = 130
    #: Whoever read our output left, as a shell reports it of others (128 + SIGPIPE).
    UNREAD = 141


class Failure(Exception):
    """Ends a command with a sentence and an exit code."""

    def __init__(self, sentence: str, exit: Exit) -> None:
        """Keep both."""
        super().__init__(sentence)
        self.exit = exit


# The first that fits; what is none of these came from the server.
_EXITS: tuple[tuple[type[TrunklineError], Exit], ...] = (
    (ConfigError, Exit.CONFIG),
    (AuthError, Exit.AUTH),
    (PolicyDenied, Exit.DENIED),
    (RequestTimeout, Exit.TIMED_OUT),
    (LinkError, Exit.UNREACHABLE),
    (RevisionMismatch, Exit.UNREACHABLE),
    (LocalProtocolError, Exit.USAGE),
)
# Who we are is not known, not allowed, or not known to the proxy.
_NOT_LET_IN = (401, 403, 407)


def exit_for(error: Exception) -> Exit:
    """Say with which code a failure ends the command."""
    if isinstance(error, Failure):
        return error.exit
    if not isinstance(error, TrunklineError):
        return Exit.USAGE
    if isinstance(error, HttpError | RequestFailed) and error.status in _NOT_LET_IN:
        return Exit.AUTH
    return next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.FAILED)


def debugging() -> bool:
    """Tell whether whoever runs the command wants tracebacks."""
    return os.environ.get("TRUNKLINE_DEBUG", "") not in ("", "0")
