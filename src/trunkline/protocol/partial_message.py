"""What can be said of a message that is too long to be read, from its first and its last bytes alone.

The sender of a request can be given the reason why no answer comes only if it is known which request was answered. Most
programs write the id before the long member, some write it last. From the front whole members are read, by a parser,
until one goes on beyond the available bytes. From the back an id counts only if nothing but short members of the
envelope stand between it and the brace that ends the line: that brace is the message's own. What is not certain is not
reported. One thing is assumed: that a message which has shown its id does not name another one in the part that was not
read. A peer can be wrong about its own answers only, and could as well answer them with anything else.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from msgspec import Struct

from trunkline.types import RequestId

__all__ = ["PartialMessage", "inspect_partial"]

_CUT = object()
_SPACE = r"[ \t\r\n]*"
_OPENING = re.compile(_SPACE + r"\{")
_NAME = re.compile(rf'{_SPACE}("(?:[^"\\]|\\.)*"){_SPACE}:{_SPACE}')
_NEXT = re.compile(_SPACE + r"([,}])")
_ID_AT_THE_END = re.compile(
    rf',{_SPACE}"id"{_SPACE}:{_SPACE}(-?(?:0|[1-9][0-9]{{0,17}})|"[^"\\\x00-\x1f]*"){_SPACE}'
    rf'((?:,{_SPACE}"(?:jsonrpc|method)"{_SPACE}:{_SPACE}"[^"\\]*"{_SPACE})*)\}}{_SPACE}\Z'
)
_UNREADABLE = "\ufffd"
_HALF = re.compile("[\ud800-\udfff]")
_decoder = json.JSONDecoder()


class PartialMessage(Struct, frozen=True):
    """What was found out about a message."""

    #: A response, or a request or notification; None where that cannot be determined.
    kind: Literal["answer", "call"] | None = None
    id: RequestId | None = None
    #: Whether the end of the line may still show the id.
    open: bool = False


def inspect_partial(head: bytes, tail: bytes = b"") -> PartialMessage:
    """Inspect the first bytes of a message, and the last ones if the first do not show the id."""
    members = _members(head.decode("utf-8", "replace"))
    kind = _kind(members)
    if kind is None:
        return PartialMessage()
    if "id" in members:
        return PartialMessage(kind, _valid_id(members["id"]))
    found = _ID_AT_THE_END.search(tail.decode("utf-8", "replace"))
    if found is None or (kind == "answer" and '"method"' in found[2]):
        return PartialMessage(kind, open=True)
    return PartialMessage(kind, _valid_id(_decoder.decode(found[1])))


def _members(text: str) -> dict[str, Any]:
    """Read the members of the object that a text begins; a truncated or duplicate member is marked as cut."""
    members: dict[str, Any] = {}
    at = _OPENING.match(text)
    written = None if at is None else _NAME.match(text, at.end())
    while written is not None:
        try:
            name = _decoder.decode(written[1])
            # The name of the member is known even where its value is cut.
            twice, members[name] = name in members, _CUT
            value, end = _decoder.raw_decode(text, written.end())
        except (ValueError, RecursionError):
            break
        # A number at the end of the text may go on beyond it.
        following = _NEXT.match(text, end)
        if following is None:
            break
        if not twice:
            members[name] = value
        written = _NAME.match(text, following.end()) if following[1] == "," else None
    return members


def _kind(members: dict[str, Any]) -> Literal["answer", "call"] | None:
    answers, calls = members.keys() & {"result", "error"}, members.keys() & {"method", "params"}
    if bool(answers) == bool(calls):
        return None
    return "answer" if answers else "call"


def _valid_id(id: object) -> RequestId | None:
    if isinstance(id, str):
        # Half of a surrogate pair is not valid text either: it could not be encoded again.
        return None if _UNREADABLE in id or _HALF.search(id) else id
    return id if isinstance(id, int) and not isinstance(id, bool) else None
