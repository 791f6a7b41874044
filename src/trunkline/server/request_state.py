"""Request state: what a call has learnt in its rounds, sealed so that the client can carry it and no more.

The seal is AES-256-GCM over the state, when it lapses, and what it belongs to (method, params, principal); the server's
name is authenticated beside it. Whatever is wrong with a text that comes back, the caller reads one sentence and the
log says why. State too large to travel stays on a shelf in this process, and only its sealed name travels. It knows
nothing of handlers and questions; clock and chance come in as arguments.
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
#: Longer than any sealed name of state on the shelf, so that this always travels, however small the limit is.
_NAME_CHARACTERS = 256
#: Members of params that differ between the rounds of one call.
_PER_ROUND_MEMBERS = ("_meta", "inputResponses", "requestState")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class StateBinding(Struct, frozen=True, array_like=True):
    """What a state belongs to: it is refused with any other method, params or principal."""

    method: str
    params_digest: str
    principal: str | None


class RoundState(Struct, array_like=True):
    """What a call knows at the end of a round."""

    #: How many rounds there have been.
    round: int = 0
    #: The digest of each question that is being asked, by its key.
    asked: dict[str, str] = field(default_factory=dict)
    #: The digest of each question that was answered, and the answer as it came, by its key.
    answers: dict[str, tuple[str, Raw]] = field(default_factory=dict)
    #: What was done once, and its result as JSON.
    once: dict[str, Any] = field(default_factory=dict)
    #: Different in every sealed state; made by the seal when empty.
    nonce: str = ""


class _Contents(Struct, frozen=True, array_like=True):
    """What is sealed, or lies on the shelf."""

    until: float
    binding: StateBinding
    state: RoundState


class StateSeal:
    """Seals the state of calls and opens what comes back."""

    __slots__ = ("_ciphers", "_keys", "_limits", "_now", "_random", "_server", "_shelf", "_spent")

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        server: str,
        limits: Limits,
        now: Callable[[], float],
        random: Callable[[int], bytes],
    ) -> None:
        """Take the keys, newest first: it seals, all of them open. ``now`` is wall time in seconds."""
        self._keys = tuple(keys)
        self._server = _VERSION + server.encode()
        self._limits = limits
        self._now = now
        self._random = random
        self._ciphers: tuple[AESGCM, ...] = ()
        self._shelf = StateStore(now=now, random=random, max_bytes=limits.message_bytes)
        self._spent = _UsedNonces()

    def seal(self, state: RoundState, *, binding: StateBinding) -> str:
        """Give the text that carries a state, for this binding only.

        Raises:
            InvalidParams: the state is too large even for the shelf.
            TypeError: what was kept by ``once`` is not JSON.
        """
        if not state.nonce:
            state = msgspec.structs.replace(state, nonce=self._random(16).hex())
        until = self._now() + self._limits.state_seconds
        plain = msgspec.json.encode(_Contents(until, binding, state))
        if _sealed_length(len(plain)) > self._limits.state_bytes:
            name = self._shelf.put(plain, until=until)
            if name is None:
                raise InvalidParams("The answers of this call are too large to keep.")
            plain = msgspec.json.encode(name)
        nonce = self._random(_NONCE_BYTES)
        sealed = self._loaded_ciphers()[0].encrypt(nonce, plain, self._server)
        return _to_text(_VERSION + nonce + sealed)

    def open(self, text: str, *, binding: StateBinding) -> RoundState:
        """Give the state a text carries, if it was sealed here, for this binding, not too long ago.

        Raises:
            InvalidParams: it was not; the log has the reason.
        """
        try:
            return self._opened(text, binding)
        except _InvalidState as refused:
            _log.info("requestState of %s refused: %s", binding.method, refused)
            raise InvalidParams("The request state is not valid here; start the call again.") from None

    def spend(self, nonce: str) -> bool:
        """Use a state's nonce up; false if it has been used already, or cannot be remembered."""
        now = self._now()
        return self._spent.spend(nonce, now=now, until=now + self._limits.state_seconds)

    def _opened(self, text: str, binding: StateBinding) -> RoundState:
        if len(text) > max(self._limits.state_bytes, _NAME_CHARACTERS):
            raise _InvalidState("it is longer than any that was sealed here")
        plain = self._decrypted(_from_text(text))
        contents = _decode(plain, _Contents | str)
        if isinstance(contents, str):
            shelved = self._shelf.get(contents)
            if shelved is None:
                raise _InvalidState("it is no longer on the shelf, or on that of another process")
            contents = _decode(shelved, _Contents)
        if contents.until <= self._now():
            raise _InvalidState("it has expired")
        for part in StateBinding.__struct_fields__:
            if getattr(contents.binding, part) != getattr(binding, part):
                raise _InvalidState(f"it belongs to another {part}")
        state: RoundState = contents.state
        return state

    def _decrypted(self, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        if sealed[:1] != _VERSION or len(sealed) < 1 + _NONCE_BYTES + _TAG_BYTES:
            raise _InvalidState("it has a form that is not known here")
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
    """Keeps state that is too large to travel, under random names: so many, so large together, until they lapse."""

    __slots__ = ("_bytes", "_entries", "_max_bytes", "_max_entries", "_now", "_random")

    def __init__(
        self,
        *,
        now: Callable[[], float],
        random: Callable[[int], bytes],
        max_bytes: int,
        max_entries: int = 1024,
    ) -> None:
        """Start empty."""
        self._now = now
        self._random = random
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._entries: dict[str, tuple[float, bytes]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Count what is kept, lapsed entries that were not looked for included."""
        return len(self._entries)

    def put(self, contents: bytes, *, until: float) -> str | None:
        """Keep something and give its name, or none if it is larger than the whole shelf; the oldest make room."""
        if len(contents) > self._max_bytes:
            return None
        name = self._random(16).hex()
        self._entries[name] = (until, contents)
        self._bytes += len(contents)
        self._make_room()
        return name

    def get(self, name: str) -> bytes | None:
        """Give what lies under a name, or none if it has lapsed, made room, or never was."""
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
    """Remembers what was used up for as long as it could be shown again.

    When it is full it lets nothing more be spent: forgetting would let a state be used twice.
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
            _log.warning("Too many single-use states in %d entries: no more are accepted for now", len(self._until))
            return False
        self._until[nonce] = until
        return True


class _InvalidState(Exception):
    """Why a text was not opened; for the log."""


def request_digest(method: str, params: bytes | Raw | None) -> str:
    """Give a digest of a request that all rounds of one call share: whatever order its members come in."""
    from hashlib import blake2b

    value = None if params is None else msgspec.json.decode(params)
    if isinstance(value, dict):
        value = {name: member for name, member in value.items() if name not in _PER_ROUND_MEMBERS}
    work = blake2b(method.encode(), digest_size=32)
    work.update(b"\x00")
    work.update(msgspec.json.encode(value, order="sorted"))
    return work.hexdigest()


def read_keys(given: Sequence[str | bytes] | None, env: str | None, random: Callable[[int], bytes]) -> list[bytes]:
    """Give the keys a server seals with: those given, those in the environment, or a new one.

    A key is 32 random bytes, raw or as hex or base64 text; the environment may hold several, with commas between.

    Raises:
        ConfigError: something given is no such key, or nothing was given in earnest.
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
        # The key is not shown, and a passphrase not hashed: both would make a weak one look fine.
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
    # Decoding skips what is not base64 and the last bits of the last character: such a text is not the one given out.
    if _to_text(sealed) != text:
        raise _InvalidState("it is not written as it was given out")
    return sealed


def _decode(plain: bytes, kind: object) -> Any:
    try:
        return msgspec.json.decode(plain, type=kind)
    except _UNREADABLE:
        raise _InvalidState("it was sealed in a form that is not known here") from None
