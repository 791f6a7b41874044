"""The clients of the authorization server.

Configured, registered dynamically (RFC 7591), or described by a client ID metadata document. Nothing a client says
about itself makes it trusted. A document is fetched at a stranger's request, so only with the guarded HTTP client,
without following redirects, rate-limited, and cached whether it was valid or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec

from trunkline.auth.authorization_server.records import OAuthClient, digest, new_secret
from trunkline.auth.authorization_server.settings import IssuerSettings
from trunkline.auth.authorization_server.storage import Records
from trunkline.auth.authorization_server.web import OAuthError, RateLimiter
from trunkline.errors import ConfigError, LinkError
from trunkline.store.interface import Step

__all__ = [
    "AUTH_METHODS",
    "ClientRegistry",
    "add_query_parameters",
    "host_of",
    "is_loopback_uri",
    "is_registered",
    "origin_of",
    "parse_client_metadata",
    "redirect_uri_problem",
    "registration_response",
]

_LONGEST = 2000  # Browsers and proxies cut longer URLs.
# The characters of RFC 3986; neither white space nor a backslash, which browsers read as a slash.
_WRITTEN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
# The part before the port, the port, and the rest.
_LOOPBACK_PORT = re.compile(r"(http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::([1-9][0-9]{0,4}))?((?:[/?].*)?)")
#: Schemes that browsers handle themselves, so that they cannot belong to an application.
_TAKEN = frozenset(
    ("about", "blob", "data", "file", "filesystem", "ftp", "http", "https", "javascript", "mailto")
).union(("vbscript", "view-source", "ws", "wss"))


def redirect_uri_problem(uri: object, *, schemes: Iterable[str] = ()) -> str | None:
    """Return what is wrong with a redirect URI; None if it is acceptable.

    ``schemes`` are private-use schemes of applications, allowed besides https and loopback.
    """
    if not isinstance(uri, str) or len(uri) > _LONGEST or not _WRITTEN.fullmatch(uri):
        return "is not a valid URI"
    parts = _split(uri)
    if parts is None:
        return "is not a valid URI"
    if "#" in uri:
        return "has a fragment"
    if parts.scheme in schemes and parts.scheme not in _TAKEN:
        return None
    if "@" in parts.netloc or not _HOST.fullmatch(_name(parts)):
        return "has no plain host"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback_uri(uri)):
        return None
    return "is neither https nor http at a loopback address"


def is_registered(uri: str, known: Iterable[str]) -> bool:
    """Return True if a URI is among those that a client registered, compared as written except for a loopback port.

    ``known`` were checked by ``redirect_uri_problem``, so a URI that equals one has no fragment or control character.
    """
    return any(uri == one or _same_but_port(uri, one) for one in known)


def is_loopback_uri(uri: str) -> bool:
    """Return True if a URI is an http URI on the user's own machine."""
    parts = _split(uri)
    return parts is not None and parts.scheme == "http" and _name(parts) in _LOOPBACK


