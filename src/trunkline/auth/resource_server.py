"""The resource server: stands between an HTTP endpoint and a verifier.

It admits requests with valid credentials, tells all others which credentials they need (RFC 6750) and where to get
them (RFC 9728), and serves the metadata for that. It is the only place where a failed check becomes a response; the
result is always either a principal or a denial.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from trunkline.auth.verifiers import (
    NONCE_REQUIRED,
    PROOF_ALGORITHMS,
    PROOF_ERRORS,
    Authenticate,
    InvalidToken,
    RequestTarget,
    ServerAuth,
    TargetedHeaders,
    Verifier,
)
from trunkline.auth.www_authenticate import format_challenge
from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.protocol.caller import AccessDenied, Principal, ScopeHierarchy, parse_scopes

__all__ = ["METADATA_PATH", "App", "FunctionVerifier", "ResourceServer"]

log = logging.getLogger("trunkline.auth")

#: The path of the metadata, followed by the path of the resource.
METADATA_PATH = "/.well-known/oauth-protected-resource"

#: An ASGI application.
App = Callable[[Any, Any, Any], Awaitable[None]]

_TOKEN_REQUIRED = "Authorization required: send a valid token"
# 2026-07-28, basic/authorization, Refresh Tokens: no resource needs this scope, so a server does not request it.
_NEVER_OFFERED = frozenset({"offline_access"})


class FunctionVerifier:
    """A verifier made of a function from headers to a principal, which may be async."""

    authorization_servers: Sequence[str] = ()
    scopes_supported: Sequence[str] = ()

    def __init__(self, function: Authenticate) -> None:
        """Wrap a function."""
        self._function = function

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Call the function and return its result."""
        found = self._function(headers)
        principal: Principal | None = await found if isinstance(found, Awaitable) else found
        return principal


