"""Context usage: how much of the model's window each server's tools and results, and the messages, take.

Tokens are estimated from text, in the same way for every provider; the provider's own count is the usage.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

__all__ = ["Account", "ServerShare", "account_of"]


class ServerShare(Struct, frozen=True, kw_only=True):
    """What one server takes of the context window, in tokens."""

    #: The server's name; ``trunkline`` for the host's own tools.
    server: str
    #: How many of its tools are offered.
    tools: int = 0
    #: The size of their definitions, sent with every request.
    tool_tokens: int = 0
    #: The size of its instructions, sent with every request.
    instruction_tokens: int = 0
    #: The size of its results, resources and prompts in the conversation.
    result_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The sum of all parts."""
        return self.tool_tokens + self.instruction_tokens + self.result_tokens


class Account(Struct, frozen=True, kw_only=True):
    """What the next request sends to the model, by who takes the space."""

    #: The size of the model's context window.
    window_tokens: int
    #: The system prompt of the host and of the person.
    system_tokens: int = 0
    #: The messages of the person and the model.
    talk_tokens: int = 0
    #: By server, the largest first.
    servers: tuple[ServerShare, ...] = ()

    @property
    def tokens(self) -> int:
        """The total size of the request."""
        return self.system_tokens + self.talk_tokens + sum(share.tokens for share in self.servers)

    @property
    def share(self) -> float:
        """The share of the window that is used."""
        return self.tokens / self.window_tokens if self.window_tokens else 1.0


def account_of(
    *,
    window_tokens: int,
    system_tokens: int,
    talk_tokens: int,
    tools: Mapping[str, int],
    counts: Mapping[str, int],
    instructions: Mapping[str, int],
    results: Mapping[str, int],
) -> Account:
    """Build the context usage from the parts of each server."""
    shares = [
        ServerShare(
            server=server,
            tools=counts.get(server, 0),
            tool_tokens=tools.get(server, 0),
            instruction_tokens=instructions.get(server, 0),
            result_tokens=results.get(server, 0),
        )
        for server in dict.fromkeys([*tools, *instructions, *results])
    ]
    return Account(
        window_tokens=window_tokens,
        system_tokens=system_tokens,
        talk_tokens=talk_tokens,
        servers=tuple(sorted(shares, key=lambda share: (-share.tokens, share.server))),
    )
