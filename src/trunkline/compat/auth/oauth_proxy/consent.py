"""Consent: the page that asks the user, and the cookies that tie an answer to the browser that was asked.

An attacker who starts an authorization must not be able to have another user's browser finish it: so a form is accepted
only with a token whose cookie the same browser has, and the identity provider's answer only from the browser that
consented. Cookies are signed, never readable by scripts, and limited to this host.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from trunkline.compat.auth.oauth_proxy.models import TRANSACTION_SECONDS, OAuthTransaction, hash_token
from trunkline.compat.auth.pages import create_consent_html, create_error_html, server_branding
from trunkline.compat.auth.redirects import build_client_redirect, validate_redirect_uri

__all__ = ["CONSENT_STATE_COOKIE", "MAX_CSRF_TOKENS", "ConsentPages", "error_page"]

_MAX_REMEMBERED = 25  # Answers in one cookie, which has to fit into a header.
MAX_CSRF_TOKENS = 10  # Pages that may be open at once: each has a cookie.
CONSENT_STATE_COOKIE = "MCP_CONSENT_STATE"
_BINDING = "MCP_CONSENT_BINDING"
_APPROVED, _DENIED = "MCP_APPROVED_CLIENTS", "MCP_DENIED_CLIENTS"
_REMEMBERED_SECONDS = 365 * 24 * 60 * 60  # Browsers keep no cookie for much longer.


def error_page(request: Any, title: str, message: str, status: int, details: dict[str, str] | None = None) -> Response:
    """Return the page of an error."""
    name, icon, _ = server_branding(request)
    page = create_error_html(title, message, details, name, icon)
    return HTMLResponse(page, status_code=status, headers={"X-Frame-Options": "DENY", "Cache-Control": "no-store"})


class ConsentPages:
    """The part of the proxy that has to do with consent."""

    # --- cookies -----------------------------------------------------------------------------------------------------

    def _cookie_name(self: Any, base_name: str) -> str:
        # The prefix makes browsers refuse such a cookie from anywhere but this host over TLS.
        return f"__Host-{base_name}" if self._is_https else base_name

    def _sign_cookie(self: Any, payload: str) -> str:
        key = hmac.digest(self._jwt_signing_key, b"consent cookies", "sha256")
        return f"{payload}.{hmac.new(key, payload.encode(), hashlib.sha256).hexdigest()}"

    def _verify_cookie(self: Any, signed_value: str) -> str | None:
        payload, found, _ = signed_value.rpartition(".")
        return payload if found and hmac.compare_digest(self._sign_cookie(payload), signed_value) else None

    def _read_cookie(self: Any, value: str | None) -> Any:
        payload = self._verify_cookie(value) if value else None
        if payload is None:
            return None
        try:
            return json.loads(base64.urlsafe_b64decode(payload.encode()))
        except ValueError:
            return None

    def _set_cookie(self: Any, response: Response, name: str, value: Any, seconds: int) -> None:
        payload = base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode()
        response.set_cookie(
            name,
            self._sign_cookie(payload),
            max_age=seconds,
            secure=self._is_https,
            httponly=True,
            samesite="lax",
            path="/",
        )

    def _expire_cookie(self: Any, response: Response, name: str) -> None:
        response.set_cookie(name, "", max_age=0, secure=self._is_https, httponly=True, samesite="lax", path="/")

    # --- open pages --------------------------------------------------------------------------------------------------

    def _open_pages(self: Any, request: Request) -> dict[str, tuple[str, float]]:
        """Return the pages that this browser was shown: by cookie name, the transaction and when."""
        prefix = self._cookie_name(CONSENT_STATE_COOKIE) + "_"
        found: dict[str, tuple[str, float]] = {}
        for name, value in request.cookies.items():
            if name.startswith(prefix):
                state = self._read_cookie(value)
                if isinstance(state, list) and len(state) == 2 and state[1] > time.time() - TRANSACTION_SECONDS:
                    found[name] = (str(state[0]), float(state[1]))
        return found

    def _page_cookie(self: Any, csrf_token: str) -> str:
        return f"{self._cookie_name(CONSENT_STATE_COOKIE)}_{hash_token(csrf_token)[:16]}"

    def _close_pages(self: Any, request: Request, response: Response, txn_id: str) -> None:
        for name, (transaction, _) in self._open_pages(request).items():
            if transaction == txn_id:
                self._expire_cookie(response, name)

    # --- the browser that consented ----------------------------------------------------------------------------------

    def _bindings(self: Any, request: Request) -> dict[str, str]:
        found = self._read_cookie(request.cookies.get(self._cookie_name(_BINDING)))
        return found if isinstance(found, dict) else {}

    def _bind(self: Any, request: Request, response: Response, txn_id: str, token: str | None) -> None:
        bindings = self._bindings(request)
        bindings.pop(txn_id, None)
        if token is not None:
            bindings[txn_id] = token
        kept = dict(list(bindings.items())[-MAX_CSRF_TOKENS:])
        if kept:
            self._set_cookie(response, self._cookie_name(_BINDING), kept, TRANSACTION_SECONDS)
        else:
            self._expire_cookie(response, self._cookie_name(_BINDING))

    def _is_bound(self: Any, request: Request, txn_id: str, token: str | None) -> bool:
        given = self._bindings(request).get(txn_id)
        return bool(token) and isinstance(given, str) and hmac.compare_digest(given, str(token))

    # --- answers that are remembered ---------------------------------------------------------------------------------

    def _remembered(self: Any, request: Request, which: str) -> list[str]:
        found = self._read_cookie(request.cookies.get(self._cookie_name(which)))
        return [str(each) for each in found] if isinstance(found, list) else []

    def _remember(self: Any, request: Request, response: Response, which: str, transaction: Any) -> None:
        key = _client_key(transaction)
        kept = [each for each in self._remembered(request, which) if each != key][-(_MAX_REMEMBERED - 1) :]
        self._set_cookie(response, self._cookie_name(which), [*kept, key], _REMEMBERED_SECONDS)

    # --- pages -------------------------------------------------------------------------------------------------------

    async def _handle_consent(self: Any, request: Request) -> Any:
        """Answer a request for the page, or the form."""
        if request.method == "POST":
            return await self._submit_consent(request)
        return await self._show_consent_page(request)

    async def _show_consent_page(self: Any, request: Request) -> Any:
        txn_id = request.query_params.get("txn_id")
        transaction = await self._transaction_store.get(key=txn_id) if txn_id else None
        if transaction is None:
            return error_page(request, "Error", "The request is unknown or has expired; start again.", 400)
        # A navigation from another site must not use an answer that was given before.
        deliberate = request.headers.get("sec-fetch-site") in ("none", "same-origin")
        if self._require_authorization_consent == "remember" and deliberate:
            key = _client_key(transaction)
            if key in self._remembered(request, _APPROVED):
                return await self._approve(request, transaction)
            if key in self._remembered(request, _DENIED):
                return self._deny(request, transaction)
        return await self._render_consent(request, transaction)

    async def _render_consent(self: Any, request: Request, transaction: OAuthTransaction) -> Any:
        client = await self.get_client(transaction.client_id)
        csrf_token = secrets.token_urlsafe(32)
        name, icon, page = server_branding(request)
        document = getattr(client, "cimd_document", None)
        website = getattr(client, "client_uri", None)
        html = create_consent_html(
            client_id=transaction.client_id,
            redirect_uri=transaction.client_redirect_uri,
            scopes=transaction.scopes,
            txn_id=transaction.txn_id,
            csrf_token=csrf_token,
            client_name=getattr(client, "client_name", None),
            server_name=name,
            server_icon_url=icon,
            server_website_url=page,
            client_website_url=str(website) if website else None,
            csp_policy=self._consent_csp_policy,
            is_cimd_client=document is not None,
            cimd_domain=urlsplit(transaction.client_id).hostname if document is not None else None,
        )
        response = HTMLResponse(html, headers={"X-Frame-Options": "DENY", "Cache-Control": "no-store"})
        opened = sorted(self._open_pages(request).items(), key=lambda each: each[1][1])
        for old, _ in opened[: max(0, len(opened) - MAX_CSRF_TOKENS + 1)]:
            self._expire_cookie(response, old)
        state = [transaction.txn_id, time.time()]
        self._set_cookie(response, self._page_cookie(csrf_token), state, TRANSACTION_SECONDS)
        return response

    async def _submit_consent(self: Any, request: Request) -> Any:
        form = await request.form()
        txn_id, csrf_token = str(form.get("txn_id", "")), str(form.get("csrf_token", ""))
        transaction = await self._transaction_store.get(key=txn_id) if txn_id else None
        if transaction is None:
            return error_page(request, "Error", "The request is unknown or has expired; start again.", 400)
        opened = self._open_pages(request).get(self._page_cookie(csrf_token)) if csrf_token else None
        if opened is None or opened[0] != txn_id:
            return error_page(
                request, "Error", "The form does not belong to a page that this browser was shown; start again.", 403
            )
        if form.get("action") == "approve":
            response = await self._approve(request, transaction)
            which = _APPROVED
        elif form.get("action") == "deny":
            response, which = self._deny(request, transaction), _DENIED
        else:
            return error_page(request, "Error", "The form is incomplete.", 400)
        if self._require_authorization_consent == "remember" and response.status_code == 302:
            self._remember(request, response, which, transaction)
        self._close_pages(request, response, txn_id)
        return response

    async def _approve(self: Any, request: Request, transaction: OAuthTransaction) -> Any:
        token = secrets.token_urlsafe(32)
        transaction.consent_token = token
        await self._transaction_store.put(key=transaction.txn_id, value=transaction, ttl=TRANSACTION_SECONDS)
        url = self._build_upstream_authorize_url(transaction.txn_id, transaction.model_dump())
        response = RedirectResponse(url, status_code=302)
        self._bind(request, response, transaction.txn_id, token)
        return response

    def _deny(self: Any, request: Request, transaction: OAuthTransaction) -> Any:
        return self._answer_client(request, transaction, {"error": "access_denied"})

    def _answer_client(self: Any, request: Request, transaction: OAuthTransaction, params: dict[str, str]) -> Any:
        """Send the browser back to the client, if its redirect URI is still allowed."""
        if not validate_redirect_uri(transaction.client_redirect_uri, self._allowed_client_redirect_uris):
            return error_page(request, "Error", "Invalid redirect URI", 400)
        given = params | ({"state": transaction.client_state} if transaction.client_state else {})
        url = build_client_redirect(transaction.client_redirect_uri, given, iss=str(self.issuer_url))
        return RedirectResponse(url, status_code=302, headers={"Cache-Control": "no-store"})


def _client_key(transaction: OAuthTransaction) -> str:
    """Return what an answer is remembered for: the client and where it leads."""
    return hash_token(f"{transaction.client_id}\n{transaction.client_redirect_uri.rstrip('/')}")[:32]
