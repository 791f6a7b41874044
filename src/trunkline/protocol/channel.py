"""The channel from a handler back to the caller of its request: it asks questions and sends notifications.

There are three channels, and a handler does not see which one it has:

- *live*: in revisions with a handshake, a question is a request of its own on the connection of the call;
- *input_required*: a stateless server sends no requests, so questions leave in the result of the call;
- *task*: questions are part of the task's state; the client fetches them and sends the answers.

How a stateless question leaves and comes back::

    client                        server                              handler, round 0
      │                             │
      │ tools/call                  │
      ├────────────────────────────>├──────────────────────────────────>│
      │                             │                 ask("Which size?")│ the journal has no answer:
      │                             │<──────────────────────────────────┤ queue the question, and wait
      │                             │ one turn of the event loop later: │
      │                             │ everything queued leaves together │
      │                             ├──── cancel, as a client does ────>│ ``finally`` blocks run
      │ input_required              │ seal the journal, with its expiry ┴
      │ inputRequests: which size?  │ and what it is bound to: method,
      │ requestState: sealed journal│ params, principal
      │<────────────────────────────┤
      │ (asks its user; meanwhile the server holds nothing)
      │                             │
      │ tools/call, same params     │
      │ inputResponses: {size: "L"} │ open the journal: ours, in time,    handler, round 1
      │ requestState: sealed journal│ same method, params, principal      from its start
      ├────────────────────────────>├──────────────────────────────────>│
      │                             │                 ask("Which size?")│ the journal has the answer to
      │                             │                   <───────── "L" ─┤ the question with this digest
      │ result                      │<──────────────────────────────────┤ return
      │<────────────────────────────┤                                   ┴

What the handler did once (``ctx.once``) is in the journal, too; notifications of an earlier round are not sent again. A
task keeps the same journal in its record instead of sending it (``server/journal.py``).

The connection carries a channel and the values that handlers share without using them; the server fills them in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

from msgspec import Raw

if TYPE_CHECKING:
    from trunkline.types import InputRequest, InputRequiredResult, RequestParams

__all__ = ["Channel", "Question", "RequestStore", "RequestToClient"]

P = ParamSpec("P")


class Question(NamedTuple):
    """A request to the caller in the form used inside results, and the digest that identifies it."""

    request: InputRequest
    digest: str


class RequestToClient:
    """One request of a handler to its caller; sent again if the response did not fit."""

    __slots__ = ("key", "method", "name", "params", "question")

    def __init__(self, method: str, params: RequestParams, key: str | None) -> None:
        """Create the request; ``key`` is the handler's own name for it."""
        self.method: str = method
        self.params: RequestParams = params
        self.key: str | None = key
        #: The unique name of the request in this call; set by the channel when it is sent.
        self.name: str | None = None
        #: The request as it is sent inside results; set by the first channel that needs it.
        self.question: Question | None = None


class Channel(ABC):
    """The way back to the caller of one request while it is served."""

    __slots__ = ()

    @abstractmethod
    async def ask(self, request: RequestToClient) -> Raw:
        """Return the caller's response; sending the same request object again rejects its last response."""

    @abstractmethod
    def notify(self, method: str, params: Any) -> bool:
        """Send a notification that belongs to the request; return False if it reaches nobody."""

    @abstractmethod
    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call a function once in all rounds and runs of this call, and return its result."""

    @abstractmethod
    def did(self, key: str) -> bool:
        """Return True if ``once`` has a result for this key."""

    @property
    def round(self) -> int:
        """The number of earlier rounds of this call, each of which ended with requests to the caller."""
        return 0

    @property
    def nonce(self) -> str | None:
        """Identifies the sealed state that the call was resumed from, if it was."""
        return None

    @property
    def interrupted(self) -> bool:
        """Whether the handler was cancelled so that its requests can be sent in the result."""
        return False

    async def input_required(self) -> InputRequiredResult:
        """Return the result that carries the requests to the caller; only after the handler was interrupted."""
        raise NotImplementedError(f"{type(self).__name__} sends no requests in results")


class RequestStore:
    """Values shared by all contexts of one request."""

    __slots__ = ("handles", "progress", "state")

    def __init__(self) -> None:
        """Create an empty store."""
        self.state: dict[str, object] = {}
        #: The progress that was reported last.
        self.progress: float | None = None
        #: The number of handles that were created without a key.
        self.handles: int = 0
