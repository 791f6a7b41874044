"""``OIDCProxy``: the OAuth proxy configured from an identity provider's OpenID Connect discovery document."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from time import monotonic
from typing import Any, Self

from pydantic import AnyHttpUrl, BaseModel, TypeAdapter, ValidationError, model_validator

from trunkline.compat.auth.http_client import httpx2
from trunkline.compat.auth.jwt_verifier import JWTVerifier
from trunkline.compat.auth.oauth_proxy.models import UpstreamTokenSet
from trunkline.compat.auth.oauth_proxy.proxy import OAuthProxy

__all__ = [
    "DEFAULT_OIDC_DISCOVERY_TIMEOUT_SECONDS",
    "OIDC_DISCOVERY_CACHE_TTL_SECONDS",
    "OIDCConfiguration",
    "OIDCProxy",
    "clear_oidc_configuration_cache",
    "set_expected_scopes",
]

DEFAULT_OIDC_DISCOVERY_TIMEOUT_SECONDS = 10  # The start of a server waits for it.
OIDC_DISCOVERY_CACHE_TTL_SECONDS = 300  # Several providers of one process share a document.
_CACHED_DOCUMENTS = 128  # More than any process has providers.


class _DocumentCache:
    """The documents that were fetched lately."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._documents: OrderedDict[tuple[Any, ...], tuple[float, dict[str, Any]]] = OrderedDict()

    def get(self, key: tuple[Any, ...], now: float) -> dict[str, Any] | None:
        """Return a copy of a document that is still fresh."""
        with self._lock:
            found = self._documents.get(key)
        fresh = found is not None and now - found[0] < OIDC_DISCOVERY_CACHE_TTL_SECONDS
        return copy.deepcopy(found[1]) if found is not None and fresh else None

    def put(self, key: tuple[Any, ...], document: dict[str, Any], now: float) -> None:
        """Keep a copy of a document."""
        with self._lock:
            self._documents[key] = (now, copy.deepcopy(document))
            while len(self._documents) > _CACHED_DOCUMENTS:
                self._documents.popitem(last=False)

    def clear(self) -> None:
        """Forget all documents."""
        with self._lock:
            self._documents.clear()


_CACHE = _DocumentCache()

#: OpenID Connect Discovery 1.0, 3.
_REQUIRED = (
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "jwks_uri",
    "response_types_supported",
    "subject_types_supported",
    "id_token_signing_alg_values_supported",
)
_URLS = (
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "userinfo_endpoint",
    "jwks_uri",
    "registration_endpoint",
    "service_documentation",
    "op_policy_uri",
    "op_tos_uri",
    "revocation_endpoint",
    "introspection_endpoint",
)
_URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)
Strings = Sequence[str] | None
Url = AnyHttpUrl | str | None


def clear_oidc_configuration_cache() -> None:
    """Forget the documents that were fetched."""
    _CACHE.clear()


class OIDCConfiguration(BaseModel):
    """A discovery document; a strict one must have what the standard requires."""

    strict: bool = True

    issuer: Url = None
    authorization_endpoint: Url = None
    token_endpoint: Url = None
    userinfo_endpoint: Url = None
    jwks_uri: Url = None
    registration_endpoint: Url = None
    scopes_supported: Strings = None
    response_types_supported: Strings = None
    response_modes_supported: Strings = None
    grant_types_supported: Strings = None
    acr_values_supported: Strings = None
    subject_types_supported: Strings = None
    id_token_signing_alg_values_supported: Strings = None
    id_token_encryption_alg_values_supported: Strings = None
    id_token_encryption_enc_values_supported: Strings = None
    userinfo_signing_alg_values_supported: Strings = None
    userinfo_encryption_alg_values_supported: Strings = None
    userinfo_encryption_enc_values_supported: Strings = None
    request_object_signing_alg_values_supported: Strings = None
    request_object_encryption_alg_values_supported: Strings = None
    request_object_encryption_enc_values_supported: Strings = None
    token_endpoint_auth_methods_supported: Strings = None
    token_endpoint_auth_signing_alg_values_supported: Strings = None
    display_values_supported: Strings = None
    claim_types_supported: Strings = None
    claims_supported: Strings = None
    service_documentation: Url = None
    claims_locales_supported: Strings = None
    ui_locales_supported: Strings = None
    claims_parameter_supported: bool | None = None
    request_parameter_supported: bool | None = None
    request_uri_parameter_supported: bool | None = None
    require_request_uri_registration: bool | None = None
    op_policy_uri: Url = None
    op_tos_uri: Url = None
    revocation_endpoint: Url = None
    revocation_endpoint_auth_methods_supported: Strings = None
    revocation_endpoint_auth_signing_alg_values_supported: Strings = None
    introspection_endpoint: Url = None
    introspection_endpoint_auth_methods_supported: Strings = None
    introspection_endpoint_auth_signing_alg_values_supported: Strings = None
    code_challenge_methods_supported: Strings = None
    signed_metadata: str | None = None

    @model_validator(mode="after")
    def _enforce_strict(self) -> Self:
        if not self.strict:
            return self
        for name in _REQUIRED:
            if not getattr(self, name):
                raise ValueError(f"Missing required configuration metadata: {name}")
        for name in _URLS:
            value = getattr(self, name)
            if value is not None:
                try:
                    _URL.validate_python(str(value))
                except ValidationError as error:
                    raise ValueError(f"Invalid URL for configuration metadata: {name}") from error
        return self

    @classmethod
    def get_oidc_configuration(
        cls, config_url: AnyHttpUrl, *, strict: bool | None, timeout_seconds: int | None
    ) -> Self:
        """Fetch a document; one that was fetched in the last minutes is used again.

        Raises:
            ValueError: it cannot be fetched, or is not valid.
        """
        key = (cls, str(config_url), strict, timeout_seconds)
        cached = _CACHE.get(key, monotonic())
        if cached is not None:
            return cls.model_validate(cached)
        options = {"timeout": timeout_seconds} if timeout_seconds is not None else {}
        response = httpx2.get(str(config_url), **options)  # type: ignore[arg-type, unused-ignore]
        response.raise_for_status()
        document = dict(response.json())
        if strict is not None:
            document["strict"] = strict
        made = cls.model_validate(document)
        _CACHE.put(key, document, monotonic())
        return made


