"""The endpoints of an authorization server around a provider: authorization, tokens, registration, revocation."""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AnyHttpUrl, AnyUrl, BaseModel, Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from trunkline.compat.auth.middleware import AuthenticationError, ClientAuthenticator
from trunkline.compat.auth.records import (
    JWT_BEARER_GRANT_TYPE,
    AccessToken,
    AuthorizationErrorCode,
    AuthorizationParams,
    AuthorizeError,
    ClientRegistrationOptions,
    IdentityAssertionParams,
    InvalidRedirectUriError,
    InvalidScopeError,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
    RefreshToken,
    RegistrationError,
    RegistrationErrorCode,
    TokenError,
    TokenErrorCode,
    construct_redirect_uri,
)
from trunkline.compat.versions import STATE

__all__ = [
    "AuthorizationErrorResponse",
    "AuthorizationHandler",
    "AuthorizationRequest",
    "MetadataHandler",
    "ProtectedResourceMetadataHandler",
    "PydanticJSONResponse",
    "RegistrationErrorResponse",
    "RegistrationHandler",
    "RegistrationRequest",
    "RevocationErrorResponse",
    "RevocationHandler",
    "RevocationRequest",
    "TokenErrorResponse",
    "TokenHandler",
    "TokenSuccessResponse",
    "stringify_pydantic_error",
]

_NOT_STORED = MappingProxyType({"Cache-Control": "no-store", "Pragma": "no-cache"})


class PydanticJSONResponse(JSONResponse):
    """A model as a JSON response, without the members that are None."""

    def render(self, content: Any) -> bytes:
        """Return the JSON."""
        return bytes(content.model_dump_json(exclude_none=True).encode())


def stringify_pydantic_error(validation_error: ValidationError) -> str:
    """Return what is wrong with a request, one line for each member."""
    return "\n".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in validation_error.errors())


# --- metadata --------------------------------------------------------------------------------------------------------


@dataclass
class MetadataHandler:
    """Serves the metadata of the authorization server."""

    metadata: OAuthMetadata

    async def handle(self, request: Request) -> Response:
        """Return the document."""
        return PydanticJSONResponse(content=self.metadata, headers={"Cache-Control": "public, max-age=3600"})


@dataclass
class ProtectedResourceMetadataHandler:
    """Serves the metadata of the protected resource."""

    metadata: ProtectedResourceMetadata

    async def handle(self, request: Request) -> Response:
        """Return the document."""
        return PydanticJSONResponse(content=self.metadata, headers={"Cache-Control": "public, max-age=3600"})


# --- authorization ---------------------------------------------------------------------------------------------------


class AuthorizationRequest(BaseModel):
    """The parameters of the authorization endpoint."""

    client_id: str
    redirect_uri: AnyUrl | None = None
    response_type: Literal["code"]
    code_challenge: str
    code_challenge_method: Literal["S256"] = "S256"
    state: str | None = None
    scope: str | None = None
    resource: str | None = None


class AuthorizationErrorResponse(BaseModel):
    """An error of the authorization endpoint."""

    error: AuthorizationErrorCode
    error_description: str | None
    error_uri: AnyUrl | None = None
    state: str | None = None


@dataclass
class AuthorizationHandler:
    """Validates an authorization request and sends the browser where the provider says."""

    provider: Any

    async def handle(self, request: Request) -> Response:
        """Return a redirect, or an error: by redirect where the client's address is known, else as JSON."""
        params: Any = request.query_params if request.method == "GET" else await request.form()
        answer = _AuthorizationAnswer(_text(params, "state"))
        client_id = _text(params, "client_id")
        client = await self.provider.get_client(client_id) if client_id else None
        try:
            if client is not None:
                answer.redirect_uri = _known_redirect(client, params)
            asked = AuthorizationRequest.model_validate(dict(params))
        except InvalidRedirectUriError as error:
            return answer.error("invalid_request", error.message)
        except ValidationError as error:
            if client_id and client is None:
                return answer.error("invalid_request", f"Client ID '{client_id}' not found")
            unknown = any(
                each["loc"] == ("response_type",) and each["type"] == "literal_error" for each in error.errors()
            )
            code: AuthorizationErrorCode = "unsupported_response_type" if unknown else "invalid_request"
            return answer.error(code, stringify_pydantic_error(error))
        if client is None:
            return answer.error("invalid_request", f"Client ID '{asked.client_id}' not found")
        return await self._authorize(client, asked, answer)

    async def _authorize(self, client: Any, asked: AuthorizationRequest, answer: _AuthorizationAnswer) -> Response:
        try:
            scopes = client.validate_scope(asked.scope)
        except InvalidScopeError as error:
            return answer.error("invalid_scope", error.message)
        params = AuthorizationParams(
            state=asked.state,
            scopes=scopes,
            code_challenge=asked.code_challenge,
            redirect_uri=answer.redirect_uri,  # type: ignore[arg-type]
            redirect_uri_provided_explicitly=asked.redirect_uri is not None,
            resource=asked.resource,
        )
        try:
            location = await self.provider.authorize(client, params)
        except AuthorizeError as error:
            return answer.error(error.error, error.error_description)
        except Exception:
            import logging

            logging.getLogger("trunkline").exception("authorization failed")
            return answer.error("server_error", "An unexpected error occurred")
        return RedirectResponse(url=location, status_code=302, headers={"Cache-Control": "no-store"})


