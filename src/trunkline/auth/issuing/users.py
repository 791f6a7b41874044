"""Who may sign in, and with what: a function of yours, names with hashed passwords, or one development user.

Guessing is slowed down by name and address. A name that does not exist takes as long as one that does.
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

#: Says who a person is, given a name and a password: the subject of their tokens, or None.
AuthenticateUser = Callable[[str, str], Awaitable[str | None] | str | None]
#: What ``users=`` takes: such a function, or names with passwords hashed by ``hash_password``.
Users = AuthenticateUser | Mapping[str, str]

_PASSWORD_VARIABLE = "TRUNKLINE_DEV_PASSWORD"
_DEVELOPER = "developer"
_ATTEMPTS = 5
_ATTEMPT_SECONDS = 60.0
_LONGEST = 1024
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1


class SignIn(Protocol):
    """Finds out who somebody is."""

    async def __call__(self, name: str, password: str) -> str | None:
        """Give the subject, or None."""


def hash_password(password: str) -> str:
    """Hash a password with scrypt, for ``AuthorizationServer(users={"ada": ...})``."""
    salt = secrets.token_bytes(16)
    return f"scrypt${_text(salt)}${_text(_scrypt(password, salt))}"


def make_users(users: Users | None, settings: Settings) -> SlowedSignIn:
    """Make what finds out who somebody is.

    Raises:
        ConfigError: nobody could sign in, or anybody.
    """
    if users is None:
        if not settings.is_loopback:
            raise ConfigError(
                "users= is missing: give a function (name, password) -> subject, or names with hash_password(...); "
                "the development user is for an issuer on loopback alone"
            )
        return SlowedSignIn(_Development(), settings)
    if isinstance(users, Mapping):
        return SlowedSignIn(_Listed(users), settings)
    return SlowedSignIn(_Hook(users), settings)


class SlowedSignIn:
    """Asks who somebody is, not too often."""

    def __init__(self, sign_in: SignIn, settings: Settings) -> None:
        """Slow down what finds out."""
        self._sign_in = sign_in
        self._failed = Throttle(_ATTEMPTS, _ATTEMPT_SECONDS, clock=settings.clock)

    def announce(self) -> None:
        """Tell the developer how to sign in, if nobody else can."""
        if isinstance(self._sign_in, _Development):
            self._sign_in.announce()

    async def __call__(self, name: str, password: str, *, address: str) -> str | None:
        """Give the subject of who has this name and password, or None.

        Raises:
            PageFault: there were too many failures.
        """
        if len(name) > _LONGEST or len(password) > _LONGEST:
            return None
        key = f"{address}\n{name}"
        if wait := self._failed.waits(key):
            raise PageFault(
                429,
                "Too many attempts",
                f"The password was wrong too often. Try again in {wait} seconds.",
                headers=(("retry-after", str(wait)),),
            )
        subject = await self._sign_in(name, password)
        if subject is None:
            self._failed.count(key)
            return None
        self._failed.forgive(key)
        return subject


class _Hook:
    """Asks a function of the user's."""

    def __init__(self, function: AuthenticateUser) -> None:
        self._function = function

    async def __call__(self, name: str, password: str) -> str | None:
        found = self._function(name, password)
        subject = await found if isinstance(found, Awaitable) else found
        if subject is not None and (not isinstance(subject, str) or not subject or subject.startswith("client:")):
            raise ConfigError("users= must give the subject as text, which does not start with 'client:', or None")
        return subject


class _Listed:
    """Knows names with hashed passwords."""

    def __init__(self, hashed: Mapping[str, str]) -> None:
        self._hashed = {name: _parsed(name, value) for name, value in hashed.items()}
        self._nobody = secrets.token_bytes(16), secrets.token_bytes(32)

    async def __call__(self, name: str, password: str) -> str | None:
        salt, expected = self._hashed.get(name, self._nobody)
        found = await asyncio.to_thread(_scrypt, password, salt)
        return name if hmac.compare_digest(found, expected) and name in self._hashed else None


class _Development:
    """Knows one user, whose password is in the environment or made up."""

    def __init__(self) -> None:
        self._given = os.environ.get(_PASSWORD_VARIABLE)
        self._password = self._given or secrets.token_urlsafe(9)
        self._announced = self._given is not None

    def announce(self) -> None:
        if not self._announced:
            self._announced = True
            sys.stderr.write(
                f"Development login: name {_DEVELOPER}, password {self._password} "
                f"(set {_PASSWORD_VARIABLE} to choose it, or give users=)\n"
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
    raise ConfigError(f"users= has a password for {name!r} that is not hashed: write hash_password('...')")
