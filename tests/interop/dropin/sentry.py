"""The drop-in proof of the Sentry server: its tool and its prompt, both over a fresh double of the API."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType

from tests.interop.dropin.harness import Call, Get, Script, ours, pypi

__all__ = ["SCRIPT"]

_BESIDE = [sys.executable, str(Path(__file__).parents[1] / "programs" / "with_double.py"), "sentry"]
#: The archived server knows one address; before it starts it is told the double's.
_START = """\
import os
from mcp_server_sentry import server
server.SENTRY_API_BASE = os.environ["DOUBLE_URL"] + "/"
server.main()
"""
_ISSUE = {"issue_id_or_url": "4815"}
_LINK = {"issue_id_or_url": "https://acme.sentry.io/issues/4815"}

STEPS = (
    Call("get_sentry_issue", _ISSUE),
    Call("get_sentry_issue", _LINK),
    Get("sentry-issue", _ISSUE),
    # Errors: an issue that is not there, a link to somewhere else, an argument too few.
    Call("get_sentry_issue", {"issue_id_or_url": "99"}),
    Call("get_sentry_issue", {"issue_id_or_url": "https://evil.example/issues/4815"}),
    Call("get_sentry_issue", {}),
    Get("sentry-issue", {"issue_id_or_url": "x"}),
)

_DEFAULT = "isError is left out where it is false, which is its default."
_ERRORS = "A failure says what is wrong and what to do."

DIFFERENCES = {
    "server:capabilities/*": "Log messages and changes of the lists are announced as possible.",
    "tools:*/annotations": "A hint says that the tool only reads.",
    "tools:*/maxLength": "A link has a bound; the schema says so.",
    "call get_sentry_issue:isError": _DEFAULT,
    "call get_sentry_issue#2:isError": _DEFAULT,
    "call get_sentry_issue#3:*": _ERRORS,
    "call get_sentry_issue#4:*": _ERRORS,
    "call get_sentry_issue#5:*": _ERRORS,
    "get sentry-issue#2:*": _ERRORS,
}

SCRIPT = Script(
    server="sentry",
    official=[*_BESIDE, *pypi("python", "-c", _START, archived=True)],
    ours=[*_BESIDE, *ours("sentry")],
    steps=STEPS,
    environment={"SENTRY_TOKEN": "token-of-the-double"},
    differences=MappingProxyType(DIFFERENCES),
    # The archived server has an empty line before its text, and spaces behind it.
    normalise=str.strip,
)
