"""The journal of a call that waits for its caller: what it asked, what was answered, and what it did once.

A handler may be stopped while it waits, and run again from its start: in the next round of a stateless call, or in
another process that takes over its task. The journal is what the next run needs in order to get to the same point. A
round seals it and sends it along with its questions (``request_state.py``); the record of a task has it in the store
(``tasks/record.py``). It has one encoding, one digest and one check of its size for both.

A response is used only for the very request that the user saw: both are compared by digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import InvalidParams
from trunkline.protocol.channel import Question, RequestToClient
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Revision

__all__ = ["Journal", "OpenJournal", "default_key", "make_question", "message_digest"]

#: The ``once`` calls that the current code runs inside of, outermost first.
_running_once: ContextVar[tuple[tuple[OpenJournal, str], ...]] = ContextVar("trunkline_once", default=())
_encode = msgspec.json.Encoder().encode


class Journal(Struct, frozen=True, array_like=True):
    """What a call asked, what was answered and what it did once; a change returns the next journal."""

    #: The digest of each open question, by key.
    asked: dict[str, str] = field(default_factory=dict)
    #: The digest and the response of each answered question, by key; the response is as it arrived.
    answers: dict[str, tuple[str, Raw]] = field(default_factory=dict)
    #: The results of ``once`` as JSON, by key.
    once: dict[str, Raw] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of the answers and the results of ``once``."""
        if not self.answers and not self.once:
            return 0
        answers = sum(memoryview(raw).nbytes for _, raw in self.answers.values())
        return answers + sum(memoryview(raw).nbytes for raw in self.once.values())

    def check_size(self, limits: Limits) -> None:
        """Check that the journal may be kept.

        Raises:
            InvalidParams: it has too many entries, or too many bytes.
        """
        entries = len(self.asked) + len(self.answers) + len(self.once)
        if entries > limits.journal_entries:
            raise InvalidParams(f"This call has more than {limits.journal_entries} questions and results to keep.")
        if self.size > limits.journal_bytes:
            raise InvalidParams("The responses of this call are too large to keep.")

    def ask(self, key: str, digest: str) -> Journal:
        """Add an open question."""
        return replace(self, asked={**self.asked, key: digest})

    def answer(self, responses: Mapping[str, Raw]) -> Journal:
        """Turn open questions into answered ones; responses to others are ignored, as the specification recommends."""
        # Copied, so that the message that they came in need not be kept.
        answers = {key: (self.asked[key], raw.copy()) for key, raw in responses.items() if key in self.asked}
        return replace(self.withdraw(answers), answers={**self.answers, **answers}) if answers else self

    def withdraw(self, keys: Iterable[str]) -> Journal:
        """Remove open questions."""
        keys = set(keys)
        return replace(self, asked={key: digest for key, digest in self.asked.items() if key not in keys})

    def keep_once(self, key: str, result: Raw) -> Journal:
        """Add a result of ``once``."""
        return replace(self, once={**self.once, key: result})


class OpenJournal:
    """The journal of a call whose handler runs: it names the questions, and runs each ``once`` call once."""

    __slots__ = ("_encoded", "_named", "_running", "answers", "results")

    def __init__(self, journal: Journal | None = None) -> None:
        """Start with the journal of earlier runs."""
        self.answers: dict[str, tuple[str, Raw]] = {} if journal is None else dict(journal.answers)
        #: The results of ``once`` by key, and their JSON as far as it is known.
        self.results: dict[str, Any] = {}
        self._encoded: dict[str, Raw] = {}
        if journal is not None and journal.once:
            self._encoded = dict(journal.once)
            self.results = {key: msgspec.json.decode(raw) for key, raw in journal.once.items()}
        #: The names that are used in this run, and how many of them were made from each key.
        self._named: dict[str, int] = {}
        #: The calls that are running, by key; resolved at their end.
        self._running: dict[str, asyncio.Future[None]] = {}

    def name(self, key: str) -> str:
        """Return a name for the next question with a key: unique in this run, and the same in every run."""
        number = self._named.get(key, 0) + 1
        # A handler may choose any key, also one that is made here for a later question.
        while (name := key if number == 1 else f"{key}-{number}") in self._named:
            number += 1
        self._named[key] = number
        self._named.setdefault(name, 0)
        return name

    def answer_to(self, name: str, digest: str) -> Raw | None:
        """Return the recorded answer to a question; None if there is none, or it was another question."""
        recorded = self.answers.get(name)
        return recorded[1] if recorded is not None and recorded[0] == digest else None

    @property
    def busy(self) -> bool:
        """Whether a ``once`` call is running that should not be interrupted."""
        return bool(self._running)

    async def do_once(self, key: str, call: Callable[[], Awaitable[object]]) -> Any:
        """Return the result under a key; the first caller computes it, and others wait for it."""
        while key in self._running:
            await asyncio.shield(self._running[key])
        if key not in self.results:
            done = self._running[key] = asyncio.get_running_loop().create_future()
            within = _running_once.set((*_running_once.get(), (self, key)))
            try:
                self.results[key] = await call()
            finally:
                _running_once.reset(within)
                if self._running.get(key) is done:
                    del self._running[key]
                done.set_result(None)
        return self.results[key]

    def encode_once(self, key: str, value: object) -> tuple[Any, Raw]:
        """Return the result of a ``once`` call as plain data, which every later run gets too, and as JSON.

        Raises:
            TypeError: it has no JSON form.
        """
        plain = msgspec.to_builtins(value)
        encoded = self._encoded[key] = Raw(_encode(plain))
        return plain, encoded

    def abandon_once(self) -> None:
        """Stop counting the ``once`` calls that the current code runs inside of: they wait for the caller's answer."""
        for journal, key in _running_once.get():
            if journal is self:
                self._running.pop(key, None)

    def record(self, asked: Mapping[str, str] | None = None) -> Journal:
        """Return the journal as it is now, with these open questions; results without a JSON form are left out."""
        for key in self.results.keys() - self._encoded.keys():
            with suppress(TypeError):
                self.encode_once(key, self.results[key])
        once = {key: raw for key, raw in self._encoded.items() if key in self.results}
        return Journal(dict(asked or {}), dict(self.answers), once)


def make_question(request: RequestToClient, revision: Revision) -> Question:
    """Return a request as a question in the form of a revision; its params are encoded and digested once."""
    if request.question is None:
        encoded = _encode(adapt_params(request.params, revision))
        embedded = t.InputRequest(method=request.method, params=Raw(encoded))
        request.question = Question(embedded, message_digest(request.method, encoded))
    return request.question


def default_key(method: str, digest: str) -> str:
    """Return the key of a question for which the handler gave none."""
    return f"{method.partition('/')[0]}-{digest[:8]}"


def message_digest(method: str, params: bytes) -> str:
    """Return the digest of a request: the one that a caller sent, or one that it is sent."""
    return blake2b(method.encode() + b"\0" + params, digest_size=32).hexdigest()
