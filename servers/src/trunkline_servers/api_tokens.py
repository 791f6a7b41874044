"""The token of a service that a reference server uses: read once, sent only over secure connections, never shown.

A token comes from the environment of the server; without one the server still starts, and calls that need it fail with
a message. It must be valid in a header, it is sent only where it cannot be read on the way, and messages of the service
never carry it back to a model.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from trunkline.errors import ConfigError, ToolError
from trunkline.net import is_loopback
from trunkline_servers.api_client import ApiError, redacted_url

__all__ = ["read_token", "redact_token", "require_secure_url", "require_token"]


def read_token(value: str | None, variable: str) -> str | None:
    """Return a token ready for a header; None if there is none.

    Raises:
        ConfigError: it contains characters that no token has.
    """
    token = (value or "").strip()
    if not all("!" <= each <= "~" for each in token):
        raise ConfigError(
            f"The value of {variable} is not a valid token: it contains spaces or other invalid characters"
        )
    return token or None


def require_token(token: str | None, why: str, variable: str) -> str:
    """Return the token, or raise if the server was started without one; ``why`` says what needs it.

    Raises:
        ToolError: there is none; the message names the variable to set.
    """
    if token is None:
        raise ToolError(f"{why}: start the server with {variable} in its environment")
    return token


def require_secure_url(url: str, service: str) -> None:
    """Check that a token would not be sent in the clear.

    Raises:
        ConfigError: the URL is plain HTTP and not on this machine.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        # An invalid URL is reported by the API client.
        return
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(
            f"The address of {service} must start with https://, since a token is sent there, not {redacted_url(url)!r}"
        )


def redact_token(error: ApiError, token: str | None, hint: str = "") -> ApiError:
    """Return an error with a hint and with the token redacted, in case the service repeated it."""
    said = str(error)
    if token:
        said = said.replace(token, "[token]")
        # A long message is truncated, perhaps in the middle of the token.
        cut = next((size for size in range(len(token) - 1, 3, -1) if said.endswith(f"{token[:size]}…")), 0)
        said = f"{said[: -cut - 1]}[token]" if cut else said
    return ApiError(said + hint, status=error.status, retry_after=error.retry_after)
