"""The token of a service that a reference server uses: read once, sent over safe lines only, never shown.

A token comes from whoever starts the server, in the environment; without one a server starts all the same, and what
needs it says so when it is called. It must be able to stand in a header, it goes to an
address that nobody on the way can read along with, and what the service says never carries it back to a model.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from trunkline.errors import ConfigError, ToolError
from trunkline.net.addresses import is_loopback
from trunkline.servers.rest import ApiError, shown_address

__all__ = ["check_line", "demanded", "read_token", "without"]


def read_token(value: str | None, variable: str) -> str | None:
    """Give a token as it goes into a header; None if there is none.

    Raises:
        ConfigError: it holds characters that no token has.
    """
    token = (value or "").strip()
    if not all("!" <= each <= "~" for each in token):
        raise ConfigError(f"The value of {variable} is no token: it holds spaces or other characters that none has")
    return token or None


def demanded(token: str | None, why: str, variable: str) -> str:
    """Give the token of a server that may have started without one; ``why`` says what needs it.

    Raises:
        ToolError: there is none; it says which variable to set.
    """
    if token is None:
        raise ToolError(f"{why}: start the server with {variable} in its environment")
    return token


def check_line(url: str, service: str) -> None:
    """Make sure that a token does not travel in the open.

    Raises:
        ConfigError: the address is plain HTTP and not on this machine.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        # No address at all, which the client of the service says.
        return
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(
            f"The address of {service} must start with https://, since a token is sent there, "
            f"not {shown_address(url)!r}"
        )


def without(error: ApiError, token: str | None, hint: str = "") -> ApiError:
    """Give an error with a hint and without the token, should the service have repeated it."""
    said = str(error)
    if token:
        said = said.replace(token, "[token]")
        # What a service says is cut where it is long, perhaps in the middle of the token.
        cut = next((size for size in range(len(token) - 1, 3, -1) if said.endswith(f"{token[:size]}…")), 0)
        said = f"{said[: -cut - 1]}[token]" if cut else said
    return ApiError(said + hint, status=error.status, retry_after=error.retry_after)