class _AuthorizationAnswer:
    """Where errors of one authorization request go."""

    def __init__(self, state: str | None) -> None:
        self.state = state
        self.redirect_uri: AnyUrl | None = None

    def error(self, error: AuthorizationErrorCode, description: str | None) -> Response:
        body = AuthorizationErrorResponse(error=error, error_description=description, state=self.state)
        if self.redirect_uri is None:
            return PydanticJSONResponse(status_code=400, content=body, headers={"Cache-Control": "no-store"})
        url = construct_redirect_uri(str(self.redirect_uri), **body.model_dump(exclude_none=True, mode="json"))
        return RedirectResponse(url=url, status_code=302, headers={"Cache-Control": "no-store"})


def _text(params: Any, name: str) -> str | None:
    value = params.get(name)
    return value if isinstance(value, str) else None


_URL: TypeAdapter[AnyUrl] = TypeAdapter(AnyUrl)


def _known_redirect(client: Any, params: Any) -> AnyUrl:
    given = params.get("redirect_uri")
    if given is None:
        return client.validate_redirect_uri(None)  # type: ignore[no-any-return]
    try:
        parsed = _URL.validate_python(given)
    except ValidationError as error:
        raise InvalidRedirectUriError("redirect_uri: Input should be a valid URL") from error
    return client.validate_redirect_uri(parsed)  # type: ignore[no-any-return]


# --- tokens ----------------------------------------------------------------------------------------------------------


class _ClientFields(BaseModel):
    client_id: str | None = None
    client_secret: str | None = None
    resource: str | None = None


class _CodeRequest(_ClientFields):
    grant_type: Literal["authorization_code"]
    code: str
    redirect_uri: AnyUrl | None = None
    code_verifier: str


class _RefreshRequest(_ClientFields):
    grant_type: Literal["refresh_token"]
    refresh_token: str
    scope: str | None = None


