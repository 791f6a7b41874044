"""The facts of a handshake, and the session id that carries them.

An id is sealed text: a client can neither read nor change it, and every worker with the same keys opens it without a
look-up. Facts that would make it too long are in the store, and the id only names them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.protocol.caller import Principal, Session
from trunkline.protocol.seal import InvalidSeal, Seal
from trunkline.types import Implementation

__all__ = ["LIFETIME", "MAX_ID_BYTES", "SessionFacts", "SessionIds"]

#: How long a session lasts at most. Idle sessions cost nothing, so that only the list of terminated ones grows with it.
LIFETIME = 24 * 3600.0
#: The longest session id: half of what the strictest usual proxies allow for one header (4 kB).
MAX_ID_BYTES = 2048


class SessionFacts(Struct, frozen=True, array_like=True):
    """What a handshake has fixed, and what names the session in the store."""

    #: The name of the session in the store; never shown to a client.
    key: str
    #: The generation of the store that the session began in.
    generation: str
    #: When the session ends, as wall time.
    expires: float
    #: The last announcement before the session began.
    since: str
    revision: str = ""
    #: Issuer, subject and client of the principal that opened it; None for an anonymous one.
    identity: tuple[str | None, str, str | None] | None = None
    client_info: Implementation | None = None
    capabilities: Mapping[str, Any] = {}
    #: Whether the last four are in the store.
    stored: bool = False

    @property
    def principal(self) -> Principal | None:
        """The principal that opened the session, without its scopes: each request presents its own."""
        if self.identity is None:
            return None
        issuer, subject, client = self.identity
        return Principal(subject=subject, issuer=issuer, client=client)


class SessionIds:
    """Makes session ids and reads them."""

    __slots__ = ("_decoder", "_now", "_random", "_seal")

    def __init__(self, seal: Seal, *, now: Callable[[], float], random: Callable[[int], bytes]) -> None:
        """Use a seal; ``now`` returns wall time."""
        self._seal = seal
        self._now = now
        self._random = random
        self._decoder = msgspec.msgpack.Decoder(SessionFacts)

    def facts(
        self, session: Session, principal: Principal | None, *, generation: str, since: str, lifetime: float = LIFETIME
    ) -> SessionFacts:
        """Return the facts of a session that has just been opened."""
        caller = session.caller
        return SessionFacts(
            key=base64.urlsafe_b64encode(self._random(15)).decode(),
            generation=generation,
            expires=self._now() + lifetime,
            since=since,
            revision=caller.revision.name,
            identity=None if principal is None else principal.identity,
            client_info=caller.client_info,
            capabilities=caller.capabilities,
        )

    def write(self, facts: SessionFacts) -> tuple[str, bytes | None]:
        """Return the id that carries the facts, and what must be stored under their key first, if anything."""
        whole = msgspec.msgpack.encode(facts)
        id = self._seal.seal(whole)
        if len(id) <= MAX_ID_BYTES:
            return id, None
        short = SessionFacts(facts.key, facts.generation, facts.expires, facts.since, stored=True)
        return self._seal.seal(msgspec.msgpack.encode(short)), whole

    def name_stream(self, worker: str) -> str:
        """Return a name for a stream of a worker, which nobody else can make."""
        return f"{worker}-{self._seal.seal(worker.encode())}"

    def worker_of_stream(self, name: str) -> str | None:
        """Return the worker that a stream is named after; None if no worker has made that name."""
        worker, _, sealed = name.partition("-")
        return worker if self._open(sealed) == worker.encode() else None

    def read(self, id: str) -> SessionFacts | None:
        """Return the facts that an id carries; None if it was not made by us, or its time is over."""
        plain = self._open(id)
        facts = None if plain is None else self.decode(plain)
        return None if facts is None or facts.expires <= self._now() else facts

    def decode(self, stored: bytes) -> SessionFacts | None:
        """Return the facts that were stored."""
        try:
            return self._decoder.decode(stored)
        except msgspec.DecodeError:
            return None

    def _open(self, text: str) -> bytes | None:
        if len(text) > MAX_ID_BYTES:
            return None
        try:
            return self._seal.open(text)
        except InvalidSeal:
            return None
