"""Request state: the state of a call between its rounds, sealed so that the client can neither read nor change it.

The seal is AES-256-GCM over the state, its expiry, and what it is bound to (method, params, principal); the server's
name is authenticated as additional data. Whatever is wrong with a returned state, the caller gets the same message and
the log has the reason. State that is too large to send stays in this process, and only its sealed name is sent. This
module knows nothing of handlers and requests to the caller; clock and randomness are passed in.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct, field

from trunkline.errors import ConfigError, InvalidParams
from trunkline.protocol.limits import Limits

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["RoundState", "StateBinding", "StateSeal", "StateStore", "read_keys", "request_digest"]

_log = logging.getLogger("trunkline")

_VERSION = b"\x01"
_NONCE_BYTES = 12  # NIST SP 800-38D: 96 bits for GCM.
_KEY_BYTES = 32  # AES-256.
_TAG_BYTES = 16  # The full length of a GCM tag.
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


class StateSeal:
    """Seals the state of calls and opens the states that clients return."""

    __slots__ = ("_ciphers", "_keys", "_limits", "_now", "_random", "_server", "_store", "_used")

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
        self._keys = tuple(keys)
        self._server = _VERSION + server.encode()
        self._limits = limits
        self._now = now
        self._random = random
        self._ciphers: tuple[AESGCM, ...] = ()
        self._store = StateStore(now=now, random=random, max_bytes=limits.message_bytes)
        self._used = _UsedNonces()

    def seal(self, state: RoundState, *, binding: StateBinding) -> str:
        """Return the sealed text of a state, valid for this binding only.

        Raises:
            InvalidParams: the state is too large even for the store.
            TypeError: a result of ``once`` has no JSON form.
        """
        if not state.nonce:
            state = msgspec.structs.replace(state, nonce=self._random(16).hex())
        until = self._now() + self._limits.state_seconds
        plain = msgspec.json.encode(_Contents(until, binding, state))
        if _sealed_length(len(plain)) > self._limits.state_bytes:
            name = self._store.put(plain, until=until)
            if name is None:
                raise InvalidParams("The responses of this call are too large to keep.")
            plain = msgspec.json.encode(name)
        nonce = self._random(_NONCE_BYTES)
        sealed = self._loaded_ciphers()[0].encrypt(nonce, plain, self._server)
        return _to_text(_VERSION + nonce + sealed)

    def open(self, text: str, *, binding: StateBinding) -> RoundState:
        """Return the state of a sealed text.

        Raises:
            InvalidParams: it was not sealed here for this binding, or has expired; the log has the reason.
        """
        try:
            return self._open(text, binding)
        except _InvalidState as reason:
            _log.info("requestState of %s rejected: %s", binding.method, reason)
            raise InvalidParams("The request state is not valid here; start the call again.") from None

    def spend(self, nonce: str) -> bool:
        """Mark a state's nonce as used; return False if it has been used already, or cannot be recorded."""
        now = self._now()
        return self._used.spend(nonce, now=now, until=now + self._limits.state_seconds)

    def _open(self, text: str, binding: StateBinding) -> RoundState:
        if len(text) > max(self._limits.state_bytes, _NAME_CHARACTERS):
            raise _InvalidState("it is longer than any that was sealed here")
        plain = self._decrypt(_from_text(text))
        contents = _decode(plain, _Contents | str)
        if isinstance(contents, str):
            stored = self._store.get(contents)
            if stored is None:
                raise _InvalidState("it is no longer stored, or in another process")
            contents = _decode(stored, _Contents)
        if contents.until <= self._now():
            raise _InvalidState("it has expired")
        for part in StateBinding.__struct_fields__:
            if getattr(contents.binding, part) != getattr(binding, part):
                raise _InvalidState(f"it belongs to another {part}")
        state: RoundState = contents.state
        return state

    def _decrypt(self, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        if sealed[:1] != _VERSION or len(sealed) < 1 + _NONCE_BYTES + _TAG_BYTES:
            raise _InvalidState("its format is unknown")
        nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        for cipher in self._loaded_ciphers():
            try:
                return cipher.decrypt(nonce, body, self._server)
            except InvalidTag:
                continue
        raise _InvalidState("it was changed, or sealed with another key or by another server")

    def _loaded_ciphers(self) -> tuple[AESGCM, ...]:
        if not self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = tuple(map(AESGCM, self._keys))
        return self._ciphers


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


class _InvalidState(Exception):
    """Why a sealed text was rejected; for the log."""


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


def read_keys(given: Sequence[str | bytes] | None, env: str | None, random: Callable[[int], bytes]) -> list[bytes]:
    """Return the keys of a server: those given, those in the environment, or a new one.

    A key is 32 random bytes, raw or as hex or base64 text; the environment may have several, separated by commas.

    Raises:
        ConfigError: a key is not valid, or the given sequence is empty.
    """
    if given is not None:
        keys = [_read_key(key, f"state_keys[{index}]") for index, key in enumerate(given)]
        if not keys:
            raise ConfigError("state_keys is empty: leave it out, or give at least one key")
        return keys
    if env is not None and env.strip():
        return [_read_key(key, "TRUNKLINE_STATE_KEY") for key in env.split(",")]
    return [random(_KEY_BYTES)]


def _read_key(given: str | bytes, where: str) -> bytes:
    if isinstance(given, bytes) and len(given) == _KEY_BYTES:
        return given
    try:
        text = (given if isinstance(given, str) else given.decode("ascii")).strip()
        key = bytes.fromhex(text) if len(text) == 2 * _KEY_BYTES else _from_any_base64(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        # The key is not shown. A passphrase is not hashed into a key, which would make a weak one look strong.
        raise ConfigError(
            f"{where} is not a key: it must be 32 random bytes as hex or base64. "
            'Make one with: python -c "import secrets; print(secrets.token_hex(32))"'
        )
    return key


def _from_any_base64(text: str) -> bytes:
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    return binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)


def _sealed_length(plain: int) -> int:
    return -(-(1 + _NONCE_BYTES + plain + _TAG_BYTES) * 4 // 3)


def _to_text(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _from_text(text: str) -> bytes:
    try:
        sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise _InvalidState("it is not base64") from None
    # Decoding ignores characters that are not base64 and the last bits of the last one: the text may have been changed.
    if _to_text(sealed) != text:
        raise _InvalidState("its encoding differs from the original")
    return sealed


def _decode(plain: bytes, kind: object) -> Any:
    try:
        return msgspec.json.decode(plain, type=kind)
    except _UNREADABLE:
        raise _InvalidState("its contents are unreadable") from None
