"""Exit codes of the command line, and the mapping from exceptions to them.

A failure is reported as one message on stderr; ``TRUNKLINE_DEBUG=1`` adds the traceback. Scripts rely on the codes.
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

__all__ = ["CommandError", "Exit", "debugging", "exit_for"]


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    #: The command line is invalid, or uses something that this version does not have.
    USAGE = 1
    #: A file or a setting is invalid.
    CONFIG = 2
    #: The server, or a proxy in front of it, rejects our credentials.
    AUTH = 3
    #: The server cannot be started or reached, supports no common revision, or disconnected.
    UNREACHABLE = 4
    #: The tool reported an error, or the server sent an error or an invalid response.
    FAILED = 5
    #: A request of the server was declined or the policy denied the call, whatever the server did about it.
    DENIED = 6
    TIMED_OUT = 7
    INTERRUPTED = 130
    #: The reader of our output closed the pipe; the code a shell reports for that (128 + SIGPIPE).
    OUTPUT_CLOSED = 141


class CommandError(Exception):
    """Ends the command with a message and an exit code."""

    def __init__(self, sentence: str, exit: Exit) -> None:
        """Set the message and the exit code."""
        super().__init__(sentence)
        self.exit = exit


# The first match counts; any other error came from the server.
_EXITS: tuple[tuple[type[TrunklineError], Exit], ...] = (
    (ConfigError, Exit.CONFIG),
    (AuthError, Exit.AUTH),
    (PolicyDenied, Exit.DENIED),
    (RequestTimeout, Exit.TIMED_OUT),
    (LinkError, Exit.UNREACHABLE),
    (RevisionMismatch, Exit.UNREACHABLE),
    (LocalProtocolError, Exit.USAGE),
)
# Unauthorized, forbidden, or proxy authentication required.
_AUTH_STATUSES = (401, 403, 407)


def exit_for(error: Exception) -> Exit:
    """Return the exit code for an error."""
    if isinstance(error, CommandError):
        return error.exit
    if not isinstance(error, TrunklineError):
        return Exit.USAGE
    if isinstance(error, HttpError | RequestFailed) and error.status in _AUTH_STATUSES:
        return Exit.AUTH
    return next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.FAILED)


def debugging() -> bool:
    """Return True if ``TRUNKLINE_DEBUG`` asks for tracebacks."""
    return os.environ.get("TRUNKLINE_DEBUG", "") not in ("", "0")
