"""Request state: the state of a call between its rounds, sealed so that the client can neither read nor change it.

The state is the journal of the call, sealed with its expiry and its binding (method, params, principal). The caller
gets the same error for any invalid state; the log has the reason. State that is too large to send is kept in the store
of the server, and only its sealed name is sent. Whether a state that may be used once was used before is known only
there, so such a call fails while the store cannot be reached. This module knows nothing of handlers and requests to the
caller; clock and randomness are passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import InvalidParams, StoreUnavailable
from trunkline.protocol.limits import Limits
from trunkline.protocol.seal import InvalidSeal, Seal, sealed_length
from trunkline.server.journal import Journal, message_digest

if TYPE_CHECKING:
    from trunkline.store.interface import Step, Store
    from trunkline.store.server_store import ServerStore

__all__ = ["RoundState", "StateBinding", "StateKeeper", "StateSeal", "request_digest"]

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


class RoundState(Struct, frozen=True, array_like=True):
    """The state of a call at the end of a round."""

    #: The number of rounds so far.
    round: int = 0
    journal: Journal = Journal()
    #: Unique for every sealed state; created by the seal if empty.
    nonce: str = ""


class _Contents(Struct, frozen=True, array_like=True):
    """The sealed or stored contents."""

    until: float
    binding: StateBinding
    state: RoundState


class StateSeal:
    """Seals the state of calls and opens the states that clients return."""

    __slots__ = ("_limits", "_now", "_state", "keeper", "texts")

    def __init__(
        self, state: ServerStore, *, limits: Limits, now: Callable[[], float], random: Callable[[int], bytes]
    ) -> None:
        """Use the keys and the store of a server. ``now`` returns wall time in seconds."""
        self._state = state
        self.texts: Seal = state.seal_for(_PURPOSE)
        self._limits = limits
        self._now = now
        self.keeper: StateKeeper = StateKeeper(state, limits=limits, now=now, random=random)

    async def seal(self, state: RoundState, *, binding: StateBinding, owner: str) -> str:
        """Return the sealed text of a state, valid for this binding only; if it is stored, it counts for its owner.

        Raises:
            InvalidParams: the state is too large to be kept.
            TooManyRequests: it is too large to send, and a limit of what is stored is reached.
            StoreUnavailable: it is too large to send, and cannot be stored now.
        """
        state.journal.check_size(self._limits)
        if not state.nonce:
            state = msgspec.structs.replace(state, nonce=await self.keeper.new_nonce())
        until = self._now() + self._limits.state_seconds
        plain = msgspec.json.encode(_Contents(until, binding, state))
        if sealed_length(len(plain)) > self._limits.state_bytes:
            name = await self.keeper.put(plain, owner=owner)
            if name is None:
                raise InvalidParams("The responses of this call are too large to keep.")
            plain = msgspec.json.encode(name)
        await self._state.load_keys()
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
        await self._state.load_keys()
        contents = _decode(self.texts.open(text), _Contents | str)
        if isinstance(contents, str):
            stored = await self.keeper.get(contents)
            if stored is None:
                raise InvalidSeal("it is no longer stored")
            contents = _decode(stored, _Contents)
        if contents.until <= self._now():
            raise InvalidSeal("it has expired")
        for part in StateBinding.__struct_fields__:
            if getattr(contents.binding, part) != getattr(binding, part):
                raise InvalidSeal(f"it belongs to another {part}")
        state: RoundState = contents.state
        return state


class StateKeeper:
    """Keeps states that are too large to send, and which nonces were used, in the store of a server."""

    def __init__(
        self, state: ServerStore, *, limits: Limits, now: Callable[[], float], random: Callable[[int], bytes]
    ) -> None:
        """Use the store of a server."""
        from trunkline.server.store_budget import StoreBudget

        self._state = state
        self._limits = limits
        self._budget = StoreBudget(limits)
        self._now = now
        self._random = random

    async def new_nonce(self) -> str:
        """Return a nonce; it names the generation of the store, since whether it was used is known only there."""
        try:
            generation = (await self._state.ready()).generation
        except StoreUnavailable:
            # Most states may be used more than once, and need no store.
            generation = ""
        return f"{generation}.{self._random(16).hex()}"

    async def put(self, contents: bytes, *, owner: str) -> str | None:
        """Store contents for as long as states are valid, and return their name; None if they are too large.

        Raises:
            TooManyRequests: a limit of what is stored is reached.
            StoreUnavailable: nothing can be stored now.
        """
        from trunkline.server.store_budget import STATES, weight_of
        from trunkline.store.interface import Index, Put

        store, seal, seconds = await self._state.ready(), self._state.seal, self._limits.state_seconds
        # The names are in the order of their time, so that the oldest is found first.
        name = f"{int(self._now() * 1e6):014x}-{self._random(16).hex()}"
        data = contents if seal is None else seal.seal(contents, binding=name.encode()).encode()
        budget, weight = self._budget, weight_of(len(data))
        if len(data) > self._limits.message_bytes or weight > budget.share:
            return None
        indexed = Index(STATES + name, budget.indexes(owner).limited, (), weight, seconds)
        await self._commit(store, owner, Put(f"state:{name}", data, seconds), indexed)
        return name

    async def get(self, name: str) -> bytes | None:
        """Return the contents stored under a name; None if they were never stored, or are gone.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        data, seal = await (await self._state.ready()).get(f"state:{name}"), self._state.seal
        if data is None or seal is None:
            return data
        try:
            return seal.open(data.decode(), binding=name.encode())
        except (InvalidSeal, UnicodeDecodeError):
            return None

    async def spend(self, nonce: str, *, owner: str) -> bool:
        """Mark a nonce as used on all workers; return False if it was used already.

        When too many are recorded, no more are accepted: dropping one would let a state be used twice.

        Raises:
            TooManyRequests: a limit of what is stored is reached.
            StoreUnavailable: it is unknown now whether the nonce was used.
        """
        from trunkline.server.store_budget import NONCES, weight_of
        from trunkline.store.interface import Index, Put

        store, seconds = await self._state.ready(), self._limits.state_seconds
        if nonce.partition(".")[0] != store.generation:
            # A store that lost writes no longer knows which earlier nonces were used.
            return False
        used = Put(f"nonce:{nonce}", b"", seconds, only_if_absent=True)
        indexed = Index(NONCES + nonce, self._budget.indexes(owner).limited, (), weight_of(0), seconds)
        return await self._commit(store, owner, used, indexed)

    async def _commit(self, store: Store, owner: str, *steps: Step) -> bool:
        """Do steps that store something for an owner, if there is room; return whether they were done."""
        commit = await store.commit(*steps)
        if commit.full is not None:
            commit = await self._budget.make_room(store, owner, commit, steps)
            if commit.full is not None:
                raise self._budget.refusal(commit.full)
        return commit.done


def request_digest(method: str, params: bytes | Raw | None) -> str:
    """Return the digest of a request, the same in all rounds of a call and for any order of its members."""
    value = None if params is None else msgspec.json.decode(params)
    if isinstance(value, dict):
        value = {name: member for name, member in value.items() if name not in _PER_ROUND_MEMBERS}
    return message_digest(method, msgspec.json.encode(value, order="sorted"))


def _decode(plain: bytes, kind: object) -> Any:
    try:
        return msgspec.json.decode(plain, type=kind)
    except _UNREADABLE:
        raise InvalidSeal("its contents are unreadable") from None
