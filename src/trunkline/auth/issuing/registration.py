"""Validation of client metadata: of a registration request (RFC 7591), and of a client ID metadata document.

Nothing a client says about itself makes it trusted. It chooses its redirect URIs, which are shown to users, and its
authentication method; it cannot give itself rights that only a configuration grants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trunkline.auth.issuing.faults import OAuthFault
from trunkline.auth.issuing.records import OAuthClient, digest, new_secret
from trunkline.auth.issuing.redirects import redirect_fault

__all__ = ["AUTH_METHODS", "read_metadata", "registration_answer"]

#: The supported client authentication methods of the token endpoint.
AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
#: The grant types a client may register for: never one without a user.
_GRANTS = frozenset({"authorization_code", "refresh_token"})
_REDIRECTS = 16
_NAME = 100
_KEYS = 10
# Control characters, and those that reorder or hide the text around them.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def read_metadata(
    given: Mapping[str, Any], *, client_id: str, source: str, schemes: Iterable[str] = ()
) -> tuple[OAuthClient, str | None]:
    """Build a client from its metadata; return it with its new secret, if its method needs one.

    Raises:
        OAuthError: the metadata is not valid.
    """
    redirect_uris = _texts(given, "redirect_uris")
    if not 1 <= len(redirect_uris) <= _REDIRECTS:
        raise OAuthFault("invalid_redirect_uri", f"redirect_uris must have 1 to {_REDIRECTS} entries")
    for uri in redirect_uris:
        if fault := redirect_fault(uri, schemes=schemes):
            raise OAuthFault("invalid_redirect_uri", f"A redirect URI {fault}")
    grant_types = _texts(given, "grant_types") or ["authorization_code"]
    if "authorization_code" not in grant_types:
        raise _fault("grant_types must contain authorization_code")
    if "code" not in (_texts(given, "response_types") or ["code"]):
        raise _fault("response_types must contain code")
    method = given.get("token_endpoint_auth_method") or ("none" if source == "document" else "client_secret_basic")
    if method not in AUTH_METHODS or (source == "document" and method.startswith("client_secret")):
        raise _fault("token_endpoint_auth_method is not supported")
    jwks, jwks_uri = _keys(given) if method == "private_key_jwt" else (None, None)
    secret = new_secret() if method.startswith("client_secret") else None
    scope = given.get("scope")
    client = OAuthClient(
        client_id=client_id,
        client_name=_name(given.get("client_name")),
        redirect_uris=tuple(redirect_uris),
        grant_types=tuple(sorted(_GRANTS.intersection(grant_types))),
        jwks=jwks,
        jwks_uri=jwks_uri,
        scopes=tuple(scope.split()) if isinstance(scope, str) and scope.strip() else None,
        source=source,
        secret_digest=None if secret is None else digest(secret),
    )
    return client, secret


def registration_answer(
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


def _name(value: object) -> str:
    """Return a name that is safe to show: short, on one line, without bidirectional overrides."""
    return " ".join(_UNSEEN.sub("", value).split())[:_NAME] if isinstance(value, str) else ""


def _keys(given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    jwks, uri = given.get("jwks"), given.get("jwks_uri")
    keys = jwks.get("keys") if isinstance(jwks, dict) else None
    if uri is None and isinstance(keys, list) and 1 <= len(keys) <= _KEYS:
        if any(not isinstance(key, dict) or key.get("kty") == "oct" or "d" in key for key in keys):
            raise _fault("jwks must contain public keys only")
        return {"keys": keys}, None
    if jwks is None and isinstance(uri, str) and uri.startswith("https://") and len(uri) < 2000:
        return None, uri
    raise _fault("private_key_jwt needs jwks with one to ten keys, or an https jwks_uri")


def _texts(given: Mapping[str, Any], name: str) -> list[str]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _fault(f"{name} must be a list of strings")
    return value


def _fault(sentence: str) -> OAuthFault:
    return OAuthFault("invalid_client_metadata", sentence)
