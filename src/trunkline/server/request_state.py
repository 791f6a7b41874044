"""Request state: the state of a call between its rounds, sealed so that the client can neither read nor change it.

The state is sealed with its expiry and its binding (method, params, principal). The caller gets the same error for any
invalid state; the log has the reason. State that is too large to send is kept, and only its sealed name is sent: in
this process, or where all workers of the server reach it. This module knows nothing of handlers and requests to the
caller; clock and randomness are passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct, field

from trunkline.errors import InvalidParams
from trunkline.protocol.limits import Limits
from trunkline.protocol.seal import InvalidSeal, Seal, sealed_length

__all__ = ["RoundState", "StateBinding", "StateKeeper", "StateSeal", "StateStore", "request_digest"]

_log = logging.getLogger("trunkline")

_PURPOSE = b"\x01"
#: Longer than any sealed name of stored state, so that a name can always be sent, however small the limit is.
_NAME_CHARACTERS = 256
#: Members of params that differ between the rounds of one call.
_PER_ROUND_MEMBERS = ("_meta", "inputResponses", "requestState")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class StateBinding(Struct, frozen=True, array_like=True):
    """What a state is bound to; it is rejected with any other method, params or principal."""

    method: str
    params_digest: str
    principal: str | None


class RoundState(Struct, array_like=True):
    """The state of a call at the end of a round."""

    #: The number of rounds so far.
    round: int = 0
    #: The digest of each request that is sent to the caller, by its key.
    asked: dict[str, str] = field(default_factory=dict)
    #: The digest of each request that was answered, and the response as it arrived, by its key.
    answers: dict[str, tuple[str, Raw]] = field(default_factory=dict)
    #: The results of ``once`` as JSON, by key.
    once: dict[str, Any] = field(default_factory=dict)
    #: Unique for every sealed state; created by the seal if empty.
    nonce: str = ""


class _Contents(Struct, frozen=True, array_like=True):
    """The sealed or stored contents."""

    until: float
    binding: StateBinding
    state: RoundState


class StateKeeper(Protocol):
    """Stores what is not sent to the client: states that are too large, and which nonces were used.

    Each method may raise ``StoreUnavailable`` if the storage is outside of this process.
    """

    async def new_nonce(self) -> str:
        """Return a nonce that no other state has."""

    async def put(self, contents: bytes) -> str | None:
        """Store contents for as long as states are valid, and return their name; None if there is no room for them."""

    async def get(self, name: str) -> bytes | None:
        """Return the contents stored under a name; None if they were never stored, or are gone."""

    async def spend(self, nonce: str) -> bool:
        """Mark a nonce as used; return False if it has been used already, or cannot be recorded."""


class StateSeal:
    """Seals the state of calls and opens the states that clients return."""

    __slots__ = ("_limits", "_now", "keeper", "texts")

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        server: str,
        limits: Limits,
        now: Callable[[], float],
        random: Callable[[int], bytes],
    ) -> None:
        """Use the given keys: the first seals, and all of them open. ``now`` returns wall time in seconds."""
        #: Seals request states; the seals of other purposes are derived from it.
        self.texts: Seal = Seal(keys, purpose=_PURPOSE, server=server, random=random)
        self._limits = limits
        self._now = now
        #: Replaced if the server shares its state with other workers.
        self.keeper: StateKeeper = _LocalKeeper(limits, now=now, random=random)

    async def seal(self, state: RoundState, *, binding: StateBinding) -> str:
        """Return the sealed text of a state, valid for this binding only.

        Raises:
            InvalidParams: the state is too large to be kept.
            StoreUnavailable: it is too large to send, and cannot be stored now.
            TypeError: a result of ``once`` has no JSON form.
        """
        if not state.nonce:
            state = msgspec.structs.replace(state, nonce=await self.keeper.new_nonce())
        until = self._now() + self._limits.state_seconds
        plain = msgspec.json.encode(_Contents(until, binding, state))
        if sealed_length(len(plain)) > self._limits.state_bytes:
            name = await self.keeper.put(plain)
            if name is None:
                raise InvalidParams("The responses of this call are too large to keep.")
            plain = msgspec.json.encode(name)
        return self.texts.seal(plain)

    async def open(self, text: str, *, binding: StateBinding) -> RoundState:
        """Return the state of a sealed text.

        Raises:
            InvalidParams: it was not sealed here for this binding, or has expired; the log has the reason.
            StoreUnavailable: it is stored where it cannot be reached now.
        """
        try:
            return await self._open(text, binding)
        except InvalidSeal as reason:
            _log.info("requestState of %s rejected: %s", binding.method, reason)
            raise InvalidParams("The request state is not valid here; start the call again.") from None

    async def _open(self, text: str, binding: StateBinding) -> RoundState:
        if len(text) > max(self._limits.state_bytes, _NAME_CHARACTERS):
            raise InvalidSeal("it is too long for a state of this server")
        contents = _decode(self.texts.open(text), _Contents | str)
        if isinstance(contents, str):
            stored = await self.keeper.get(contents)
            if stored is None:
                raise InvalidSeal("it is no longer stored, or is stored in another process")
            contents = _decode(stored, _Contents)
        if contents.until <= self._now():
            raise InvalidSeal("it has expired")
        for part in StateBinding.__struct_fields__:
            if getattr(contents.binding, part) != getattr(binding, part):
                raise InvalidSeal(f"it belongs to another {part}")
        state: RoundState = contents.state
        return state


class _LocalKeeper:
    """Keeps states and used nonces in this process."""

    __slots__ = ("_now", "_random", "_seconds", "_store", "_used")

    def __init__(self, limits: Limits, *, now: Callable[[], float], random: Callable[[int], bytes]) -> None:
        self._now = now
        self._random = random
        self._seconds = limits.state_seconds
        self._store = StateStore(now=now, random=random, max_bytes=limits.message_bytes)
        self._used = _UsedNonces()

    async def new_nonce(self) -> str:
        return self._random(16).hex()

    async def put(self, contents: bytes) -> str | None:
        return self._store.put(contents, until=self._now() + self._seconds)

    async def get(self, name: str) -> bytes | None:
        return self._store.get(name)

    async def spend(self, nonce: str) -> bool:
        now = self._now()
        return self._used.spend(nonce, now=now, until=now + self._seconds)


class StateStore:
    """Stores state that is too large to send, under random names, until it expires; bounded in number and size."""

    __slots__ = ("_bytes", "_entries", "_max_bytes", "_max_entries", "_now", "_random")

    def __init__(
        self,
        *,
        now: Callable[[], float],
        random: Callable[[int], bytes],
        max_bytes: int,
        max_entries: int = 1024,
    ) -> None:
        """Create an empty store."""
        self._now = now
        self._random = random
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._entries: dict[str, tuple[float, bytes]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of entries, including expired ones that were not dropped yet."""
        return len(self._entries)

    def put(self, contents: bytes, *, until: float) -> str | None:
        """Store contents and return their name; None if they exceed the whole store. The oldest entries make room."""
        if len(contents) > self._max_bytes:
            return None
        name = self._random(16).hex()
        self._entries[name] = (until, contents)
        self._bytes += len(contents)
        self._make_room()
        return name

    def get(self, name: str) -> bytes | None:
        """Return the contents of a name; None if they have expired, were dropped, or never existed."""
        self._make_room()
        until, contents = self._entries.get(name, (0.0, None))
        return contents if until > self._now() else None

    def _make_room(self) -> None:
        now = self._now()
        while self._entries:
            oldest = next(iter(self._entries))
            until, contents = self._entries[oldest]
            fits = len(self._entries) <= self._max_entries and self._bytes <= self._max_bytes
            if fits and until > now:
                return
            del self._entries[oldest]
            self._bytes -= len(contents)