class _AssertionRequest(_ClientFields):
    grant_type: Literal["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assertion: str
    scope: str | None = None


_TOKEN_REQUEST: TypeAdapter[Any] = TypeAdapter(
    Annotated[_CodeRequest | _RefreshRequest | _AssertionRequest, Field(discriminator="grant_type")]
)


class TokenErrorResponse(BaseModel):
    """An error of the token endpoint."""

    error: TokenErrorCode
    error_description: str | None = None
    error_uri: AnyHttpUrl | None = None


TokenSuccessResponse = OAuthToken


@dataclass
class TokenHandler:
    """Exchanges codes, refresh tokens and identity assertions for tokens."""

    provider: Any
    client_authenticator: Any
    identity_assertion_enabled: bool = False

    def response(self, obj: Any) -> Response:
        """Return tokens or an error as a response."""
        status = 400 if isinstance(obj, TokenErrorResponse) else 200
        return PydanticJSONResponse(content=obj, status_code=status, headers=_NOT_STORED)

    async def handle(self, request: Request) -> Response:
        """Answer a token request."""
        try:
            client = await self.client_authenticator.authenticate_request(request)
        except AuthenticationError as error:
            code: TokenErrorCode = "unauthorized_client" if STATE.camel_case else "invalid_client"
            body = TokenErrorResponse(error=code, error_description=error.message)
            return PydanticJSONResponse(content=body, status_code=401, headers=_NOT_STORED)
        try:
            return self.response(await self.exchange(client, dict(await request.form())))
        except TokenError as error:
            return self.response(TokenErrorResponse(error=error.error, error_description=error.error_description))

    async def exchange(self, client: Any, form: dict[str, Any]) -> OAuthToken:
        """Return the tokens that a form asks for.

        Raises:
            TokenError: it cannot have them.
        """
        try:
            asked = _TOKEN_REQUEST.validate_python(form)
        except ValidationError as error:
            unknown = any(each["type"] == "union_tag_invalid" for each in error.errors())
            code: TokenErrorCode = "unsupported_grant_type" if unknown else "invalid_request"
            raise TokenError(code, stringify_pydantic_error(error)) from error
        if asked.grant_type not in client.grant_types:
            raise TokenError(
                "unsupported_grant_type", f"Unsupported grant type (supported grant types are {client.grant_types})"
            )
        if isinstance(asked, _CodeRequest):
            return await self._exchange_code(client, asked)
        if isinstance(asked, _RefreshRequest):
            return await self._exchange_refresh_token(client, asked)
        return await self._exchange_assertion(client, asked)

    async def _exchange_code(self, client: Any, asked: _CodeRequest) -> OAuthToken:
        code = await self.provider.load_authorization_code(client, asked.code)
        if code is None or code.client_id != client.client_id:
            raise TokenError("invalid_grant", "authorization code does not exist")
        if code.expires_at < time.time():
            raise TokenError("invalid_grant", "authorization code has expired")
        expected = code.redirect_uri if code.redirect_uri_provided_explicitly else None
        if asked.redirect_uri != expected and str(asked.redirect_uri) != str(expected):
            raise TokenError("invalid_request", "redirect_uri did not match the one used when creating auth code")
        if not hmac.compare_digest(_challenge(asked.code_verifier), code.code_challenge):
            raise TokenError("invalid_grant", "incorrect code_verifier")
        return await self.provider.exchange_authorization_code(client, code)  # type: ignore[no-any-return]

    async def _exchange_refresh_token(self, client: Any, asked: _RefreshRequest) -> OAuthToken:
        token = await self.provider.load_refresh_token(client, asked.refresh_token)
        if token is None or token.client_id != client.client_id:
            raise TokenError("invalid_grant", "refresh token does not exist")
        if token.expires_at and token.expires_at < time.time():
            raise TokenError("invalid_grant", "refresh token has expired")
        scopes = asked.scope.split(" ") if asked.scope else token.scopes
        for scope in scopes:
            if scope not in token.scopes:
                raise TokenError("invalid_scope", f"cannot request scope `{scope}` not provided by refresh token")
        return await self.provider.exchange_refresh_token(client, token, scopes)  # type: ignore[no-any-return]

    async def _exchange_assertion(self, client: Any, asked: _AssertionRequest) -> OAuthToken:
        if not self.identity_assertion_enabled:
            raise TokenError("unsupported_grant_type", "The jwt-bearer grant is not enabled on this server")
        if not client.client_secret:
            raise TokenError("unauthorized_client", "The jwt-bearer grant requires a confidential client")
        params = IdentityAssertionParams(
            assertion=asked.assertion, scopes=asked.scope.split(" ") if asked.scope else None, resource=asked.resource
        )
        return await self.provider.exchange_identity_assertion(client, params)  # type: ignore[no-any-return]


def _challenge(verifier: str) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


# --- registration ----------------------------------------------------------------------------------------------------

RegistrationRequest = OAuthClientMetadata


class RegistrationErrorResponse(BaseModel):
    """An error of the registration endpoint."""

    error: RegistrationErrorCode
    error_description: str | None


@dataclass
class RegistrationHandler:
    """Registers clients (RFC 7591)."""

    provider: Any
    options: ClientRegistrationOptions

    async def handle(self, request: Request) -> Response:
        """Answer a registration."""
        try:
            metadata = OAuthClientMetadata.model_validate_json(await request.body())
            client = self.register(metadata)
            await self.provider.register_client(client)
        except ValidationError as error:
            return _registration_error("invalid_client_metadata", stringify_pydantic_error(error))
        except RegistrationError as error:
            return _registration_error(error.error, error.error_description)
        return PydanticJSONResponse(content=client, status_code=201, headers=_NOT_STORED)

    def register(self, metadata: OAuthClientMetadata) -> OAuthClientInformationFull:
        """Return the client that a registration creates.

        Raises:
            RegistrationError: it asks for what is not offered.
        """
        scope = self._scope(metadata)
        grants = set(metadata.grant_types)
        if STATE.camel_case and not {"authorization_code", "refresh_token"} <= grants:
            raise RegistrationError(
                "invalid_client_metadata", "grant_types must be authorization_code and refresh_token"
            )
        if "authorization_code" not in grants:
            raise RegistrationError("invalid_client_metadata", "grant_types must include 'authorization_code'")
        if JWT_BEARER_GRANT_TYPE in grants:
            # An identity provider vouches for clients that it knows, and not for one that has just registered.
            raise RegistrationError(
                "invalid_client_metadata", f"The grant {JWT_BEARER_GRANT_TYPE} needs a client that is set up beforehand"
            )
        if "code" not in metadata.response_types:
            raise RegistrationError(
                "invalid_client_metadata", "response_types must include 'code' for authorization_code grant"
            )
        method = metadata.token_endpoint_auth_method or "client_secret_post"
        now = int(time.time())
        lifetime = self.options.client_secret_expiry_seconds
        given = metadata.model_dump() | {"scope": scope, "token_endpoint_auth_method": method}
        public = method == "none"
        return OAuthClientInformationFull(
            **given,
            client_id=secrets.token_hex(16),
            client_id_issued_at=now,
            client_secret=None if public else secrets.token_hex(32),
            client_secret_expires_at=now + lifetime if lifetime is not None and not public else None,
        )

    def _scope(self, metadata: OAuthClientMetadata) -> str | None:
        if metadata.scope is None:
            return " ".join(self.options.default_scopes) if self.options.default_scopes is not None else None
        if self.options.valid_scopes is not None:
            extra = sorted(set(metadata.scope.split()) - set(self.options.valid_scopes))
            if extra:
                raise RegistrationError(
                    "invalid_client_metadata", f"Requested scopes are not valid: {', '.join(extra)}"
                )
        return metadata.scope


def _registration_error(error: RegistrationErrorCode, description: str | None) -> Response:
    body = RegistrationErrorResponse(error=error, error_description=description)
    return PydanticJSONResponse(content=body, status_code=400, headers=_NOT_STORED)


# --- revocation ------------------------------------------------------------------------------------------------------


class RevocationRequest(BaseModel):
    """The parameters of the revocation endpoint."""

    token: str
    token_type_hint: Literal["access_token", "refresh_token"] | None = None
    client_id: str
    client_secret: str | None = None


class RevocationErrorResponse(BaseModel):
    """An error of the revocation endpoint."""

    error: Literal["invalid_request", "unauthorized_client", "invalid_client"]
    error_description: str | None = None


@dataclass
class RevocationHandler:
    """Revokes tokens (RFC 7009)."""

    provider: Any
    client_authenticator: ClientAuthenticator

    async def handle(self, request: Request) -> Response:
        """Revoke a token; one that is unknown, or another client's, is answered like one that was revoked."""
        try:
            client = await self.client_authenticator.authenticate_request(request)
        except AuthenticationError as error:
            refused = RevocationErrorResponse(error="unauthorized_client", error_description=error.message)
            return PydanticJSONResponse(content=refused, status_code=401)
        try:
            asked = RevocationRequest.model_validate(dict(await request.form()))
        except ValidationError as error:
            wrong = RevocationErrorResponse(error="invalid_request", error_description=stringify_pydantic_error(error))
            return PydanticJSONResponse(content=wrong, status_code=400)

        async def refresh_token(token: str) -> RefreshToken | None:
            return await self.provider.load_refresh_token(client, token)  # type: ignore[no-any-return]

        loaders = [self.provider.load_access_token, refresh_token]
        if asked.token_type_hint == "refresh_token":
            loaders.reverse()
        found: AccessToken | RefreshToken | None = None
        for load in loaders:
            found = await load(asked.token)
            if found is not None:
                break
        if found is not None and found.client_id == client.client_id:
            await self.provider.revoke_token(found)
        return Response(status_code=200, headers=_NOT_STORED)
