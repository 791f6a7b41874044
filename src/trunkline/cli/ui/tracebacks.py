"""Reads tracebacks in a server's stderr: which line of the user's own code raised, and what."""

from __future__ import annotations

import os
import re

__all__ = ["mismatched_result", "raised_line"]

_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<path>.+)", line (?P<line>\d+), in (?P<name>.+)$')
# As ``server/tools`` logs it. The client is told only that the result is invalid.
_MISMATCH = re.compile(r"^the result of tool .* does not match its output schema: .*$", re.MULTILINE)
# Code of others inside the user's folder, such as a virtual environment.
_INSTALLED = re.compile(r"[/\\](site-packages|dist-packages)[/\\]")


def raised_line(stderr: str, file: str) -> str | None:
    """Return the exception of the last traceback with the last line in the folder of ``file`` that led to it.

    None if there is no traceback, or no such line in it.
    """
    tracebacks = [text.splitlines() for text in stderr.split(_START)[1:]]
    folder = os.path.dirname(os.path.abspath(file)) + os.sep
    if not tracebacks or (error := _error_line(tracebacks[-1])) is None:
        return None
    # An exception that several requests wait for, such as one of the lifespan, has its frames in the first traceback.
    same = (lines for lines in reversed(tracebacks) if _error_line(lines) == error)
    raised = next(filter(None, (_last_frame(lines, folder) for lines in same)), None)
    return None if raised is None else f"{error} at {raised}"


def _error_line(lines: list[str]) -> str | None:
    """Return the exception of a traceback: the first line after the frames that is not indented."""
    return next((line for line in lines if line and not line[0].isspace()), None)


def _last_frame(lines: list[str], folder: str) -> str | None:
    """Return the last frame of a traceback whose file is in a folder, and not of an installed package."""
    raised: str | None = None
    for at, line in enumerate(lines):
        found = _FRAME.match(line)
        if found is not None and found["path"].startswith(folder) and not _INSTALLED.search(found["path"]):
            code = lines[at + 1].strip() if at + 1 < len(lines) else ""
            raised = f"{os.path.relpath(found['path'])}:{found['line']}, in {found['name']}: {code}"
    return raised


def mismatched_result(stderr: str) -> list[str]:
    """Return the last line that says why a result does not match the tool's output schema, if there is one."""
    return _MISMATCH.findall(stderr)[-1:]
