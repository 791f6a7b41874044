"""The pages of the authorization server: the consent form, and errors.

Everything shown may come from a stranger: all of it is escaped, no page has a script, and the content security policy
of each allows only its own style. The redirect host, which the user must check, is shown in large type.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape

from msgspec import Struct

from trunkline.auth.issuing.records import AuthorizationRequest, OAuthClient
from trunkline.auth.issuing.redirects import host_of, is_loopback, origin_of

__all__ = ["ConsentPage", "consent_page", "form_policy", "message_page", "onward_page", "policy_of"]

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
    follows: str | None = None
    wrong: str | None = None


def policy_of(*form_targets: str) -> str:
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


def onward_page(server: str, link: str) -> str:
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
    if not is_loopback(request.redirect_uri) or client.source == "configured":
        return ""
    return (
        '<p class="warn" role="note">This application runs on your own computer, where any program can '
        "claim to be it. Continue only if you have just started this yourself.</p>"
    )


def _sign_in(page: ConsentPage) -> str:
    if page.follows is not None:
        return f"<p>You will sign in at <strong>{escape(host_of(page.follows))}</strong> next.</p>"
    if page.signed_in is not None:
        return (
            f"<p>Signed in as <strong>{escape(page.signed_in)}</strong>. "
            '<button class="plain" name="decision" value="sign_out" formnovalidate>Not you?</button></p>'
        )
    return (
        '<label>Name<input name="name" autocomplete="username" required autocapitalize="none"></label>'
        '<label>Password<input name="password" type="password" autocomplete="current-password" required></label>'
    )


def form_policy(*uris: str) -> str:
    """Return the policy of a page whose form redirects to other sites."""
    return policy_of("'self'", *dict.fromkeys(origin_of(uri) for uri in uris))
