"""Creates and opens handles: decides which values are sealed and which are stored, and checks their owners.

The text of a handle is the name of its type, a separator, and either a random token (``cart.x7…``), under which the
value is stored, or the sealed value itself (``page~AgK…``), if it is immutable and small. Both are bound to the type of
the value and to the caller's principal: the sealed text by the authenticated data of the seal, the token by its key in
the store, a digest of token, type and principal. So a handle that is invalid, has expired, or belongs to another caller
gets the same error. A mutable value is never sealed: an old text must not restore an old value.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw, Struct

from trunkline.connection import Exchange
from trunkline.errors import HandleConflict, InvalidHandle
from trunkline.protocol.channel import RequestStore
from trunkline.protocol.seal import InvalidSeal, sealed_length
from trunkline.server.channels import caller_identity, channel_for
from trunkline.server.dispatch import runtime_of
from trunkline.server.handle_records import HandleRecord, HandleRecords, StoredHandle
from trunkline.server.handle_values import PREFIX_CHARACTERS, ValueCodec, codec_of, is_immutable
from trunkline.server.handles import BlockingHandle, Handle
from trunkline.server.validation_errors import InvalidArguments

if TYPE_CHECKING:
    from trunkline.protocol.limits import Limits
    from trunkline.server.blocking_context import BlockingContext
    from trunkline.server.handles import HandleParameter
    from trunkline.server.registry import Listed
    from trunkline.server.runtime import ServerRuntime
    from trunkline.server.server import Server
    from trunkline.store.server_store import ServerStore

__all__ = ["HandleService", "OpenHandle", "bind_handles", "create_handle"]

_log = logging.getLogger("trunkline")

T = TypeVar("T")

#: The purpose of the seal; request state has another.
_PURPOSE = b"\x02"
_TOKEN_BYTES = 24  # 192 bits, which cannot be guessed.
_STORED, _SEALED = ".", "~"
_INVALID = "This handle is not valid here or has expired. Get a new one from the tool that creates it."
_FIXED = (
    "the value of this handle is immutable and may be sealed into its text, which cannot be changed or deleted; "
    "create the handle with ctx.handle(value, stored=True)"
)


class _Sealed(Struct, frozen=True, array_like=True):
    """The sealed data of a handle."""

    until: float
    value: Raw


# --- one handle in one call ------------------------------------------------------------------------------------------


class OpenHandle(Generic[T]):
    """A handle that a call has created or opened: its value, and the methods to change it."""

    __slots__ = ("_editing", "_service", "_stored", "codec", "id", "value")

    def __init__(
        self, id: str, value: T, codec: ValueCodec[T], *, service: HandleService, stored: StoredHandle | None
    ) -> None:
        """Create the handle; ``stored`` is None for a value that cannot be changed."""
        self.id: str = id
        #: The last known value.
        self.value: T = value
        self.codec: ValueCodec[T] = codec
        self._service = service
        #: The record of the last known value.
        self._stored = stored
        #: The lock of a running edit, and the record that it began with.
        self._editing: tuple[asyncio.Lock, StoredHandle] | None = None

    async def begin_edit(self) -> T:
        """Wait until no other call edits the value, and return the currently stored value.

        Raises:
            InvalidHandle, HandleConflict, TypeError, RuntimeError: see ``Handle.edit``.
        """
        key = self._changeable().key
        lock = await self._service.lock(key)
        try:
            value, stored = await self._service.load(key, self.codec)
            if is_immutable(value):
                raise TypeError(f"a {self.codec.name} cannot be changed in place: use set() instead of edit()")
        except BaseException as error:
            lock.release()
            if isinstance(error, InvalidSeal):
                raise InvalidHandle(_INVALID) from None
            raise
        self._editing = lock, stored
        return value

    async def save_edit(self, value: T) -> None:
        """Save the edited value."""
        assert self._editing is not None
        await self._save(value, self._editing[1])

    def end_edit(self) -> None:
        """Release the lock, so that other calls can edit the value."""
        assert self._editing is not None
        self._editing[0].release()
        self._editing = None

    async def set(self, value: T) -> None:
        """Replace the last known value.

        Raises:
            InvalidHandle, HandleConflict, TypeError, RuntimeError: see ``Handle.set``.
        """
        lock = await self._service.lock(self._changeable().key)
        try:
            # Not before: a call may set the same handle twice at once.
            await self._save(value, self._changeable())
        finally:
            lock.release()

    async def delete(self) -> None:
        """Delete the value.

        Raises:
            TypeError: the handle cannot be deleted.
        """
        await self._service.records.delete(self._changeable())

    def _changeable(self) -> StoredHandle:
        if self._stored is None:
            raise TypeError(_FIXED)
        if self._editing is not None:
            raise RuntimeError("this handle is being edited in this call: leave the block of edit() first")
        return self._stored

    async def _save(self, value: T, before: StoredHandle) -> None:
        records = self._service.records
        saved = await records.save(before, self.codec.write(value))
        if saved is None:
            if await records.load(before.key) is None:
                raise InvalidHandle(_INVALID)
            raise HandleConflict("Another call changed this value at the same time, so nothing was saved. Try again.")
        self.value, self._stored = value, saved


# --- all handles of a server -----------------------------------------------------------------------------------------


class HandleService:
    """Creates and opens the handles of a server, and of the servers mounted in it."""

    __slots__ = ("_limits", "_locks", "_now", "_seal", "_state", "known_kinds", "records")

    def __init__(self, state: ServerStore, *, limits: Limits, now: Callable[[], float] = time.time) -> None:
        """Create the service with the store and the keys of a server; ``now`` returns wall time."""
        self.records: HandleRecords = HandleRecords(state, limits=limits)
        #: The types of which a handle has been created.
        self.known_kinds: set[str] = set()
        self._state = state
        self._seal = state.seal_for(_PURPOSE)
        self._limits = limits
        self._now = now
        #: By key: the lock of a value that is being changed. It exists while a call holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(
        self, value: T, codec: ValueCodec[T], *, identity: str | None, owner: str, ttl: float, stored: bool
    ) -> OpenHandle[T]:
        """Create a handle for a caller; if it is stored, it counts by the share of its owner.

        Raises:
            HandleStoreFull: a limit of the store is reached.
            StoreUnavailable: nothing can be stored now.
            TypeError: the value does not match the type.
        """
        fixed = not stored and is_immutable(value)
        data = codec.write(value)
        if fixed and len(data) <= self._limits.sealed_handle_bytes:
            await self._state.load_keys()
            plain = msgspec.json.encode(_Sealed(self._now() + ttl, Raw(data)))
            text = codec.prefix + _SEALED + self._seal.seal(plain, binding=_binding(codec, identity))
            return OpenHandle(text, value, codec, service=self, stored=None)
        text = codec.prefix + _STORED + secrets.token_urlsafe(_TOKEN_BYTES)
        handle = await self.records.create(_key(text, codec, identity), HandleRecord(data, owner, ttl, fixed))
        return OpenHandle(text, value, codec, service=self, stored=None if fixed else handle)

    async def open(self, text: str, codec: ValueCodec[T], *, identity: str | None) -> OpenHandle[T]:
        """Open a handle of a caller.

        Raises:
            InvalidHandle: it is not one of this type and caller, or has expired; the log has the reason, if known.
            StoreUnavailable: it cannot be read now.
        """
        try:
            if text.startswith(codec.prefix + _SEALED):
                return await self._unseal(text, codec, identity)
            value, handle = await self.load(_key(text, codec, identity), codec)
        except (InvalidSeal, InvalidArguments) as reason:
            _log.info("a handle of type %s was rejected: %s", codec.name, reason)
            raise InvalidHandle(_INVALID) from None
        return OpenHandle(text, value, codec, service=self, stored=None if handle.record.fixed else handle)

    async def load(self, key: str, codec: ValueCodec[T]) -> tuple[T, StoredHandle]:
        """Return the value stored under a key, and its record.

        Raises:
            InvalidSeal: there is none, or it can no longer be decoded.
        """
        handle = await self.records.load(key)
        if handle is None:
            raise InvalidSeal("nothing is stored under it for this type and caller")
        try:
            return codec.read(Raw(handle.record.value)), handle
        except (InvalidArguments, msgspec.DecodeError) as error:
            raise InvalidSeal(f"what is stored does not match the type: {error}") from error

    async def lock(self, key: str) -> asyncio.Lock:
        """Wait until no other call changes a value, and return its lock, which the caller must release.

        Raises:
            HandleConflict: the timeout expired.
        """
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
            # A new one is free: there is no wait to be limited.
            await lock.acquire()
            return lock
        try:
            async with asyncio.timeout(self._limits.handle_wait_seconds):
                await lock.acquire()
        except TimeoutError:
            raise HandleConflict("Other calls are changing this value, so nothing was saved. Try again.") from None
        return lock

    async def _unseal(self, text: str, codec: ValueCodec[T], identity: str | None) -> OpenHandle[T]:
        if len(text) > PREFIX_CHARACTERS + sealed_length(self._limits.sealed_handle_bytes + 64):
            raise InvalidSeal("this server seals no handles of this length")
        await self._state.load_keys()
        sealed = text.removeprefix(codec.prefix + _SEALED)
        contents = msgspec.json.decode(self._seal.open(sealed, binding=_binding(codec, identity)), type=_Sealed)
        if contents.until <= self._now():
            raise InvalidSeal("it has expired")
        return OpenHandle(text, codec.read(contents.value), codec, service=self, stored=None)


def _binding(codec: ValueCodec[Any], identity: str | None) -> bytes:
    """Return the binding of a handle as JSON, which has no zero byte and delimits its parts unambiguously."""
    return msgspec.json.encode((codec.kind, identity))


def _key(text: str, codec: ValueCodec[Any], identity: str | None) -> str:
    digest = blake2b(_binding(codec, identity), digest_size=32)
    digest.update(b"\0" + text.encode(errors="surrogatepass"))
    return digest.hexdigest()


# --- for contexts and functions --------------------------------------------------------------------------------------


async def create_handle(
    server: Server, exchange: Exchange, value: Any, *, kind: object, ttl: float, stored: bool, key: str | None
) -> OpenHandle[Any]:
    """Create a handle for the caller of a request, once in all rounds of the call.

    Raises:
        HandleStoreFull: a limit of the store is reached.
        TypeError: the value does not match the type, or the type is not supported.
        ValueError: the time to live is not a positive number of seconds.
    """
    if not 0 < ttl < float("inf"):
        raise ValueError(f"ttl={ttl!r}: a handle lives for a positive number of seconds")
    if isinstance(value, type) and kind is None:
        # A class is no value that could be stored: create one without arguments.
        kind, value = value, value()
    codec: ValueCodec[Any] = codec_of(type(value) if kind is None else kind)
    runtime, identity = runtime_of(exchange), caller_identity(exchange)
    created: OpenHandle[Any] | None = None

    async def create() -> str:
        nonlocal created
        owner = exchange.admitted.caller.owner
        created = await runtime.handles.create(value, codec, identity=identity, owner=owner, ttl=ttl, stored=stored)
        _warn_if_unused(runtime, codec)
        return created.id

    text = await channel_for(exchange).once(_once_key(exchange, key), create)
    # If it is not new, an earlier round created it, and its value may have changed since.
    return created or await runtime.handles.open(text, codec, identity=identity)


def _once_key(exchange: Exchange, key: str | None) -> str:
    """Return the ``once`` key of a new handle: its own key, or the number of handles before it."""
    if key is not None:
        return f"handle:{key}"
    if exchange.store is None:
        exchange.store = RequestStore()
    exchange.store.handles += 1
    return f"handle#{exchange.store.handles}"


def _warn_if_unused(runtime: ServerRuntime, codec: ValueCodec[Any]) -> None:
    """Log a warning once if no parameter on the server accepts a handle of this type: probably the wrong type."""
    registry, known = runtime.definition.registry, runtime.handles.known_kinds
    if codec.kind in known:
        return
    known.add(codec.kind)
    definitions: tuple[Listed, ...] = (
        *registry.tools.values(),
        *registry.prompts.values(),
        *registry.templates.values(),
    )
    taken = {each.codec.kind for definition in definitions for each in definition.function.signature.handles}
    if codec.kind not in taken:
        _log.warning(
            "a handle of type %s was created, but no parameter accepts one; accepted types: %s. For a TypedDict, a "
            "union or a base class, pass the type: ctx.handle(value, type=...)",
            codec.kind,
            ", ".join(sorted(taken)) or "none",
        )


async def bind_handles(
    parameters: tuple[HandleParameter, ...],
    exchange: Exchange,
    kwargs: Mapping[str, Any],
    blocking: BlockingContext | None,
) -> dict[str, Any]:
    """Return the arguments of a call with handles instead of their texts; ``blocking`` is for a sync function.

    Raises:
        InvalidHandle: a handle is not valid; the message names the parameter.
    """
    service, identity = runtime_of(exchange).handles, caller_identity(exchange)
    bound = dict(kwargs)
    opened: dict[tuple[str, str], OpenHandle[Any]] = {}
    for each in parameters:
        text = kwargs.get(each.name)
        if not isinstance(text, str):
            continue
        name = text, each.codec.kind
        if name not in opened:
            try:
                opened[name] = await service.open(text, each.codec, identity=identity)
            except InvalidHandle as error:
                raise InvalidHandle(f"{each.name}: {error}") from None
        bound[each.name] = Handle(opened[name]) if blocking is None else BlockingHandle(opened[name], blocking)
    return bound
