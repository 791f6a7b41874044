"""User sign-in: by a function of yours, by hashed passwords, or as one development user.

Guessing is rate-limited by name and address. An unknown name takes as long as a known one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from trunkline.auth.issuing.faults import PageFault
from trunkline.auth.issuing.settings import Settings
from trunkline.auth.issuing.throttle import Throttle
from trunkline.errors import ConfigError

__all__ = ["AuthenticateUser", "SignIn", "SlowedSignIn", "Users", "hash_password", "make_users"]

#: Returns the subject for a name and a password, or None.
AuthenticateUser = Callable[[str, str], Awaitable[str | None] | str | None]
#: The values of ``users=``: such a function, or names with passwords hashed by ``hash_password``.
Users = AuthenticateUser | Mapping[str, str]

_PASSWORD_VARIABLE = "TRUNKLINE_DEV_PASSWORD"
_DEVELOPER = "developer"
_ATTEMPTS = 5
_ATTEMPT_SECONDS = 60.0
_LONGEST = 1024
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1


class SignIn(Protocol):
    """Authenticates a user by name and password."""

    async def __call__(self, name: str, password: str) -> str | None:
        """Return the subject, or None."""


def hash_password(password: str) -> str:
    """Hash a password with scrypt, for ``AuthorizationServer(users={"ada": ...})``."""
    salt = secrets.token_bytes(16)
    return f"scrypt${_text(salt)}${_text(_scrypt(password, salt))}"


def make_users(users: Users | None, settings: Settings) -> SlowedSignIn:
    """Build the sign-in for ``users=``.

    Raises:
        ConfigError: ``users=`` is missing or not valid.
    """
    if users is None:
        if not settings.is_loopback:
            raise ConfigError(
                "users= is missing: set a function (name, password) -> subject, or names with hash_password(...); "
                "the development user exists only for an issuer on loopback"
            )
        return SlowedSignIn(_Development(), settings)
    if isinstance(users, Mapping):
        return SlowedSignIn(_Listed(users), settings)
    return SlowedSignIn(_Hook(users), settings)


class SlowedSignIn:
    """Rate-limits failed sign-ins."""

    def __init__(self, sign_in: SignIn, settings: Settings) -> None:
        """Wrap a sign-in."""
        self._sign_in = sign_in
        self._failed = Throttle(_ATTEMPTS, _ATTEMPT_SECONDS, clock=settings.clock)

    def announce(self) -> None:
        """Print the credentials of the development user, if there is one."""
        if isinstance(self._sign_in, _Development):
            self._sign_in.announce()

    async def __call__(self, name: str, password: str, *, address: str) -> str | None:
        """Return the subject for a name and password, or None.

        Raises:
            PageError: there were too many failures.
        """
        if len(name) > _LONGEST or len(password) > _LONGEST:
            return None
        key = f"{address}\n{name}"
        if wait := self._failed.waits(key):
            raise PageFault(
                429,
                "Too many attempts",
                f"Too many failed sign-ins. Try again in {wait} seconds.",
                headers=(("retry-after", str(wait)),),
            )
        subject = await self._sign_in(name, password)
        if subject is None:
            self._failed.count(key)
            return None
        self._failed.forgive(key)
        return subject


class _Hook:
    """Signs users in with a configured function."""

    def __init__(self, function: AuthenticateUser) -> None:
        self._function = function

    async def __call__(self, name: str, password: str) -> str | None:
        found = self._function(name, password)
        subject = await found if isinstance(found, Awaitable) else found
        if subject is not None and (not isinstance(subject, str) or not subject or subject.startswith("client:")):
            raise ConfigError("users= must return the subject as a string that does not start with 'client:', or None")
        return subject


class _Listed:
    """Signs users in with hashed passwords."""

    def __init__(self, hashed: Mapping[str, str]) -> None:
        self._hashed = {name: _parsed(name, value) for name, value in hashed.items()}
        self._nobody = secrets.token_bytes(16), secrets.token_bytes(32)

    async def __call__(self, name: str, password: str) -> str | None:
        salt, expected = self._hashed.get(name, self._nobody)
        found = await asyncio.to_thread(_scrypt, password, salt)
        return name if hmac.compare_digest(found, expected) and name in self._hashed else None


class _Development:
    """Signs in one development user, whose password comes from the environment or is generated."""

    def __init__(self) -> None:
        self._given = os.environ.get(_PASSWORD_VARIABLE)
        self._password = self._given or secrets.token_urlsafe(9)
        self._announced = self._given is not None

    def announce(self) -> None:
        if not self._announced:
            self._announced = True
            sys.stderr.write(
                f"Development login: name {_DEVELOPER}, password {self._password} "
                f"(set {_PASSWORD_VARIABLE} to choose it, or set users=)\n"
            )

    async def __call__(self, name: str, password: str) -> str | None:
        known = hmac.compare_digest(password.encode(), self._password.encode())
        return _DEVELOPER if known and name == _DEVELOPER else None


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK, p=_PARALLEL, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _parsed(name: str, hashed: str) -> tuple[bytes, bytes]:
    try:
        scheme, salt, value = hashed.split("$")
        if scheme == "scrypt":
            return base64.b64decode(salt, validate=True), base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise ConfigError(f"users=: the password of {name!r} is not hashed: use hash_password('...')")