class ResourceServer:
    """Admits requests to one endpoint, or answers what they lack."""

    def __init__(
        self,
        auth: ServerAuth,
        *,
        path: str,
        name: str,
        resource: str | None = None,
        hierarchy: ScopeHierarchy | None = None,
        scopes: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Protect the endpoint at a path; ``scopes`` returns the scopes that its parts need.

        Raises:
            ConfigError: the resource is not a URL.
        """
        verifier: Any = auth if isinstance(auth, Verifier) else FunctionVerifier(auth)
        self._verify = verifier.verify
        self._binding = getattr(verifier, "binding", None)
        self._dpop: str = getattr(self._binding, "mode", "off")
        self._path = path.rstrip("/")
        self._name = name
        self._resource = _url(resource or getattr(verifier, "resource", None))
        self._hierarchy = hierarchy or ScopeHierarchy()
        self._verifier = verifier
        self._scopes = scopes
        self._required = parse_scopes(getattr(verifier, "required_scopes", ()), "required_scopes")
        self._scheme: str = getattr(verifier, "scheme", "Bearer")
        name_of_header: str = getattr(verifier, "header", "authorization")
        #: The header that carries the credentials.
        self.header: bytes = name_of_header.lower().encode()
        routes: Callable[[], Mapping[str, App]] | None = getattr(verifier, "routes", None)
        self._routes: Mapping[str, App] = MappingProxyType({} if routes is None else dict(routes()))

    # --- admission ---------------------------------------------------------------------------------------------------

    async def authenticate(self, headers: Mapping[str, str], *, method: str, url: str) -> Principal | AccessDenied:
        """Authenticate a request; return its principal, or why it is denied. A failing verifier admits no request.

        Raises:
            StoreUnavailable: what several workers share is needed to decide, and cannot be reached now.
        """
        try:
            if "dpop" in headers:
                headers = TargetedHeaders(headers, RequestTarget(method, self._known_as(url)))
            principal = await self._verify(headers)
        except InvalidToken as error:
            return AccessDenied(status=401, message=f"{error}", error=error.code, scopes=self._offered())
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("authentication failed")
            principal = None
        if not isinstance(principal, Principal):
            if principal is not None:
                log.error("auth= returned %s instead of a Principal: the request is rejected", type(principal).__name__)
            return AccessDenied(status=401, message=_TOKEN_REQUIRED, scopes=self._offered())
        if self._required and not self._hierarchy.covers(principal.scopes, self._required):
            message = f"Insufficient scope: this server needs {' '.join(self._required)}"
            return AccessDenied(status=403, message=message, error="insufficient_scope", scopes=self._required)
        return principal

    def _known_as(self, url: str) -> tuple[str, ...]:
        """Return the URLs that a proof may name for a request.

        A client behind a proxy knows another URL than the one we see, so if the resource URL is configured, only it
        counts.
        """
        if self._resource is None:
            return (url,)
        ours, path = urlsplit(self._resource), urlsplit(url).path
        named = f"{ours.scheme}://{ours.netloc}{path}"
        return (named, self._resource) if path.rstrip("/").endswith(self._path) else (named,)

    def fields(self, denied: AccessDenied) -> Sequence[tuple[bytes, bytes]]:
        """Return further headers of a denial: the nonce for the next proof."""
        binding = self._binding
        if denied.error != NONCE_REQUIRED or binding is None or not binding.proofs.requires_nonce:
            return ()
        return ((b"dpop-nonce", binding.proofs.nonce().encode()), (b"cache-control", b"no-store"))

    def challenge(self, denied: AccessDenied, *, origin: str, root: str) -> str:
        """Return the ``WWW-Authenticate`` header of a denial, which lists all needed scopes at once."""
        scopes = denied.scopes
        if denied.status == 403:
            scopes = tuple(dict.fromkeys((*self._required, *scopes)))
        elif not self._issuers():
            scopes = ()
        own = () if self.header == b"authorization" else (("header", self.header.decode()),)
        metadata = self._metadata_url(origin, root) if self._issuers() else None

        def written(scheme: str, error: str | None, more: tuple[tuple[str, str], ...]) -> str:
            return format_challenge(
                scheme, metadata=metadata, scopes=scopes, error=error, description=denied.message, more=more
            )

        if self._dpop == "off":
            return written(self._scheme, denied.error, own)
        algorithms = (("algs", " ".join(PROOF_ALGORITHMS)),)
        if self._dpop == "required":
            return written("DPoP", denied.error, algorithms)
        # Clients follow the first challenge; an invalid proof concerns DPoP and not Bearer.
        if denied.error in PROOF_ERRORS:
            return f"{written('DPoP', denied.error, algorithms)}, {written('Bearer', None, own)}"
        return f"{written('Bearer', denied.error, own)}, {written('DPoP', None, algorithms)}"

    # --- metadata ----------------------------------------------------------------------------------------------------

    def route(self, path: str) -> App | None:
        """Return the application at a path besides the endpoint: the metadata, or a route of the verifier."""
        return self._routes.get(path) or (self._serve_metadata if self._is_metadata(path) else None)

    def metadata(self, *, origin: str, path: str) -> dict[str, Any]:
        """Return the protected resource metadata; without a configured resource URL, for the URL that was called."""
        offered = self._offered()
        return {
            "resource": self._resource or f"{origin}{path}",
            "authorization_servers": list(self._issuers()),
            # RFC 9728, 3.2: empty lists are left out.
            **({"scopes_supported": list(offered)} if offered else {}),
            "bearer_methods_supported": ["header"],
            **({} if self._dpop == "off" else {"dpop_signing_alg_values_supported": list(PROOF_ALGORITHMS)}),
            **({"dpop_bound_access_tokens_required": True} if self._dpop == "required" else {}),
            "resource_name": self._name,
        }

    def _metadata_url(self, origin: str, root: str) -> str:
        if self._resource is None:
            return f"{origin}{METADATA_PATH}{root}{self._path}"
        parts = urlsplit(self._resource)
        return f"{parts.scheme}://{parts.netloc}{METADATA_PATH}{parts.path.rstrip('/')}"

    def _is_metadata(self, path: str) -> bool:
        if not path.startswith(METADATA_PATH) or not self._issuers():
            return False
        below = path[len(METADATA_PATH) :].rstrip("/")
        if below in ("", self._path):
            return True
        if self._resource is not None:
            return below == urlsplit(self._resource).path.rstrip("/")
        # Mounted in another application: the mount point precedes the endpoint's own path.
        return below.startswith("/") and below.endswith(self._path)

    async def _serve_metadata(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _respond(send, 405, b"", (b"allow", b"GET, HEAD"))
            return
        path: str = scope["path"]
        root = scope.get("root_path", "")
        root = "" if path.startswith(METADATA_PATH) else root
        below = path[len(root) + len(METADATA_PATH) :].rstrip("/")
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        document = self.metadata(origin=f"{scope['scheme']}://{host}", path=below or f"{root}{self._path}")
        body = msgspec.json.encode(document)
        await _respond(send, 200, body if scope["method"] == "GET" else b"", (b"cache-control", b"max-age=300"))

    def _issuers(self) -> Sequence[str]:
        issuers: Sequence[str] = self._verifier.authorization_servers
        return issuers

    def _offered(self) -> tuple[str, ...]:
        """Return the scopes for a client to request: those the verifier lists, else all that are used here."""
        given = self._verifier.scopes_supported or (*self._required, *self._scopes())
        return tuple(dict.fromkeys(scope for scope in given if scope not in _NEVER_OFFERED))


def _url(resource: str | None) -> str | None:
    if resource is None:
        return None
    parts = urlsplit(resource)
    # RFC 9728, 1.2: a resource is an https URL without a fragment; http is for development.
    if parts.scheme not in ("https", "http") or not parts.netloc or parts.fragment or "@" in parts.netloc:
        raise ConfigError(f"resource={resource!r}: must be the http(s) URL of the endpoint as clients know it")
    return resource


async def _respond(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    own = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})
