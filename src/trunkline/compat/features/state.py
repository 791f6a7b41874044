"""State that FastMCP servers keep between requests: of a connection, of a user, and of sessions with an id.

A user's state and sessions belong to the caller that is logged in: an id of another caller names nothing. The store is
any asynchronous key-value store with ``get``, ``put`` and ``delete``; by default the process's memory.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import uuid4
from weakref import WeakKeyDictionary

import pydantic_core
from pydantic import BaseModel

from trunkline.compat.auth.current import authenticated_principal
from trunkline.compat.exceptions import FastMCPError
from trunkline.compat.providers.base import Provider
from trunkline.server.dependencies import Depends

__all__ = [
    "SESSION_ID_DESCRIPTION",
    "CurrentSession",
    "InvalidSession",
    "MemoryStorage",
    "OptionalCurrentSession",
    "Ready",
    "Session",
    "SessionAuthError",
    "SessionId",
    "SessionProvider",
    "StateStore",
    "StateValue",
    "UserSession",
    "connection_id",
    "context_state",
    "create_session",
    "delete_context_state",
    "describe_session_id",
    "end_session",
    "get_session",
    "given_session_id",
    "rule_of",
    "session_id_parameter_names",
    "session_scope",
    "session_storage_key",
    "set_context_state",
    "with_sessions",
]

SESSION_ID_DESCRIPTION = (
    "Session identifier. Call the tool that creates a session first, and pass the id it returns in every call that "
    "shares state."
)
_COLLECTION = "fastmcp_state"
#: Values of sessions that are kept; beyond this the one that was stored longest ago is dropped.
_MOST_VALUES = 100_000
_MARKER = "_created"
_STATE = "state"
#: The id of the state that each user has without asking for one.
_USER_SESSION_ID = "_user"


class StateValue(BaseModel):
    """A stored value."""

    value: Any


class MemoryStorage:
    """A key-value store in memory: values in collections, each for a time or for good."""

    def __init__(self) -> None:
        """Start empty."""
        self._values: dict[tuple[str | None, str], tuple[Any, float | None]] = {}

    async def get(self, key: str, *, collection: str | None = None) -> Any:
        """Return a value, or None."""
        value, until = self._values.get((collection, key), (None, None))
        if until is not None and until <= time.monotonic():
            del self._values[collection, key]
            return None
        return value

    async def put(self, key: str, value: Any, *, collection: str | None = None, ttl: float | None = None) -> None:
        """Store a value, for a time in seconds."""
        self._values.pop((collection, key), None)
        self._values[collection, key] = value, None if ttl is None else time.monotonic() + ttl
        if len(self._values) > _MOST_VALUES:
            del self._values[next(iter(self._values))]

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        """Remove a value; return whether it was there."""
        return self._values.pop((collection, key), None) is not None


class StateStore:
    """Values by key, in a key-value store or in memory."""

    def __init__(self, storage: Any = None) -> None:
        """Initialize with the store."""
        self._storage = storage or MemoryStorage()

    async def get(self, key: str) -> StateValue | None:
        """Return a value, or None."""
        found = await self._storage.get(key=key, collection=_COLLECTION)
        return None if found is None else StateValue.model_validate(found)

    async def put(self, key: str, value: StateValue, ttl: float | None = None) -> None:
        """Store a value."""
        await self._storage.put(key=key, value=value.model_dump(mode="json"), collection=_COLLECTION, ttl=ttl)

    async def delete(self, key: str) -> bool:
        """Remove a value; return whether it was there."""
        return bool(await self._storage.delete(key=key, collection=_COLLECTION))


class Ready:
    """A value that may be awaited, or ignored."""

    def __init__(self, value: Any) -> None:
        """Initialize with the value."""
        self._value = value

    def __await__(self) -> Any:
        """Return the value."""
        return self._value
        yield


# --- of a connection -------------------------------------------------------------------------------------------------


def session_scope(exchange: Any) -> Any:
    """Return what the state of a request belongs to: its session, its caller, or the process that it came from.

    None: an anonymous request over HTTP in a revision without sessions, which nothing tells from another.
    """
    if exchange is None:
        return None
    caller = exchange.admitted.caller
    if caller.session is not None:
        return caller.session
    principal = authenticated_principal()
    if principal is not None:
        return f"principal:{principal}"
    return None if caller.origin.transport == "http" else exchange.connection.holder


def rule_of(on: bool, criteria: Any) -> dict[str, Any]:
    """Return a rule about what is switched on or off as data that can be stored."""
    rule: dict[str, Any] = {"enabled": on}
    for name, value in criteria.items():
        if isinstance(value, set | frozenset):
            rule[name] = sorted(value)
        elif name == "version" and value is not None:
            rule[name] = {key: getattr(value, key, None) for key in ("gte", "lt", "eq")}
        else:
            rule[name] = value
    return rule


@functools.cache
def _connection_ids() -> WeakKeyDictionary[Any, str]:
    """Return, by connection without a session, what stands for the id of one."""
    return WeakKeyDictionary()


def connection_id(connection: Any) -> str:
    """Return an id of a connection that no later connection gets."""
    return _connection_ids().setdefault(connection, uuid4().hex)


def given_session_id() -> str | None:
    """Return the id of the session of a request context that a program set, or None."""
    from trunkline.compat.request_context import fastmcp_request_ctx

    given = fastmcp_request_ctx.get()
    if given is None:
        return None
    found = None if given.request is None else given.request.headers.get("mcp-session-id")
    if found is None:
        found = given.session._fastmcp_state_prefix = str(uuid4())
    return str(found)


def _values(context: Any) -> dict[str, Any]:
    """Return the values of the session that a context belongs to."""
    given = context._given.get("session")
    holder = given if given is not None else context._exchange.connection if context._exchange is not None else context
    states = context._server.__dict__.setdefault("_compat_states", {})
    # The holder is kept, so that no other object gets its id.
    return states.setdefault(id(holder), (holder, {}))[1]  # type: ignore[no-any-return]


def _request_values(context: Any) -> dict[str, Any]:
    """Return the values of the request: middleware and handlers have contexts of their own, and share them."""
    if context._exchange is None:
        return context.__dict__.setdefault("_request_values", {})  # type: ignore[no-any-return]
    return context._store().state  # type: ignore[no-any-return]


def set_context_state(context: Any, key: str, value: Any, *, serializable: bool) -> None:
    """Keep a value for the session of a context, or for its request only.

    Raises:
        TypeError: the value cannot be stored, so it lasts for the request only.
    """
    if not serializable:
        _request_values(context)[key] = value
        return
    try:
        pydantic_core.to_json(value)
    except pydantic_core.PydanticSerializationError as error:
        raise TypeError(
            f"the value of {key!r} cannot be stored: pass serializable=False to keep it for this request"
        ) from error
    _request_values(context).pop(key, None)
    _values(context)[key] = value


def context_state(context: Any, key: str, default: Any = None) -> Any:
    """Return a value of a request or its session."""
    own = _request_values(context)
    return own[key] if key in own else _values(context).get(key, default)


def delete_context_state(context: Any, key: str) -> None:
    """Forget a value of a request and its session."""
    _request_values(context).pop(key, None)
    _values(context).pop(key, None)


# --- of users and sessions -------------------------------------------------------------------------------------------


class SessionAuthError(FastMCPError):
    """The state of a user was asked for in a request that is not authenticated."""

    def __init__(self, message: str = "session: UserSession needs an authenticated caller") -> None:
        """Initialize with a message."""
        super().__init__(message)


class InvalidSession(FastMCPError):
    """A session id that was not created for this caller, or has ended."""

    def __init__(self, message: str = "Invalid or unknown session id: create a session first") -> None:
        """Initialize with a message."""
        super().__init__(message)


def session_storage_key(principal: str | None, session_id: str) -> str:
    """Return the key of a session: the caller's part is a digest, so that no caller can write another's."""
    owner = "anon" if principal is None else hashlib.sha256(principal.encode("utf-8", "surrogatepass")).hexdigest()
    return f"session:{owner}:{session_id}"


class Session:
    """The values of one session of one caller."""

    def __init__(self, *, store: Any, principal: str | None, session_id: str, public_id: str | None = None) -> None:
        """Initialize with the store, the caller and the id."""
        self._store = store
        self._public_id = public_id
        self._key = session_storage_key(principal, session_id)

    @property
    def id(self) -> str | None:
        """The id that callers pass, or None for the state of a user."""
        return self._public_id

    async def _record(self) -> dict[str, Any] | None:
        found = await self._store.get(key=self._key)
        return dict(found.value) if found is not None and isinstance(found.value, dict) else None

    async def _write(self, record: dict[str, Any]) -> None:
        await self._store.put(key=self._key, value=StateValue(value=record))

    async def _exists(self) -> bool:
        return _MARKER in (await self._record() or ())

    async def _create(self) -> None:
        record = await self._record() or {}
        await self._write({_STATE: {}, **record, _MARKER: time.time()})

    async def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        return ((await self._record() or {}).get(_STATE) or {}).get(key, default)

    async def set(self, key: str, value: Any) -> None:
        """Store a value."""
        record = await self._record() or {}
        await self._write({**record, _STATE: {**(record.get(_STATE) or {}), key: value}})

    async def delete(self, key: str) -> None:
        """Forget a value."""
        record = await self._record()
        if record is not None and key in (record.get(_STATE) or {}):
            kept = {name: value for name, value in record[_STATE].items() if name != key}
            await self._write({**record, _STATE: kept})

    async def clear(self) -> None:
        """Forget all values; the session goes on."""
        record = await self._record()
        if record is not None:
            await self._write({**record, _STATE: {}})

    async def end(self) -> None:
        """Forget the session."""
        await self._store.delete(key=self._key)


class UserSession(Session):
    """The state of the caller that is logged in: a parameter of this type is filled by the server."""


class _SessionIdMark:
    """Marks the parameter that is a session's id."""


