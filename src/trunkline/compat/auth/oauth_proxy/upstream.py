"""The client of an identity provider's token endpoint."""

from __future__ import annotations

import base64
import time
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from trunkline.compat.auth.http_client import httpx2

try:
    # FastMCP brings it along, and programs catch its error.
    from authlib.integrations.base_client import OAuthError  # type: ignore[import-untyped, unused-ignore]
except ImportError:

    class OAuthError(Exception):  # type: ignore[no-redef]
        """The identity provider refuses a request, with a code of the standard."""

        def __init__(self, error: str | None = None, description: str | None = None, **_: Any) -> None:
            """Keep the code and the text."""
            super().__init__(f"{error}: {description}" if description else f"{error}")
            self.error = error
            self.description = description


__all__ = ["AsyncOAuth2Client", "OAuthError"]

_HEADERS = MappingProxyType(
    {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded;charset=UTF-8"}
)


class AsyncOAuth2Client:
    """Exchanges codes and refresh tokens at a token endpoint."""

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        token_endpoint_auth_method: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Initialize with our credentials at the provider."""
        self.client_id = client_id
        self.client_secret = client_secret
        self.token_endpoint_auth_method = token_endpoint_auth_method or (
            "client_secret_basic" if client_secret else "none"
        )
        self._client = httpx2.AsyncClient(timeout=timeout)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def fetch_token(self, url: str, *, grant_type: str = "authorization_code", **params: Any) -> dict[str, Any]:
        """Exchange a code, or use another grant.

        Raises:
            OAuthError: the provider refuses.
        """
        return await self._request(url, {"grant_type": grant_type, **params})

    async def refresh_token(self, url: str, *, refresh_token: str | None = None, **params: Any) -> dict[str, Any]:
        """Exchange a refresh token; the old one stays in the answer if the provider sends no new one.

        Raises:
            OAuthError: the provider refuses.
        """
        found = await self._request(url, {"grant_type": "refresh_token", "refresh_token": refresh_token, **params})
        if not found.get("refresh_token"):
            found["refresh_token"] = refresh_token
        return found

    async def _request(self, url: str, params: dict[str, Any]) -> dict[str, Any]:
        form = {name: value for name, value in params.items() if value}
        headers = dict(_HEADERS)
        self._authenticate(form, headers)
        response = await self._client.post(url, data=form, headers=headers)
        if response.status_code >= 500:
            response.raise_for_status()
        try:
            found = response.json()
        except ValueError:
            response.raise_for_status()
            raise
        if not isinstance(found, dict):
            raise OAuthError("invalid_response", "the token endpoint did not answer with an object")
        if "error" in found:
            raise OAuthError(found["error"], found.get("error_description"))
        response.raise_for_status()
        if "expires_at" not in found and found.get("expires_in"):
            found["expires_at"] = int(time.time()) + int(found["expires_in"])
        return found

    def _authenticate(self, form: dict[str, Any], headers: dict[str, str]) -> None:
        method = self.token_endpoint_auth_method
        if method == "client_secret_basic":
            # RFC 6749, 2.3.1: both are form-encoded first.
            given = f"{quote(self.client_id, safe='')}:{quote(self.client_secret or '', safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(given.encode()).decode()}"
        elif method == "client_secret_post":
            form |= {"client_id": self.client_id, "client_secret": self.client_secret or ""}
        elif method == "none":
            form["client_id"] = self.client_id
        else:
            raise ValueError(f"Unsupported token_endpoint_auth_method: {method!r}")
