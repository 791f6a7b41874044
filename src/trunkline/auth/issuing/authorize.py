"""The authorization endpoint: validates a client's request, asks the user for consent, and redirects with the outcome.

Until the client is known and the redirect URI is one of its own, the user is not redirected: a page shows the error. A
decision is accepted only from the browser that was shown the page (its cookie is part of the sealed request), from our
own page (no other site can have the seal), and once. How the user is authenticated is left to ``finish``: here they
sign in on the same page; a proxy redirects them to its provider.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import msgspec

from trunkline.auth.issuing.client_book import ClientBook
from trunkline.auth.issuing.faults import OAuthFault, PageFault
from trunkline.auth.issuing.pages import ConsentPage, consent_page, form_policy, message_page, policy_of
from trunkline.auth.issuing.records import (
    AuthorizationRequest,
    Code,
    Consent,
    OAuthClient,
    Refresh,
    Session,
    digest,
    new_secret,
)
from trunkline.auth.issuing.redirects import host_of, is_loopback, registered, with_parameters
from trunkline.auth.issuing.sealing import RequestSeal
from trunkline.auth.issuing.settings import Settings
from trunkline.auth.issuing.store import Store
from trunkline.auth.issuing.users import SlowedSignIn
from trunkline.auth.issuing.web import Exchange

__all__ = ["Authorization", "requested_scopes"]

log = logging.getLogger("trunkline.auth")

# RFC 7636, 4.2: an S256 challenge always has 43 characters.
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")
_STATE = 4096


class Authorization:
    """Serves the authorization endpoint."""

    #: Where the user signs in, if not on our page.
    follows: str | None = None

    def __init__(self, settings: Settings, store: Store, book: ClientBook, *, sign_in: SlowedSignIn | None) -> None:
        """Use the settings, store and clients of the server."""
        self.settings = settings
        self.store = store
        self.book = book
        self._sign_in = sign_in
        self._seal = RequestSeal(store, settings.clock)

    # --- the request -------------------------------------------------------------------------------------------------

    async def ask(self, exchange: Exchange) -> None:
        """Answer a browser that a client redirected here: with the consent page, or with an error.

        Raises:
            PageError: the error can be shown only to the user, since the redirect URI is not trusted.
        """
        given = _readable(exchange)
        client, redirect_uri = await self._client(given, exchange)
        state = given.get("state")
        try:
            request = self._checked(client, given, redirect_uri)
        except OAuthFault as fault:
            await self._tell(exchange, client, redirect_uri, state, fault)
            return
        browser = exchange.cookie(self.settings.cookie)
        if browser is None or not _COOKIE.fullmatch(browser):
            browser = new_secret()
            self._set_cookie(exchange, browser)
        request = msgspec.structs.replace(request, browser=digest(browser))
        if self.settings.auto_approve is not None:
            await self.finish(exchange, client, request, self.settings.auto_approve)
            return
        subject = self._signed_in(request)
        if (self.follows or subject) and self._remembered(exchange, request):
            await self.finish(exchange, client, request, subject)
            return
        if given.get("prompt") == "none":
            silent = OAuthFault("interaction_required", "The user must be asked for consent")
            await self._tell(exchange, client, redirect_uri, state, silent)
            return
        await self._show(exchange, client, request, subject=subject)

    async def _client(self, given: Mapping[str, str], exchange: Exchange) -> tuple[OAuthClient, str]:
        if "client_id" not in given:
            raise PageFault(400, "Incomplete link", "It does not name the application (client_id is missing).")
        try:
            client = await self.book.find(given["client_id"], address=exchange.address)
        except OAuthFault as fault:
            status = fault.status if fault.status == 429 else 400
            raise PageFault(status, "Unknown application", f"{fault.description}.", headers=fault.headers) from None
        only = client.redirect_uris[0] if len(client.redirect_uris) == 1 else None
        redirect_uri = given.get("redirect_uri", only)
        if redirect_uri is None or not registered(redirect_uri, client.redirect_uris):
            raise PageFault(
                400,
                "Unsafe link",
                "The address to which you would be redirected is not registered for this application (redirect_uri).",
            )
        return client, redirect_uri

    def _checked(self, client: OAuthClient, given: Mapping[str, str], redirect_uri: str) -> AuthorizationRequest:
        if "request" in given or "request_uri" in given:
            raise OAuthFault("request_not_supported", "Request objects are not supported; use parameters")
        if given.get("response_type") != "code":
            raise OAuthFault("unsupported_response_type", "response_type must be code")
        if given.get("response_mode", "query") != "query":
            raise OAuthFault("invalid_request", "response_mode must be query")
        if "authorization_code" not in client.grant_types:
            raise OAuthFault("unauthorized_client", "The client may not use the authorization_code grant")
        challenge = given.get("code_challenge", "")
        if given.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
            raise OAuthFault("invalid_request", "PKCE is required: code_challenge with code_challenge_method=S256")
        if len(given.get("state", "")) > _STATE:
            raise OAuthFault("invalid_request", f"state may have at most {_STATE} characters")
        resource = self.settings.resource(given.get("resource"))
        if resource is None:
            raise OAuthFault("invalid_target", f"resource must be one of: {' '.join(self.settings.resources)}")
        return AuthorizationRequest(
            client_id=client.client_id,
            redirect_uri=redirect_uri,
            challenge=challenge,
            resource=resource,
            scopes=requested_scopes(self.settings, client, given.get("scope")),
            state=given.get("state"),
            nonce=new_secret(),
            until=self.settings.clock() + self.settings.lives.page,
        )

    async def _show(
        self,
        exchange: Exchange,
        client: OAuthClient,
        request: AuthorizationRequest,
        *,
        subject: str | None,
        wrong: str | None = None,
    ) -> None:
        page = ConsentPage(
            server=self.settings.name,
            client=client,
            request=request,
            sealed=self._seal.seal(request),
            action=f"{self.settings.path}/authorize",
            descriptions=self.settings.scopes,
            signed_in=subject,
            follows=self.follows,
            wrong=wrong,
        )
        status = 200 if wrong is None else 403
        policy = form_policy(request.redirect_uri)
        await exchange.answer_html(status, consent_page(page), policy=policy)

    # --- the decision ------------------------------------------------------------------------------------------------

    async def decide(self, exchange: Exchange) -> None:
        """Handle the user's decision.

        Raises:
            PageError: it was not sent from the page they were shown, or too late.
        """
        self._check_site(exchange)
        try:
            form = await exchange.form()
        except OAuthFault as fault:
            raise PageFault(fault.status, "Malformed form", f"{fault.description}.") from None
        request = self._seal.open(form.get("request", ""))
        if request is None:
            raise PageFault(403, "This page has expired", "Go back to the application and start again.")
        browser = exchange.cookie(self.settings.cookie) or ""
        if digest(browser) != request.browser:
            log.warning("a consent decision came from another browser than the one that was asked; it was rejected")
            raise PageFault(
                403, "Started in another browser", "This page was shown in another browser. Start again here."
            )
        client = await self._still_known(request, exchange)
        decision, subject = form.get("decision"), self._signed_in(request)
        if decision == "deny":
            self._spend(request)
            await self.refuse(exchange, request, OAuthFault("access_denied", "The user denied access"))
        elif decision == "sign_out":
            self.store.drop("session", request.browser)
            await self._show(exchange, client, request, subject=None)
        elif decision != "allow":
            raise PageFault(400, "No decision", "Neither Allow nor Deny was chosen.")
        elif self.follows is None and subject is None:
            await self._sign_in_and_finish(exchange, client, request, form)
        else:
            await self._allow(exchange, client, request, subject)

    async def _sign_in_and_finish(
        self, exchange: Exchange, client: OAuthClient, request: AuthorizationRequest, form: Mapping[str, str]
    ) -> None:
        assert self._sign_in is not None
        subject = await self._sign_in(form.get("name", ""), form.get("password", ""), address=exchange.address)
        if subject is None:
            await self._show(exchange, client, request, subject=None, wrong="Wrong name or password.")
            return
        # A new cookie after signing in, so that one that was planted before (session fixation) is worthless.
        browser = new_secret()
        self._set_cookie(exchange, browser)
        until = self.settings.clock() + self.settings.lives.session
        self.store.put("session", digest(browser), Session(subject), until=until)
        await self._allow(exchange, client, request, subject, browser=digest(browser))

    async def _allow(
        self,
        exchange: Exchange,
        client: OAuthClient,
        request: AuthorizationRequest,
        subject: str | None,
        *,
        browser: str | None = None,
    ) -> None:
        self._spend(request)
        if browser is not None:
            request = msgspec.structs.replace(request, browser=browser)
        if self.settings.lives.remember > 0:
            until = self.settings.clock() + self.settings.lives.remember
            self.store.put("consent", _consent_name(request), Consent(request.scopes), until=until)
        await self.finish(exchange, client, request, subject)

    def _check_site(self, exchange: Exchange) -> None:
        """Reject a form that another site sent; a page cannot forge these headers."""
        origin, site = exchange.header(b"origin"), exchange.header(b"sec-fetch-site")
        if origin not in (None, self.settings.origin) or site not in (None, "same-origin"):
            raise PageFault(403, "Sent by another site", "The decision was sent by another site and was ignored.")

    async def _still_known(self, request: AuthorizationRequest, exchange: Exchange) -> OAuthClient:
        client, _ = await self._client({"client_id": request.client_id, "redirect_uri": request.redirect_uri}, exchange)
        return client

    def _spend(self, request: AuthorizationRequest) -> None:
        """Mark a request as decided; reject a second decision."""
        now = self.settings.clock()
        if not self.store.add("decided", request.nonce, Refresh(""), until=request.until, now=now):
            raise PageFault(403, "Already decided", "You have already answered this page. Go back to the application.")

    # --- the outcome -------------------------------------------------------------------------------------------------

    async def finish(
        self, exchange: Exchange, client: OAuthClient, request: AuthorizationRequest, subject: str | None
    ) -> None:
        """Redirect the user to the client with a code."""
        assert subject is not None
        code = self.make_code(request, subject=subject, grant_id=new_secret())
        await exchange.redirect(self.back(request, {"code": code}))

    def make_code(self, request: AuthorizationRequest, *, subject: str, grant_id: str) -> str:
        """Create an authorization code for an approved request."""
        code, now = new_secret(), self.settings.clock()
        record = Code(
            grant_id=grant_id,
            subject=subject,
            client_id=request.client_id,
            redirect_uri=request.redirect_uri,
            challenge=request.challenge,
            resource=request.resource,
            scopes=request.scopes,
            until=now + self.settings.lives.code,
        )
        # Stored longer than it is valid, so that a second use is detected.
        self.store.sweep(now)
        self.store.put("code", digest(code), record, until=now + self.settings.lives.access)
        return code

    async def refuse(self, exchange: Exchange, request: AuthorizationRequest, fault: OAuthFault) -> None:
        """Redirect the user to the client with an error."""
        error = {"error": fault.error, "error_description": fault.description}
        await exchange.redirect(self.back(request, error))

    async def _tell(
        self, exchange: Exchange, client: OAuthClient, redirect_uri: str, state: str | None, fault: OAuthFault
    ) -> None:
        """Report an invalid request to the client.

        Anyone can register a redirect URI, so for clients that are not configured the user is asked before being sent
        there (OAuth 2.1, 7.12.2).
        """
        error = {"error": fault.error, "error_description": fault.description, "state": state}
        url = with_parameters(redirect_uri, {**error, "iss": self.settings.issuer})
        if client.source == "configured" or is_loopback(redirect_uri):
            await exchange.redirect(url)
            return
        sentence = f"The request of {host_of(redirect_uri)} is not valid: {fault.description}."
        page = message_page(self.settings.name, "Invalid request", sentence, link=url)
        await exchange.answer_html(400, page, policy=policy_of())

    def back(self, request: AuthorizationRequest, answer: Mapping[str, str]) -> str:
        """Return the redirect URI with the parameters of a response."""
        # RFC 9207: every response names its issuer.
        added = {**answer, "state": request.state, "iss": self.settings.issuer}
        return with_parameters(request.redirect_uri, added)

    # --- the browser -------------------------------------------------------------------------------------------------

    def _set_cookie(self, exchange: Exchange, value: str) -> None:
        lives = self.settings.lives
        seconds = max(lives.session, lives.remember)
        exchange.cookies_to_set.append(self.settings.cookie_header(value, seconds))

    def _signed_in(self, request: AuthorizationRequest) -> str | None:
        session = self.store.get("session", request.browser, Session, now=self.settings.clock())
        return None if session is None else session.subject

    def _remembered(self, exchange: Exchange, request: AuthorizationRequest) -> bool:
        """Return True if this browser has approved the same for this client, and the user opened the page themselves.

        If another site led here, the page is always shown: otherwise that site could silently reuse a consent.
        """
        if self.settings.lives.remember <= 0 or exchange.header(b"sec-fetch-site") != "none":
            return False
        before = self.store.get("consent", _consent_name(request), Consent, now=self.settings.clock())
        return before is not None and set(request.scopes) <= set(before.scopes)


def requested_scopes(settings: Settings, client: OAuthClient, scope: str | None) -> tuple[str, ...]:
    """Return the scopes of a request: those requested that exist and that the client may have.

    Raises:
        OAuthError: none is left.
    """
    asked = settings.default_scopes if scope is None else tuple(dict.fromkeys(scope.split()))
    # The scopes of a self-registration are no limit: the client may need more later, and the user is asked.
    limited = client.source == "configured" and client.scopes is not None
    allowed = set(client.scopes or ()) & set(settings.scopes) if limited else settings.scopes
    granted = tuple(name for name in asked if name in allowed)
    if asked and not granted and scope is not None and settings.scopes:
        raise OAuthFault("invalid_scope", f"Known scopes: {' '.join(settings.scopes)}")
    return granted


def _consent_name(request: AuthorizationRequest) -> str:
    """Return the storage name of a consent: browser, client, redirect URI (any port for loopback) and resource."""
    where = re.sub(r":\d+(?=[/?]|$)", "", request.redirect_uri, count=1) if is_loopback(request.redirect_uri) else None
    return digest("\n".join((request.browser, request.client_id, where or request.redirect_uri, request.resource)))


def _readable(exchange: Exchange) -> dict[str, str]:
    try:
        return exchange.query()
    except OAuthFault as fault:
        raise PageFault(fault.status, "Malformed link", f"{fault.description}.") from None