SessionId = Annotated[str, _SessionIdMark()]


@functools.lru_cache(maxsize=5000)
def session_id_parameter_names(fn: Callable[..., object]) -> tuple[str, ...]:
    """Return the parameters of a function that are session ids."""
    target: Any = fn
    while isinstance(target, functools.partial):
        target = target.func
    try:
        hints = get_type_hints(target, include_extras=True)
        open_names = inspect.signature(fn).parameters
    except (TypeError, NameError, ValueError):
        return ()
    return tuple(
        name
        for name, hint in hints.items()
        if name in open_names
        and get_origin(hint) is Annotated
        and any(isinstance(each, _SessionIdMark) for each in get_args(hint)[1:])
    )


def _server() -> Any:
    from trunkline.compat.dependencies import get_server

    return get_server()


def _user_session() -> UserSession | None:
    principal = authenticated_principal()
    if principal is None:
        return None
    return UserSession(store=_server()._state_store, principal=principal, session_id=_USER_SESSION_ID)


def _required_user_session() -> UserSession:
    found = _user_session()
    if found is None:
        raise SessionAuthError
    return found


def CurrentSession() -> Any:
    """Ask for the state of the caller that is logged in."""
    return Depends(_required_user_session)


def OptionalCurrentSession() -> Any:
    """Ask for the state of the caller, or None if it is not logged in."""
    return Depends(_user_session)


