"""Where the room of a model's window goes: to which server's tools and results, and to what was said.

Tokens are estimated from text, alike for every provider; the provider's own count is the usage.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

__all__ = ["Account", "ServerShare", "account_of"]


class ServerShare(Struct, frozen=True, kw_only=True):
    """What one server takes of the window, in tokens."""

    #: The server's name; ``trunkline`` for the host's own tools.
    server: str
    #: How many of its tools are offered.
    tools: int = 0
    #: What their definitions cost in every turn.
    tool_tokens: int = 0
    #: What its instructions cost in every turn.
    instruction_tokens: int = 0
    #: What its results, resources and prompts in the conversation cost in every turn.
    result_tokens: int = 0

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.tool_tokens + self.instruction_tokens + self.result_tokens


class Account(Struct, frozen=True, kw_only=True):
    """What the next turn will send to the model, by who takes the room."""

    #: How much the model can take.
    window_tokens: int
    #: The host's and the person's own system text.
    system_tokens: int = 0
    #: What the person and the model said.
    talk_tokens: int = 0
    #: By server, the largest first.
    servers: tuple[ServerShare, ...] = ()

    @property
    def tokens(self) -> int:
        """All that is sent."""
        return self.system_tokens + self.talk_tokens + sum(share.tokens for share in self.servers)

    @property
    def share(self) -> float:
        """Which part of the window that is."""
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
    """Put an account together from what each server takes."""
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
