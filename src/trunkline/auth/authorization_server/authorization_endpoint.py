"""The authorization endpoint: validates a client's request, asks the user for consent, and redirects with the outcome.

Everything that its pages show may come from a stranger: all of it is escaped, no page has a script, and the content
security policy of each allows only its own style. The redirect host, which the user must check, is shown in large type.

Until the client is known and the redirect URI is one of its own, the user is not redirected: a page shows the error. A
decision is accepted only from the browser that was shown the page (its cookie is part of the sealed request), from our
own page (no other site can have the seal), and once. How the user is authenticated is left to ``finish``: here they
sign in on the same page; a proxy redirects them to its provider.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from html import escape

import msgspec
from msgspec import Struct

from trunkline.auth.authorization_server.clients import (
    ClientRegistry,
    add_query_parameters,
    host_of,
    is_loopback_uri,
    is_registered,
    origin_of,
)
from trunkline.auth.authorization_server.records import (
    AuthorizationCode,
    AuthorizationRequest,
    BrowserSession,
    OAuthClient,
    StoredConsent,
    digest,
    new_secret,
)
from trunkline.auth.authorization_server.settings import IssuerSettings, RateLimitedSignIn
from trunkline.auth.authorization_server.storage import Records
from trunkline.auth.authorization_server.web import OAuthError, OAuthExchange, PageError
from trunkline.protocol.seal import InvalidSeal
from trunkline.store.interface import Step

__all__ = [
    "AuthorizationEndpoint",
    "ConsentPage",
    "consent_page",
    "content_security_policy",
    "continue_page",
    "form_security_policy",
    "message_page",
    "requested_scopes",
]

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5a6475;--line:#d9dee7;--paper:#fff;--back:#eef1f6;--key:#1d5fd0;
--warn:#8a5a00;--warnback:#fff6e0}
@media(prefers-color-scheme:dark){:root{--ink:#e8ecf4;--soft:#a3adbf;--line:#3a4356;--paper:#1c2331;--back:#11161f;
--key:#6ea2ff;--warn:#ffd27a;--warnback:#3a2f14}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:30rem;margin:6vh auto;padding:2rem;background:var(--paper);border:1px solid var(--line);
border-radius:14px;overflow-wrap:anywhere}
.from{margin:0 0 1rem;color:var(--soft);font-size:.9rem}
h1{margin:0 0 1rem;font-size:1.35rem;line-height:1.3}
dl{margin:0 0 1rem}
dt{color:var(--soft);font-size:.85rem}
dd{margin:0 0 .9rem}
.host{font:600 1.45rem/1.3 ui-monospace,monospace}
ul{margin:.2rem 0 0;padding-left:1.2rem}
code{font:.85em ui-monospace,monospace;color:var(--soft)}
.warn,.wrong{margin:0 0 1rem;padding:.7rem .9rem;border-radius:8px;background:var(--warnback);color:var(--warn)}
label{display:block;margin:0 0 .8rem;font-size:.9rem}
input{display:block;width:100%;margin-top:.2rem;padding:.6rem;font:inherit;color:inherit;background:transparent;
border:1px solid var(--line);border-radius:8px}
.choice{display:flex;flex-direction:row-reverse;gap:.8rem;margin-top:1.2rem}
button{flex:1;padding:.75rem;font:600 1rem system-ui,sans-serif;border-radius:9px;border:1px solid var(--line);
background:transparent;color:inherit;cursor:pointer}
button.yes{background:var(--key);border-color:var(--key);color:var(--paper)}
button.plain{flex:none;padding:0;border:0;color:var(--key);font:inherit}
a{color:var(--key)}
:focus-visible{outline:3px solid var(--key);outline-offset:2px}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


class ConsentPage(Struct, frozen=True, kw_only=True):
    """The content of the consent page."""

    server: str
    client: OAuthClient
    request: AuthorizationRequest
    #: The sealed request, carried in the form; no other site can know it.
    sealed: str
    action: str
    descriptions: Mapping[str, str]
    #: The signed-in user; None: the form asks for name and password.
    signed_in: str | None = None
    #: The provider's page at which the user signs in afterwards, if not here.
    sign_in_url: str | None = None
    wrong: str | None = None


def content_security_policy(*form_targets: str) -> str:
    """Return the content security policy of a page: its own style, and these form targets."""
    targets = " ".join(form_targets) or "'none'"
    return (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {targets}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


def consent_page(page: ConsentPage) -> str:
    """Return the page on which the user allows or denies access."""
    client, request = page.client, page.request
    name = escape(client.client_name or "An unnamed application")
    body = [
        f"<h1><strong>{name}</strong> asks for access to {escape(page.server)}</h1>",
        f'<p class="wrong" role="alert">{escape(page.wrong)}</p>' if page.wrong else "",
        "<dl><dt>If you allow it, you will be sent to</dt>",
        f'<dd class="host">{escape(host_of(request.redirect_uri))}</dd>',
        _who(client),
        f"<dt>It will have access to</dt><dd><code>{escape(request.resource)}</code>",
        f"{_scopes(request.scopes, page.descriptions)}</dd>",
        "</dl>",
        _warning(client, request),
        f'<form method="post" action="{escape(page.action)}">',
        f'<input type="hidden" name="request" value="{escape(page.sealed)}">',
        _sign_in(page),
        # The Enter key activates the first button.
        '<div class="choice"><button class="yes" name="decision" value="allow">Allow</button>'
        '<button name="decision" value="deny" formnovalidate>Deny</button></div>',
        "</form>",
    ]
    return _page(f"Allow {client.client_name or 'access'}?", page.server, "\n".join(part for part in body if part))


def continue_page(server: str, link: str) -> str:
    """Return a page that redirects immediately.

    An HTTP redirect would not work after a form: the form-action policy of the page applies to the whole redirect
    chain, and we cannot know where the provider's page redirects to.
    """
    at_once = f'<meta http-equiv="refresh" content="0; url={escape(link)}">'
    host = escape(host_of(link))
    body = f'<h1>Continue to {host}</h1>\n<p><a rel="noreferrer" href="{escape(link)}">Continue to {host}</a></p>'
    return _page(f"Continue to {host_of(link)}", server, body, head=at_once)


def message_page(server: str, title: str, sentence: str, *, link: str | None = None) -> str:
    """Return a page with one message, and optionally a link to continue."""
    onward = f'<p><a rel="noreferrer" href="{escape(link)}">Continue to {escape(host_of(link))}</a></p>' if link else ""
    return _page(title, server, f"<h1>{escape(title)}</h1>\n<p>{escape(sentence)}</p>\n{onward}")


def _page(title: str, server: str, body: str, *, head: str = "") -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>{head}</head>\n"
        f'<body><main>\n<p class="from">{escape(server)}</p>\n{body}\n</main></body></html>\n'
    )


def _who(client: OAuthClient) -> str:
    if client.source == "document":
        host = escape(host_of(client.client_id))
        return f"<dt>Published by</dt><dd>{host}<br><code>{escape(client.client_id)}</code></dd>"
    if client.source == "registered":
        return "<dt>Identity</dt><dd>The application chose its name itself; it has not been verified.</dd>"
    return ""


def _scopes(scopes: Sequence[str], descriptions: Mapping[str, str]) -> str:
    if not scopes:
        return ""
    rows = [
        f"<li>{escape(described)} <code>{escape(scope)}</code></li>"
        if (described := descriptions.get(scope))
        else f"<li><code>{escape(scope)}</code></li>"
        for scope in scopes
    ]
    return f"<ul>{''.join(rows)}</ul>"


def _warning(client: OAuthClient, request: AuthorizationRequest) -> str:
    """Return a warning for a client on the user's machine: any program there can claim to be it."""
    if not is_loopback_uri(request.redirect_uri) or client.source == "configured":
        return ""
    return (
        '<p class="warn" role="note">This application runs on your own computer, where any program can '
        "claim to be it. Continue only if you have just started this yourself.</p>"
    )