class OIDCProxy(OAuthProxy):
    """The OAuth proxy in front of a provider with a discovery document."""

    oidc_config: OIDCConfiguration

    def __init__(
        self,
        *,
        config_url: Any,
        strict: bool | None = None,
        client_id: str,
        client_secret: str | None = None,
        audience: str | None = None,
        timeout_seconds: int | None = DEFAULT_OIDC_DISCOVERY_TIMEOUT_SECONDS,
        token_verifier: Any = None,
        algorithm: str | None = None,
        required_scopes: list[str] | None = None,
        verify_id_token: bool = False,
        base_url: Any,
        valid_scopes: list[str] | None = None,
        jwt_signing_key: str | bytes | None = None,
        extra_authorize_params: dict[str, str] | None = None,
        extra_token_params: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Fetch the document and initialize with it; further options are those of the OAuth proxy.

        Raises:
            ValueError: an option is missing, or two contradict each other.
        """
        _check(config_url, client_id, client_secret or jwt_signing_key, base_url)
        if token_verifier is not None:
            for name, value in (("algorithm", algorithm), ("required_scopes", required_scopes)):
                if value is not None:
                    raise ValueError(
                        f"Cannot specify '{name}' when providing a custom token_verifier: configure it there"
                    )
        self.oidc_config = self.get_oidc_configuration(AnyHttpUrl(str(config_url)), strict, timeout_seconds)
        config = self.oidc_config
        if not config.authorization_endpoint or not config.token_endpoint:
            raise ValueError("Missing required OIDC endpoints: authorization_endpoint and token_endpoint")
        self._verify_id_token = verify_id_token
        verifier = token_verifier or self.get_token_verifier(
            algorithm=algorithm,
            # An ID token is issued for the client and has no scopes.
            audience=client_id if verify_id_token else audience,
            required_scopes=None if verify_id_token else required_scopes,
            timeout_seconds=timeout_seconds,
        )
        named = {"audience": audience} if audience else {}
        super().__init__(
            upstream_authorization_endpoint=str(config.authorization_endpoint),
            upstream_token_endpoint=str(config.token_endpoint),
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            upstream_revocation_endpoint=str(config.revocation_endpoint) if config.revocation_endpoint else None,
            token_verifier=verifier,
            base_url=base_url,
            valid_scopes=valid_scopes,
            jwt_signing_key=jwt_signing_key,
            extra_authorize_params=named | (extra_authorize_params or {}),
            extra_token_params=named | (extra_token_params or {}),
            **options,
        )
        if verify_id_token and required_scopes:
            set_expected_scopes(self, required_scopes, valid_scopes)

    def get_oidc_configuration(
        self, config_url: AnyHttpUrl, strict: bool | None, timeout_seconds: int | None
    ) -> OIDCConfiguration:
        """Fetch the discovery document."""
        return OIDCConfiguration.get_oidc_configuration(config_url, strict=strict, timeout_seconds=timeout_seconds)

    def get_token_verifier(
        self,
        *,
        algorithm: str | None = None,
        audience: str | None = None,
        required_scopes: list[str] | None = None,
        timeout_seconds: int | None = None,
    ) -> Any:
        """Return what verifies the provider's tokens."""
        return JWTVerifier(
            jwks_uri=str(self.oidc_config.jwks_uri),
            issuer=str(self.oidc_config.issuer),
            algorithm=algorithm,
            audience=audience,
            required_scopes=required_scopes,
        )

    def _get_verification_token(self, upstream_token_set: UpstreamTokenSet) -> str | None:
        if not self._verify_id_token:
            return upstream_token_set.access_token
        found = upstream_token_set.raw_token_data.get("id_token")
        return found if isinstance(found, str) else None

    def _uses_alternate_verification(self) -> bool:
        return self._verify_id_token


def set_expected_scopes(proxy: OAuthProxy, required: list[str], valid: list[str] | None) -> None:
    """Set the scopes of a proxy whose verifier cannot see them."""
    proxy.required_scopes = list(required)
    proxy.update_default_scopes(list(valid or required))


def _check(config_url: Any, client_id: Any, secret: Any, base_url: Any) -> None:
    if not config_url:
        raise ValueError("Missing required config URL")
    if not client_id:
        raise ValueError("Missing required client id")
    if not secret:
        raise ValueError("Either client_secret or jwt_signing_key must be provided")
    if not base_url:
        raise ValueError("Missing required base URL")
