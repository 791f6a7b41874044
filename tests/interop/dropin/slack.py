"""The drop-in proof of the Slack server: every tool of the archived one, both over a fresh double of the Web API."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType

from tests.interop.dropin.harness import Call, Script, npm, ours

__all__ = ["SCRIPT"]

_BESIDE = [sys.executable, str(Path(__file__).parents[1] / "programs" / "with_double.py"), "slack"]
_GENERAL = {"channel_id": "C0GENERAL"}
_MORNING = "1767603600.000100"

STEPS = (
    Call("slack_list_channels", {"limit": 1}),
    Call("slack_list_channels", {"cursor": "1"}),
    Call("slack_post_message", {"channel_id": "C0REVIEWS", "text": "Reviewed"}),
    Call("slack_reply_to_thread", {**_GENERAL, "thread_ts": _MORNING, "text": "Morning!"}),
    Call("slack_add_reaction", {**_GENERAL, "timestamp": _MORNING, "reaction": "wave"}),
    Call("slack_get_channel_history", _GENERAL),
    Call("slack_get_thread_replies", {**_GENERAL, "thread_ts": _MORNING}),
    Call("slack_get_users", {"limit": 2}),
    Call("slack_get_user_profile", {"user_id": "U0ANN"}),
    # Errors: what Slack refuses, an argument too few, a tool that is not there.
    Call("slack_post_message", {"channel_id": "C0NONE", "text": "x"}),
    Call("slack_post_message", {"channel_id": "C0REVIEWS"}),
    Call("no_such_tool", {}),
)

_BOUNDS = "Numbers are whole, and numbers and texts have bounds; the schema says so."
_ERRORS = "A failure is a result with isError and a sentence that says what to do."

DIFFERENCES = {
    "server:capabilities/*": "Log messages and changes of the list of tools are announced as possible.",
    "tools:*/annotations": "Hints say which tools only read and which post.",
    "tools:*/maxLength": _BOUNDS,
    "tools:*/minLength": _BOUNDS,
    "tools:*/minimum": _BOUNDS,
    "tools:*/limit/type": _BOUNDS,
    "tools:*/cursor/type": "An optional argument may also be null.",
    "call slack_post_message#2:*": _ERRORS,
    "call slack_post_message#3:*": _ERRORS,
    "call no_such_tool:*": "An unknown tool is an error of the protocol, as the specification says.",
}

SCRIPT = Script(
    server="slack",
    official=[*_BESIDE, *npm("slack")],
    ours=[*_BESIDE, *ours("slack")],
    steps=STEPS,
    environment={"SLACK_BOT_TOKEN": "token-of-the-double", "SLACK_TEAM_ID": "T0ACME"},
    differences=MappingProxyType(DIFFERENCES),
)