def _sign_in(page: ConsentPage) -> str:
    if page.sign_in_url is not None:
        return f"<p>You will sign in at <strong>{escape(host_of(page.sign_in_url))}</strong> next.</p>"
    if page.signed_in is not None:
        return (
            f"<p>Signed in as <strong>{escape(page.signed_in)}</strong>. "
            '<button class="plain" name="decision" value="sign_out" formnovalidate>Not you?</button></p>'
        )
    return (
        '<label>Name<input name="name" autocomplete="username" required autocapitalize="none"></label>'
        '<label>Password<input name="password" type="password" autocomplete="current-password" required></label>'
    )


def form_security_policy(*uris: str) -> str:
    """Return the policy of a page whose form redirects to other sites."""
    return content_security_policy("'self'", *dict.fromkeys(origin_of(uri) for uri in uris))


log = logging.getLogger("trunkline.auth")

# RFC 7636, 4.2: an S256 challenge always has 43 characters.
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")
_STATE = 4096  # Clients put a nonce or a small record into it; longer ones would only fill the store.
_SEALED_CHARS = 16 * 1024  # As long as the query (`QUERY_BYTES`) that a sealed request was read from.


class AuthorizationEndpoint:
    """Serves the authorization endpoint."""

    #: Where the user signs in, if not on our page.
    sign_in_url: str | None = None

    def __init__(
        self,
        settings: IssuerSettings,
        records: Records,
        registry: ClientRegistry,
        *,
        sign_in: RateLimitedSignIn | None,
    ) -> None:
        """Use the settings, records and clients of the server."""
        self.settings = settings
        self.records = records
        self.registry = registry
        self._sign_in = sign_in

    # --- the request -------------------------------------------------------------------------------------------------

    async def ask(self, exchange: OAuthExchange) -> None:
        """Answer a browser that a client redirected here: with the consent page, or with an error.

        Raises:
            PageError: the error can be shown only to the user, since the redirect URI is not trusted.
        """
        given = _parse_query(exchange)
        client, redirect_uri = await self._client(given, exchange)
        state = given.get("state")
        try:
            request = self._checked(client, given, redirect_uri)
        except OAuthError as fault:
            await self._tell(exchange, client, redirect_uri, state, fault)
            return
        browser = exchange.cookie(self.settings.cookie)
        if browser is None or not _COOKIE.fullmatch(browser):
            browser = new_secret()
            self._set_cookie(exchange, browser)
        generation = (await self.records.ready()).generation
        request = msgspec.structs.replace(request, browser=digest(browser), generation=generation)
        if self.settings.auto_approve is not None:
            await self.finish(exchange, client, request, self.settings.auto_approve)
            return
        subject = await self._signed_in(request)
        if (self.sign_in_url or subject) and await self._remembered(exchange, request):
            await self.finish(exchange, client, request, subject)
            return
        if given.get("prompt") == "none":
            silent = OAuthError("interaction_required", "The user must be asked for consent")
            await self._tell(exchange, client, redirect_uri, state, silent)
            return
        await self._show(exchange, client, request, subject=subject)

    async def _client(self, given: Mapping[str, str], exchange: OAuthExchange) -> tuple[OAuthClient, str]:
        if "client_id" not in given:
            raise PageError(400, "Incomplete link", "It does not name the application (client_id is missing).")
        try:
            client = await self.registry.find(given["client_id"], address=exchange.address)
        except OAuthError as fault:
            status = fault.status if fault.status == 429 else 400
            raise PageError(status, "Unknown application", f"{fault.description}.", headers=fault.headers) from None
        only = client.redirect_uris[0] if len(client.redirect_uris) == 1 else None
        redirect_uri = given.get("redirect_uri", only)
        if redirect_uri is None or not is_registered(redirect_uri, client.redirect_uris):
            raise PageError(
                400,
                "Unsafe link",
                "The address to which you would be redirected is not registered for this application (redirect_uri).",
            )
        return client, redirect_uri

    def _checked(self, client: OAuthClient, given: Mapping[str, str], redirect_uri: str) -> AuthorizationRequest:
        if "request" in given or "request_uri" in given:
            raise OAuthError("request_not_supported", "Request objects are not supported; use parameters")
        if given.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code")
        if given.get("response_mode", "query") != "query":
            raise OAuthError("invalid_request", "response_mode must be query")
        if "authorization_code" not in client.grant_types:
            raise OAuthError("unauthorized_client", "The client may not use the authorization_code grant")
        challenge = given.get("code_challenge", "")
        if given.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
            raise OAuthError("invalid_request", "PKCE is required: code_challenge with code_challenge_method=S256")
        if len(given.get("state", "")) > _STATE:
            raise OAuthError("invalid_request", f"state may have at most {_STATE} characters")
        resource = self.settings.resource(given.get("resource"))
        if resource is None:
            raise OAuthError("invalid_target", f"resource must be one of: {' '.join(self.settings.resources)}")
        return AuthorizationRequest(
            client_id=client.client_id,
            redirect_uri=redirect_uri,
            challenge=challenge,
            resource=resource,
            scopes=requested_scopes(self.settings, client, given.get("scope")),
            state=given.get("state"),
            nonce=new_secret(),
            until=self.settings.clock() + self.settings.lifetimes.page,
        )

    async def _show(
        self,
        exchange: OAuthExchange,
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
            sealed=(await self.records.page_seal()).seal(msgspec.json.encode(request)),
            action=f"{self.settings.path}/authorize",
            descriptions=self.settings.scopes,
            signed_in=subject,
            sign_in_url=self.sign_in_url,
            wrong=wrong,
        )
        status = 200 if wrong is None else 403
        policy = form_security_policy(request.redirect_uri)
        await exchange.answer_html(status, consent_page(page), policy=policy)

    # --- the decision ------------------------------------------------------------------------------------------------

    async def decide(self, exchange: OAuthExchange) -> None:
        """Handle the user's decision.

        Raises:
            PageError: it was not sent from the page they were shown, or too late.
        """
        self._check_site(exchange)
        try:
            form = await exchange.form()
        except OAuthError as fault:
            raise PageError(fault.status, "Malformed form", f"{fault.description}.") from None
        request = await self._opened(form.get("request", ""))
        if request is None or request.until <= self.settings.clock():
            raise PageError(403, "This page has expired", "Go back to the application and start again.")
        browser = exchange.cookie(self.settings.cookie) or ""
        if digest(browser) != request.browser:
            log.warning("a consent decision came from another browser than the one that was asked; it was rejected")
            raise PageError(
                403, "Started in another browser", "This page was shown in another browser. Start again here."
            )
        client = await self._still_known(request, exchange)
        decision, subject = form.get("decision"), await self._signed_in(request)
        if decision == "deny":
            await self.commit(await self._decided(request))
            await self.refuse(exchange, request, OAuthError("access_denied", "The user denied access"))
        elif decision == "sign_out":
            await self.records.forget("session", request.browser)
            await self._show(exchange, client, request, subject=None)
        elif decision != "allow":
            raise PageError(400, "No decision", "Neither Allow nor Deny was chosen.")
        elif self.sign_in_url is None and subject is None:
            await self._sign_in_and_finish(exchange, client, request, form)
        else:
            await self._allow(exchange, client, request, subject)

    async def _opened(self, sealed: str) -> AuthorizationRequest | None:
        """Return the request of a page; None if it was not sealed here."""
        if len(sealed) > _SEALED_CHARS or not sealed.isascii():
            return None
        try:
            plain = (await self.records.page_seal()).open(sealed)
        except InvalidSeal:
            return None
        return msgspec.json.decode(plain, type=AuthorizationRequest)

    async def _sign_in_and_finish(
        self, exchange: OAuthExchange, client: OAuthClient, request: AuthorizationRequest, form: Mapping[str, str]
    ) -> None:
        assert self._sign_in is not None
        subject = await self._sign_in(form.get("name", ""), form.get("password", ""), address=exchange.address)
        if subject is None:
            await self._show(exchange, client, request, subject=None, wrong="Wrong name or password.")
            return
        # A new cookie after signing in, so that one that was planted before (session fixation) is worthless.
        browser = new_secret()
        self._set_cookie(exchange, browser)
        seconds = self.settings.lifetimes.session
        session = self.records.put("session", digest(browser), BrowserSession(subject), seconds=seconds)
        await self._allow(exchange, client, request, subject, browser=digest(browser), steps=(session,))

    async def _allow(
        self,
        exchange: OAuthExchange,
        client: OAuthClient,
        request: AuthorizationRequest,
        subject: str | None,
        *,
        browser: str | None = None,
        steps: tuple[Step, ...] = (),
    ) -> None:
        decided = await self._decided(request)
        if browser is not None:
            request = msgspec.structs.replace(request, browser=browser)
        if self.settings.lifetimes.remember > 0:
            consent, seconds = StoredConsent(request.scopes), self.settings.lifetimes.remember
            steps = (*steps, self.records.put("consent", _consent_name(request), consent, seconds=seconds))
        await self.finish(exchange, client, request, subject, steps=(decided, *steps))

    def _check_site(self, exchange: OAuthExchange) -> None:
        """Reject a form that another site sent; a page cannot forge these headers."""
        origin, site = exchange.header(b"origin"), exchange.header(b"sec-fetch-site")
        if origin not in (None, self.settings.origin) or site not in (None, "same-origin"):
            raise PageError(403, "Sent by another site", "The decision was sent by another site and was ignored.")

    async def _still_known(self, request: AuthorizationRequest, exchange: OAuthExchange) -> OAuthClient:
        client, _ = await self._client({"client_id": request.client_id, "redirect_uri": request.redirect_uri}, exchange)
        return client

    async def _decided(self, request: AuthorizationRequest) -> Step:
        """Return the step that marks a request as decided; its condition is that it was not."""
        if request.generation != (await self.records.ready()).generation:
            # The store lost writes, perhaps that this request was decided.
            raise _already_decided()
        return self.records.spend("decided", request.nonce, seconds=request.until - self.settings.clock())

    async def commit(self, *steps: Step) -> None:
        """Do the steps of a decision at once.

        Raises:
            PageError: the request was decided before, or too many are in progress.
        """
        outcome = await self.records.commit(*steps)
        if outcome.full is not None:
            raise PageError(
                503, "Too many sign-ins in progress", "Try again in ten minutes.", headers=(("retry-after", "600"),)
            )
        if not outcome.done:
            raise _already_decided()

    # --- the outcome -------------------------------------------------------------------------------------------------

    async def finish(
        self,
        exchange: OAuthExchange,
        client: OAuthClient,
        request: AuthorizationRequest,
        subject: str | None,
        *,
        steps: tuple[Step, ...] = (),
    ) -> None:
        """Commit a decision, and redirect the user to the client with a code."""
        assert subject is not None
        code, stored = await self.make_code(request, subject=subject, grant_id=new_secret())
        await self.commit(*steps, stored)
        await exchange.redirect(self.back(request, {"code": code}))

    async def make_code(self, request: AuthorizationRequest, *, subject: str, grant_id: str) -> tuple[str, Step]:
        """Return an authorization code for an approved request, and the step that makes it valid."""
        code = new_secret()
        record = AuthorizationCode(
            grant_id=grant_id,
            subject=subject,
            client_id=request.client_id,
            redirect_uri=request.redirect_uri,
            challenge=request.challenge,
            resource=request.resource,
            scopes=request.scopes,
            until=self.settings.clock() + self.settings.lifetimes.code,
            generation=(await self.records.ready()).generation,
        )
        # Stored longer than it is valid, so that a second use is detected.
        return code, self.records.add("code", digest(code), record, seconds=self.settings.lifetimes.access)

    async def refuse(self, exchange: OAuthExchange, request: AuthorizationRequest, fault: OAuthError) -> None:
        """Redirect the user to the client with an error."""
        error = {"error": fault.error, "error_description": fault.description}
        await exchange.redirect(self.back(request, error))

    async def _tell(
        self, exchange: OAuthExchange, client: OAuthClient, redirect_uri: str, state: str | None, fault: OAuthError
    ) -> None:
        """Report an invalid request to the client.

        Anyone can register a redirect URI, so for clients that are not configured the user is asked before being sent
        there (OAuth 2.1, 7.12.2).
        """
        error = {"error": fault.error, "error_description": fault.description, "state": state}
        url = add_query_parameters(redirect_uri, {**error, "iss": self.settings.issuer})
        if client.source == "configured" or is_loopback_uri(redirect_uri):
            await exchange.redirect(url)
            return
        sentence = f"The request of {host_of(redirect_uri)} is not valid: {fault.description}."
        page = message_page(self.settings.name, "Invalid request", sentence, link=url)
        await exchange.answer_html(400, page, policy=content_security_policy())

    def back(self, request: AuthorizationRequest, answer: Mapping[str, str]) -> str:
        """Return the redirect URI with the parameters of a response."""
        # RFC 9207: every response names its issuer.
        added = {**answer, "state": request.state, "iss": self.settings.issuer}
        return add_query_parameters(request.redirect_uri, added)

    # --- the browser -------------------------------------------------------------------------------------------------

    def _set_cookie(self, exchange: OAuthExchange, value: str) -> None:
        lifetimes = self.settings.lifetimes
        seconds = max(lifetimes.session, lifetimes.remember)
        exchange.cookies_to_set.append(self.settings.cookie_header(value, seconds))

    async def _signed_in(self, request: AuthorizationRequest) -> str | None:
        session = await self.records.get("session", request.browser, BrowserSession)
        return None if session is None else session.record.subject

    async def _remembered(self, exchange: OAuthExchange, request: AuthorizationRequest) -> bool:
        """Return True if this browser has approved the same for this client, and the user opened the page themselves.

        If another site led here, the page is always shown: otherwise that site could silently reuse a consent.
        """
        if self.settings.lifetimes.remember <= 0 or exchange.header(b"sec-fetch-site") != "none":
            return False
        consent = await self.records.get("consent", _consent_name(request), StoredConsent)
        return consent is not None and set(request.scopes) <= set(consent.record.scopes)


def requested_scopes(settings: IssuerSettings, client: OAuthClient, scope: str | None) -> tuple[str, ...]:
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
        raise OAuthError("invalid_scope", f"Known scopes: {' '.join(settings.scopes)}")
    return granted


def _consent_name(request: AuthorizationRequest) -> str:
    """Return the storage name of a consent: browser, client, redirect URI (any port for loopback) and resource."""
    where = (
        re.sub(r":\d+(?=[/?]|$)", "", request.redirect_uri, count=1) if is_loopback_uri(request.redirect_uri) else None
    )
    return digest("\n".join((request.browser, request.client_id, where or request.redirect_uri, request.resource)))


def _parse_query(exchange: OAuthExchange) -> dict[str, str]:
    try:
        return exchange.query()
    except OAuthError as fault:
        raise PageError(fault.status, "Malformed link", f"{fault.description}.") from None


def _already_decided() -> PageError:
    return PageError(403, "Already decided", "You have already answered this page. Go back to the application.")
