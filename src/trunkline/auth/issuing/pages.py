"""The pages that people see: what is asked of them, and what went wrong.

Whatever is shown may have been chosen by a stranger: everything is escaped, no page has a script, and the policy sent
with each allows nothing but its own style. What a person must look at, where they are sent afterwards, is large.
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
    """What the page that asks for consent shows."""

    server: str
    client: OAuthClient
    request: AuthorizationRequest
    #: The request, sealed: its name in the form, which no other site can know.
    sealed: str
    action: str
    descriptions: Mapping[str, str]
    #: Who is signed in; None: the form asks for name and password.
    signed_in: str | None = None
    #: Nobody signs in here: somebody else's page follows.
    follows: str | None = None
    wrong: str | None = None


def policy_of(*form_targets: str) -> str:
    """Write what a page may do: show its own style, and send its form to these places."""
    targets = " ".join(form_targets) or "'none'"
    return (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {targets}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )


def consent_page(page: ConsentPage) -> str:
    """Write the page on which a person allows or refuses."""
    client, request = page.client, page.request
    name = escape(client.client_name or "An application without a name")
    body = [
        f"<h1><strong>{name}</strong> asks for access to {escape(page.server)}</h1>",
        f'<p class="wrong" role="alert">{escape(page.wrong)}</p>' if page.wrong else "",
        "<dl><dt>If you allow it, you are sent to</dt>",
        f'<dd class="host">{escape(host_of(request.redirect_uri))}</dd>',
        _who(client),
        f"<dt>It may use</dt><dd><code>{escape(request.resource)}</code>",
        f"{_scopes(request.scopes, page.descriptions)}</dd>",
        "</dl>",
        _warning(client, request),
        f'<form method="post" action="{escape(page.action)}">',
        f'<input type="hidden" name="request" value="{escape(page.sealed)}">',
        _sign_in(page),
        # The first one is what the Enter key means.
        '<div class="choice"><button class="yes" name="decision" value="allow">Allow</button>'
        '<button name="decision" value="deny" formnovalidate>Refuse</button></div>',
        "</form>",
    ]
    return _page(f"Allow {client.client_name or 'access'}?", page.server, "\n".join(part for part in body if part))


def onward_page(server: str, link: str) -> str:
    """Write a page that leads on at once.

    A redirect would not do after a form: the policy of the page with the form counts for all it leads to, and where
    somebody else's page sends a person is not ours to know.
    """
    at_once = f'<meta http-equiv="refresh" content="0; url={escape(link)}">'
    host = escape(host_of(link))
    body = f'<h1>On to {host}</h1>\n<p><a rel="noreferrer" href="{escape(link)}">Go on to {host}</a></p>'
    return _page(f"On to {host_of(link)}", server, body, head=at_once)


def message_page(server: str, title: str, sentence: str, *, link: str | None = None) -> str:
    """Write a page that says one thing; with a link that leads on, if there is somewhere to go."""
    onward = f'<p><a rel="noreferrer" href="{escape(link)}">Go on to {escape(host_of(link))}</a></p>' if link else ""
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
        return "<dt>Who it is</dt><dd>It chose its name itself; nobody checked it.</dd>"
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
    """Warn of a client that only lives on the user's machine: any program there can claim to be it."""
    if not is_loopback(request.redirect_uri) or client.source == "configured":
        return ""
    return (
        '<p class="warn" role="note">This application is a program on your own computer, and any program there can '
        "claim to be it. Go on only if you have just started this yourself.</p>"
    )


def _sign_in(page: ConsentPage) -> str:
    if page.follows is not None:
        return f"<p>You sign in at <strong>{escape(host_of(page.follows))}</strong> afterwards.</p>"
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
    """Write the policy of a page whose form leads, by redirects, to other sites."""
    return policy_of("'self'", *dict.fromkeys(origin_of(uri) for uri in uris))