def host_of(uri: str) -> str:
    """Return the part that the user should check: the host, or the scheme of an application."""
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def origin_of(uri: str) -> str:
    """Return the origin of a URI, as a content security policy names it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def add_query_parameters(uri: str, parameters: Mapping[str, str | None]) -> str:
    """Add parameters to a URI that may already have some; those that are None are left out."""
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{uri}{'&' if '?' in uri else '?'}{added}"


def _same_but_port(uri: str, known: str) -> bool:
    one, other = _LOOPBACK_PORT.fullmatch(uri), _LOOPBACK_PORT.fullmatch(known)
    if one is None or other is None or int(one[2] or 0) > 65535:
        return False
    return (one[1], one[3]) == (other[1], other[3])


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _name(parts: SplitResult) -> str:
    """Return the host as written, without the port."""
    return re.sub(r":\d*$", "", parts.netloc)


#: The supported client authentication methods of the token endpoint.
AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
#: The grant types a client may register for: never one without a user.
_GRANTS = frozenset({"authorization_code", "refresh_token"})
_REDIRECTS = 16  # A client has one for each platform; real ones register at most a handful.
_NAME = 100  # It is shown on the consent page, in one line.
_KEYS = 10  # Two are needed while keys rotate.
# Control characters, and those that reorder or hide the text around them.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def parse_client_metadata(
    given: Mapping[str, Any], *, client_id: str, source: str, schemes: Iterable[str] = ()
) -> tuple[OAuthClient, str | None]:
    """Build a client from its metadata; return it with its new secret, if its method needs one.

    Raises:
        OAuthError: the metadata is not valid.
    """
    redirect_uris = _texts(given, "redirect_uris")
    if not 1 <= len(redirect_uris) <= _REDIRECTS:
        raise OAuthError("invalid_redirect_uri", f"redirect_uris must have 1 to {_REDIRECTS} entries")
    for uri in redirect_uris:
        if fault := redirect_uri_problem(uri, schemes=schemes):
            raise OAuthError("invalid_redirect_uri", f"A redirect URI {fault}")
    grant_types = _texts(given, "grant_types") or ["authorization_code"]
    if "authorization_code" not in grant_types:
        raise _invalid_metadata("grant_types must contain authorization_code")
    if "code" not in (_texts(given, "response_types") or ["code"]):
        raise _invalid_metadata("response_types must contain code")
    method = given.get("token_endpoint_auth_method") or ("none" if source == "document" else "client_secret_basic")
    if method not in AUTH_METHODS or (source == "document" and method.startswith("client_secret")):
        raise _invalid_metadata("token_endpoint_auth_method is not supported")
    jwks, jwks_uri = _keys(given) if method == "private_key_jwt" else (None, None)
    secret = new_secret() if method.startswith("client_secret") else None
    scope = given.get("scope")
    client = OAuthClient(
        client_id=client_id,
        client_name=_client_name(given.get("client_name")),
        redirect_uris=tuple(redirect_uris),
        grant_types=tuple(sorted(_GRANTS.intersection(grant_types))),
        jwks=jwks,
        jwks_uri=jwks_uri,
        scopes=tuple(scope.split()) if isinstance(scope, str) and scope.strip() else None,
        source=source,
        secret_digest=None if secret is None else digest(secret),
    )
    return client, secret


def registration_response(
    client: OAuthClient, secret: str | None, given: Mapping[str, Any], *, now: float
) -> dict[str, Any]:
    """Return the registration response: all metadata that was accepted (RFC 7591, 3.2.1)."""
    method = given.get("token_endpoint_auth_method") or "client_secret_basic"
    answer: dict[str, Any] = {
        "client_id": client.client_id,
        "client_id_issued_at": int(now),
        "redirect_uris": client.redirect_uris,
        "grant_types": client.grant_types,
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if secret is not None:
        answer |= {"client_secret": secret, "client_secret_expires_at": 0}
    if client.client_name:
        answer["client_name"] = client.client_name
    if client.scopes is not None:
        answer["scope"] = " ".join(client.scopes)
    if client.jwks is not None:
        answer["jwks"] = client.jwks
    if client.jwks_uri is not None:
        answer["jwks_uri"] = client.jwks_uri
    if given.get("application_type") in ("native", "web"):
        answer["application_type"] = given["application_type"]
    return answer


def _client_name(value: object) -> str:
    """Return a name that is safe to show: short, on one line, without bidirectional overrides."""
    return " ".join(_UNSEEN.sub("", value).split())[:_NAME] if isinstance(value, str) else ""


def _keys(given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    jwks, uri = given.get("jwks"), given.get("jwks_uri")
    keys = jwks.get("keys") if isinstance(jwks, dict) else None
    if uri is None and isinstance(keys, list) and 1 <= len(keys) <= _KEYS:
        if any(not isinstance(key, dict) or key.get("kty") == "oct" or "d" in key for key in keys):
            raise _invalid_metadata("jwks must contain public keys only")
        return {"keys": keys}, None
    if jwks is None and isinstance(uri, str) and uri.startswith("https://") and len(uri) < 2000:
        return None, uri
    raise _invalid_metadata("private_key_jwt needs jwks with one to ten keys, or an https jwks_uri")


def _texts(given: Mapping[str, Any], name: str) -> list[str]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _invalid_metadata(f"{name} must be a list of strings")
    return value


def _invalid_metadata(sentence: str) -> OAuthError:
    return OAuthError("invalid_client_metadata", sentence)


_DOCUMENT_BYTES = 16 * 1024  # Client metadata documents have about 1 KiB.
_DOCUMENT_SECONDS = 5.0  # A user waits for the consent page meanwhile.
# Bounds for the cache lifetime of a document: the least, the usual and the most.
_CACHE_SECONDS = (60.0, 3600.0, 24 * 3600.0)
_BAD_SECONDS = 30.0  # An invalid document is asked for again soon: its author may be fixing it.
_DOCUMENTS = 256  # Documents kept: far more than the clients of one server.
_PER_MINUTE = 20  # Registrations, and fetches of documents, from one address: far more than a person starts.
_ALL_PER_MINUTE = 300  # Fetches from all addresses together, so that this server is no tool for flooding another.
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,9})(?:$|[,\s])")


class ClientRegistry:
    """Finds clients by id, and registers new ones."""

    def __init__(
        self, settings: IssuerSettings, records: Records, *, clients: Iterable[OAuthClient], fetcher: Any
    ) -> None:
        """Load the configured clients.

        Raises:
            ConfigError: one of them is not valid.
        """
        self._settings = settings
        self._records = records
        self._fetcher = fetcher
        self._configured = {client.client_id: _configured(client, settings) for client in clients}
        #: The clients of documents, or why a document is not valid, with the expiry of that result.
        self._documents: dict[str, tuple[OAuthClient | str, float]] = {}
        self._jwks: dict[str, tuple[dict[str, Any], float]] = {}
        self._registering = RateLimiter(records, "registrations", most=_PER_MINUTE, seconds=60.0)
        self._fetching = RateLimiter(records, "documents", most=_PER_MINUTE, seconds=60.0)
        self._fetching_all = RateLimiter(records, "all documents", most=_ALL_PER_MINUTE, seconds=60.0)

    @property
    def grant_types(self) -> list[str]:
        """The grant types that any client may use."""
        machines = any("client_credentials" in each.grant_types for each in self._configured.values())
        return ["authorization_code", "refresh_token", *(["client_credentials"] if machines else [])]

    async def find(self, client_id: str, *, address: str) -> OAuthClient:
        """Return a client by its id.

        Raises:
            OAuthError: there is no such client, or its document is not valid.
        """
        if found := self._configured.get(client_id):
            return found
        if self._settings.documents and client_id.startswith("https://"):
            return await self._document(client_id, address)
        registered = await self._records.get("client", client_id, OAuthClient)
        if registered is None:
            raise OAuthError("invalid_client", "Unknown client_id; the client may have to register again")
        return registered.record

    def renewal(self, client: OAuthClient) -> tuple[Step, ...]:
        """Return the steps that extend the lifetime of a dynamically registered client that is in use."""
        if client.source != "registered":
            return ()
        # Without a condition: what is stored of a client never changes.
        seconds, name = self._settings.lifetimes.used_client, client.client_id
        return (
            self._records.put("client", name, client, seconds=seconds),
            self._records.listed("client", name, seconds=seconds),
        )

    # --- registration ------------------------------------------------------------------------------------------------

    async def register(self, given: Mapping[str, Any], *, address: str) -> dict[str, Any]:
        """Register a client; it expires after an hour unless it is used. Return the registration response.

        Raises:
            OAuthError: its metadata is not valid, or there are too many clients.
        """
        now = self._settings.clock()
        if wait := await self._registering.count(address):
            raise _too_many("Too many registrations", wait)
        client, secret = parse_client_metadata(
            given, client_id=new_secret(), source="registered", schemes=self._settings.redirect_schemes
        )
        seconds, most = self._settings.lifetimes.unused_client, self._settings.registered_clients
        stored = await self._records.commit(
            self._records.add("client", client.client_id, client, seconds=seconds),
            self._records.listed("client", client.client_id, seconds=seconds, most=most),
        )
        if not stored.done:
            raise _too_many("Too many registrations", 60)
        return registration_response(client, secret, given, now=now)

    # --- documents ---------------------------------------------------------------------------------------------------

    async def _document(self, url: str, address: str) -> OAuthClient:
        now = self._settings.clock()
        known, until = self._documents.get(url, ("", 0.0))
        if until <= now:
            known, seconds = await self._fetched(url, address)
            if len(self._documents) >= _DOCUMENTS:
                self._documents.clear()
            self._documents[url] = known, now + seconds
        if isinstance(known, str):
            raise OAuthError("invalid_client", f"The document at the client_id URL {known}")
        return known

    async def _fetched(self, url: str, address: str) -> tuple[OAuthClient | str, float]:
        if fault := _document_url_problem(url):
            return fault, _BAD_SECONDS
        try:
            answer = await self._get(url, address)
            given = msgspec.json.decode(answer.body, type=dict[str, Any])
            # Compared as they are written: RFC 3986, 6.2.1.
            if given.get("client_id") != url:
                return "has a client_id that differs from its URL", _BAD_SECONDS
            if "client_secret" in given or not given.get("client_name"):
                return "must have a client_name and no client_secret", _BAD_SECONDS
            schemes = self._settings.redirect_schemes
            client, _ = parse_client_metadata(given, client_id=url, source="document", schemes=schemes)
        except LinkError:
            return "could not be fetched", _BAD_SECONDS
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "is not a JSON object", _BAD_SECONDS
        except OAuthError as refused:
            if refused.status == 429:
                raise
            return f"is not valid: {refused.description}", _BAD_SECONDS
        return client, _lifetime(answer.headers.get("cache-control", ""))

    async def _get(self, url: str, address: str) -> Any:
        """Fetch a document.

        Raises:
            OAuthError: the rate limit is reached.
            LinkError: it cannot be fetched.
        """
        if wait := await self._fetching.count(address) or await self._fetching_all.count(""):
            raise _too_many("Too many client documents requested", wait)
        if self._fetcher is None:
            from trunkline.net import Fetcher

            self._fetcher = Fetcher()
        answer = await self._fetcher.fetch(
            "GET",
            url,
            headers={"accept": "application/json"},
            max_bytes=_DOCUMENT_BYTES,
            seconds=_DOCUMENT_SECONDS,
            redirects=0,
        )
        content_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status != 200 or not (content_type == "application/json" or content_type.endswith("+json")):
            raise LinkError("the response is not a JSON document")
        return answer

    async def keys_of(self, client: OAuthClient, *, address: str) -> dict[str, Any]:
        """Return the public keys of a client.

        Raises:
            OAuthError: they cannot be fetched.
        """
        if client.jwks is not None or client.jwks_uri is None:
            return client.jwks or {"keys": []}
        now = self._settings.clock()
        keys, until = self._jwks.get(client.jwks_uri, ({}, 0.0))
        if until <= now:
            try:
                keys = msgspec.json.decode((await self._get(client.jwks_uri, address)).body, type=dict[str, Any])
            except (LinkError, msgspec.DecodeError, UnicodeDecodeError):
                raise OAuthError("invalid_client", "The keys at jwks_uri could not be fetched", status=401) from None
            if len(self._jwks) >= _DOCUMENTS:
                self._jwks.clear()
            self._jwks[client.jwks_uri] = keys, now + _CACHE_SECONDS[0]
        return keys

    async def aclose(self) -> None:
        """Close the HTTP client."""
        if self._fetcher is not None:
            await self._fetcher.aclose()


def _configured(client: OAuthClient, settings: IssuerSettings) -> OAuthClient:
    for uri in client.redirect_uris:
        if fault := redirect_uri_problem(uri, schemes=settings.redirect_schemes):
            raise ConfigError(f"client {client.client_id!r}: the redirect URI {uri!r} {fault}")
    secret = client.client_secret
    ready = msgspec.structs.replace(
        client, client_secret=None, secret_digest=None if secret is None else digest(secret), source="configured"
    )
    if "client_credentials" in client.grant_types and ready.is_public:
        raise ConfigError(
            f"client {client.client_id!r}: the client_credentials grant needs client_secret=, jwks= or jwks_uri="
        )
    return ready


def _document_url_problem(url: str) -> str | None:
    """Return what is wrong with the URL of a document, which needs a plain host and a path without dot segments."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "has a malformed URL"
    steps = parts.path.split("/")
    if len(url) > 500 or not url.isascii() or "#" in url or "@" in parts.netloc or not parts.hostname:
        return "has a URL that is too long, or contains a fragment or user information"
    if parts.path in ("", "/") or {".", ".."} & {step.lower().replace("%2e", ".") for step in steps}:
        return "has a URL without a plain path"
    return None


def _lifetime(cache_control: str) -> float:
    least, usual, most = _CACHE_SECONDS
    said = _MAX_AGE.search(cache_control.lower())
    if "no-store" in cache_control.lower() or "no-cache" in cache_control.lower():
        return least
    return usual if said is None else min(max(float(said[1]), least), most)


def _too_many(sentence: str, wait: int) -> OAuthError:
    headers = (("retry-after", str(wait)),)
    return OAuthError("temporarily_unavailable", f"{sentence}; try again in {wait} s", status=429, headers=headers)
