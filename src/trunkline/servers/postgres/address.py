"""The URL of a database: validated when the server starts, and never shown with its password."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.servers.tables import inert

__all__ = ["DatabaseUrl"]

_EXAMPLE = "postgresql://user@localhost/mydb"


class DatabaseUrl(Struct, frozen=True):
    """A ``postgresql://`` URL."""

    secret: str
    #: For display: without the password and the options, which may contain one too.
    shown: str
    #: Prefix of schema resource URIs, as in the official server: with the user and without the password.
    base: str

    @classmethod
    def read(cls, url: str) -> DatabaseUrl:
        """Parse a URL.

        Raises:
            ConfigError: it is invalid; the message does not repeat it, since it may contain a password.
        """
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise ConfigError(f"The database URL cannot be read; it looks like {_EXAMPLE}") from None
        if parts.scheme not in ("postgres", "postgresql"):
            raise ConfigError(f"The database URL does not begin with postgresql://; it looks like {_EXAMPLE}")
        if "@" in parts.path + parts.fragment or ("@" not in parts.netloc and "@" in parts.query):
            # Otherwise a part of the password would be taken for the host, and shown.
            raise ConfigError(
                "The database URL has an @ behind its host: write / ? # and @ in a password as %2F %3F %23 %40"
            )
        host = _host(parts)
        return cls(url, f"postgresql://{host}{inert(parts.path, 100)}", f"postgres://{host}/")

    def __repr__(self) -> str:
        """Show it without its password."""
        return f"DatabaseUrl({self.shown!r})"


def _host(parts: SplitResult) -> str:
    user, at, host = parts.netloc.rpartition("@")
    return inert(user.partition(":")[0] + at + host, 300)
