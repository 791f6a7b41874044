"""Who answers a server's question on the host's side: a person, a model, a configuration.

A desk stands where the gateway's client would: it is asked by ``LocalFront`` when a program, a chat or the command line
uses the host. What the policy forbids does not reach it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from trunkline.client.answers import Answers
from trunkline.host.entries import ServerEntry

if TYPE_CHECKING:
    from trunkline.host.session import HostSession

__all__ = ["CallbackDesk", "Desk"]


class Desk(Protocol):
    """Answers what servers ask."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What can be asked here, as a client declares it."""

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Answer a question of a server's with the result, encoded.

        Raises:
            RequestFailed: it is refused.
        """


class CallbackDesk:
    """Answers by functions that the user gave; they are not told which server asks."""

    def __init__(self, answers: Answers) -> None:
        """Take the functions as a client has them."""
        self._answers = answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the functions can answer."""
        return self._answers.capabilities

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Call the function for a question."""
        return Raw(msgspec.json.encode(await self._answers.answer(method, params)))