class _UsedNonces:
    """Records used nonces for as long as their states are valid.

    When it is full, no more nonces are accepted: dropping one would let a state be used twice.
    """

    __slots__ = ("_max_entries", "_until")

    def __init__(self, max_entries: int = 65536) -> None:
        self._max_entries = max_entries
        self._until: dict[str, float] = {}

    def spend(self, nonce: str, *, now: float, until: float) -> bool:
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now:
                break
            del self._until[oldest]
        if nonce in self._until:
            return False
        if len(self._until) >= self._max_entries:
            _log.warning("single-use states are rejected for now: %d are recorded already", len(self._until))
            return False
        self._until[nonce] = until
        return True


def request_digest(method: str, params: bytes | Raw | None) -> str:
    """Return the digest of a request, the same in all rounds of a call and for any order of its members."""
    from hashlib import blake2b

    value = None if params is None else msgspec.json.decode(params)
    if isinstance(value, dict):
        value = {name: member for name, member in value.items() if name not in _PER_ROUND_MEMBERS}
    digest = blake2b(method.encode(), digest_size=32)
    digest.update(b"\x00")
    digest.update(msgspec.json.encode(value, order="sorted"))
    return digest.hexdigest()


def _decode(plain: bytes, kind: object) -> Any:
    try:
        return msgspec.json.decode(plain, type=kind)
    except _UNREADABLE:
        raise InvalidSeal("its contents are unreadable") from None
