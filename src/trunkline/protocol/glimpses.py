"""What can be said of a message that is too long to be read, from its first and its last bytes alone.

A side that asked something is told why no answer comes only if it is known which request was answered. Most programs
write the id before what is long, some write it last. From the front whole members are read, by a parser, until one goes
on beyond what is there. From the back an id counts only if nothing but short members of the envelope stand between it
and the brace that ends the line: that brace is the message's own. Whatever is not certain is not told. One thing is
believed: that a message which has shown its id does not name another one in what was not looked at. A side can be
wrong about its own answers only, and could as well answer them with anything else.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from msgspec import Struct

from trunkline.types import RequestId

__all__ = ["Glimpse", "glimpse"]

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


class Glimpse(Struct, frozen=True):
    """What was seen of a message."""

    #: An answer, or a request or notification; None where that cannot be told.
    kind: Literal["answer", "call"] | None = None
    id: RequestId | None = None
    #: Whether the end of the line may still tell the id.
    open: bool = False


def glimpse(head: bytes, tail: bytes = b"") -> Glimpse:
    """Look at the first bytes of a message, and at the last ones where these leave the id open."""
    members = _members(head.decode("utf-8", "replace"))
    kind = _kind(members)
    if kind is None:
        return Glimpse()
    if "id" in members:
        return Glimpse(kind, _known(members["id"]))
    found = _ID_AT_THE_END.search(tail.decode("utf-8", "replace"))
    if found is None or (kind == "answer" and '"method"' in found[2]):
        return Glimpse(kind, open=True)
    return Glimpse(kind, _known(_decoder.decode(found[1])))


def _members(text: str) -> dict[str, Any]:
    """Read the members of the object that a text begins; the last may be cut, and one that stands there twice is."""
    members: dict[str, Any] = {}
    at = _OPENING.match(text)
    written = None if at is None else _NAME.match(text, at.end())
    while written is not None:
        try:
            name = _decoder.decode(written[1])
            # Whether it is a member that matters is known even where its value is cut.
            twice, members[name] = name in members, _CUT
            value, end = _decoder.raw_decode(text, written.end())
        except (ValueError, RecursionError):
            break
        # A number that ends with the text may go on beyond it.
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


def _known(id: object) -> RequestId | None:
    if isinstance(id, str):
        # Half of a surrogate pair is no text either: nobody could write it down again.
        return None if _UNREADABLE in id or _HALF.search(id) else id
    return id if isinstance(id, int) and not isinstance(id, bool) else None
