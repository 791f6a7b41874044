"""Sealed text: data of the server that a client or a store keeps and can neither read nor change.

The seal is AES-256-GCM. The first byte is the purpose; purpose, server name and binding are authenticated as additional
data, so a text that was sealed for one purpose, server or binding cannot be opened for another. This module knows
nothing of the sealed data; randomness is passed in.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["InvalidSeal", "Seal", "read_keys", "sealed_length"]

_NONCE_BYTES = 12  # NIST SP 800-38D: 96 bits for GCM.
_KEY_BYTES = 32  # AES-256.
_TAG_BYTES = 16  # The full length of a GCM tag.


class InvalidSeal(Exception):
    """A sealed text was rejected; the reason is for the log only, never for the caller."""


class Seal:
    """Seals bytes as URL-safe text for one purpose, and opens such texts."""

    __slots__ = ("_ciphers", "_keys", "_purpose", "_random", "_server")

    def __init__(
        self,
        keys: Sequence[bytes] | Callable[[], Sequence[bytes]],
        *,
        purpose: bytes,
        server: str,
        random: Callable[[int], bytes],
    ) -> None:
        """Create a seal: the first key seals, and all keys open. ``purpose`` is one byte.

        Keys that are not known yet are passed as a function, which is called at the first use.
        """
        self._keys = keys
        self._purpose = purpose
        self._server = server
        self._random = random
        self._ciphers: tuple[AESGCM, ...] = ()

    def for_purpose(self, purpose: bytes) -> Seal:
        """Return a seal with the same keys for another purpose; neither can open the texts of the other."""
        return Seal(self._keys, purpose=purpose, server=self._server, random=self._random)

    def seal(self, plain: bytes, *, binding: bytes = b"") -> str:
        """Return the sealed text; it can be opened only with the same binding, which must have no zero byte."""
        nonce = self._random(_NONCE_BYTES)
        sealed = self._loaded_ciphers()[0].encrypt(nonce, plain, self._authenticated(binding))
        return _to_text(self._purpose + nonce + sealed)

    def open(self, text: str, *, binding: bytes = b"") -> bytes:
        """Return the bytes of a sealed text.

        Raises:
            InvalidSeal: it was not sealed here for this purpose and binding, or was changed.
        """
        from cryptography.exceptions import InvalidTag

        sealed = _from_text(text)
        if sealed[:1] != self._purpose or len(sealed) < 1 + _NONCE_BYTES + _TAG_BYTES:
            raise InvalidSeal("its format is unknown")
        nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        for cipher in self._loaded_ciphers():
            try:
                return cipher.decrypt(nonce, body, self._authenticated(binding))
            except InvalidTag:
                continue
        raise InvalidSeal("it was changed, or sealed with another key, by another server or for another binding")

    def is_own(self, text: str, *, binding: bytes = b"") -> bool:
        """Return whether a text was sealed here for this purpose and binding."""
        try:
            self.open(text, binding=binding)
        except InvalidSeal:
            return False
        return True

    def derived_keys(self, label: bytes) -> tuple[bytes, ...]:
        """Return a secret for each key, in their order; it reveals nothing about the key, and differs by label."""
        named = b"trunkline " + self._authenticated(label)
        return tuple(hmac.digest(key, named, "sha256") for key in self._loaded_keys())

    def _authenticated(self, binding: bytes) -> bytes:
        label = self._purpose + self._server.encode()
        # The last zero byte ends the name; the name itself may contain others.
        return label + b"\0" + binding if binding else label

    def _loaded_keys(self) -> Sequence[bytes]:
        return self._keys() if callable(self._keys) else self._keys

    def _loaded_ciphers(self) -> tuple[AESGCM, ...]:
        if not self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = tuple(map(AESGCM, self._loaded_keys()))
        return self._ciphers


def sealed_length(plain: int) -> int:
    """Return the length of the sealed text for a number of bytes."""
    return -(-(1 + _NONCE_BYTES + plain + _TAG_BYTES) * 4 // 3)


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


def _to_text(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _from_text(text: str) -> bytes:
    try:
        sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise InvalidSeal("it is not base64") from None
    # Decoding ignores invalid characters and the last bits of the last one, so a changed text could pass.
    if _to_text(sealed) != text:
        raise InvalidSeal("its encoding differs from the original")
    return sealed
