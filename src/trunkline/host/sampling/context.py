"""Earlier results of a server in a session, kept as context for that server's own sampling requests.

A server may ask for context (``includeContext``). It gets none unless a person says so, and then only its own results:
they are kept by session and by server, and no server gets those of another. The latest few are kept, each cut to a
maximum length; they are dropped with the session.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from msgspec import UNSET

import trunkline.types as t

__all__ = ["ServerResults"]

_MOST_RESULTS = 8
_LONGEST = 4000
_MOST_SERVERS = 64


class ServerResults:
    """The latest results of each server in one session."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        """Start with none."""
        self._kept: dict[str, deque[str]] = {}

    def keep(self, server: str, name: str, result: Any) -> None:
        """Keep the result of a tool call, a read or a prompt; one without text is not kept."""
        text = _text(result)
        if not text:
            return
        kept = self._kept.pop(server, None) or deque(maxlen=_MOST_RESULTS)
        # Ordered by last use, so that the least recently used server is dropped first.
        self._kept[server] = kept
        if len(self._kept) > _MOST_SERVERS:
            del self._kept[next(iter(self._kept))]
        cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} […]"
        kept.append(f"{name}:\n{cut}")

    def text(self, server: str) -> str:
        """Return the results of one server, oldest first; empty if there are none."""
        return "\n\n".join(self._kept.get(server, ()))


def _text(result: Any) -> str:
    if isinstance(result, t.CallToolResult):
        texts = [block.text for block in result.content if isinstance(block, t.TextContent)]
        structured = result.structured_content
        if not texts and structured is not UNSET and structured is not None:
            texts = [msgspec.json.encode(structured).decode()]
        return "\n".join(texts)
    if isinstance(result, t.ReadResourceResult):
        return "\n".join(each.text for each in result.contents if each.text is not None)
    if isinstance(result, t.GetPromptResult):
        blocks = [message.content for message in result.messages]
        return "\n".join(block.text for block in blocks if isinstance(block, t.TextContent))
    return ""