def with_sessions(hints: dict[str, Any]) -> dict[str, Any]:
    """Return annotations in which those of user sessions say how the server fills them."""
    changed = dict(hints)
    for name, hint in hints.items():
        if name == "return":
            continue
        if isinstance(hint, type) and issubclass(hint, UserSession):
            changed[name] = Annotated[hint, Depends(_required_user_session)]
        elif UserSession in get_args(hint) and type(None) in get_args(hint):
            changed[name] = Annotated[hint, Depends(_user_session)]
    return changed


def describe_session_id(text: str | None) -> str:
    """Return the description of a session id: the author's, and how to get one."""
    if not text or SESSION_ID_DESCRIPTION in text:
        return text or SESSION_ID_DESCRIPTION
    return f"{text} {SESSION_ID_DESCRIPTION}"


async def get_session(session_id: str) -> Session:
    """Return a session of the caller.

    Raises:
        InvalidSession: it was not created for this caller, or has ended.
    """
    store, principal = _server()._state_store, authenticated_principal()
    found = Session(store=store, principal=principal, session_id=session_id, public_id=session_id)
    if not await found._exists():
        raise InvalidSession
    return found


async def create_session() -> str:
    """Create a session and return its id, to pass as ``session_id`` in later calls."""
    session_id = str(uuid4())
    made = Session(store=_server()._state_store, principal=authenticated_principal(), session_id=session_id)
    await made._create()
    return session_id


async def end_session(session_id: SessionId) -> str:
    """End a session and delete its state."""
    await (await get_session(session_id)).end()
    return "session ended"


class SessionProvider(Provider):
    """The tools that create and end sessions."""

    async def _list_tools(self) -> Sequence[Any]:
        if not hasattr(self, "_tools"):
            from trunkline.compat.components import FunctionTool

            self._tools = [FunctionTool.from_function(each) for each in (create_session, end_session)]
        return self._tools
