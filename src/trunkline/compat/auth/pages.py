"""The pages of an authorization server: consent, errors, an unknown client. Everything shown is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

__all__ = ["create_consent_html", "create_error_html", "create_unregistered_client_html", "server_branding"]

_STYLE = """
body { font-family: system-ui, sans-serif; background: #f4f5f7; color: #1d2430; margin: 0; }
main { max-width: 34rem; margin: 6vh auto; background: #fff; padding: 2rem; border-radius: 10px;
  box-shadow: 0 2px 12px rgba(0, 0, 0, .08); }
img.logo { max-height: 48px; display: block; margin-bottom: 1rem; }
h1 { font-size: 1.35rem; }
.info-box { background: #eef2ff; border-left: 4px solid #4a63d8; padding: .75rem 1rem; margin: 1rem 0;
  overflow-wrap: anywhere; }
.info-box.error { background: #fdecec; border-color: #c93434; }
dt { font-weight: 600; margin-top: .6rem; }
dd { margin: 0; font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
button { font: inherit; padding: .6rem 1.4rem; border-radius: 6px; border: 1px solid #c5cad6; cursor: pointer; }
button.approve { background: #4a63d8; border-color: #4a63d8; color: #fff; }
"""
#: No scripts, no frames; a form may post anywhere, since browsers apply that rule to the redirect that follows too.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; base-uri 'none'"


def server_branding(request: Any) -> tuple[str | None, str | None, str | None]:
    """Return the name, the icon and the page of the server that a request is for, where they are known."""
    server = getattr(getattr(getattr(request, "app", None), "state", None), "fastmcp_server", None)
    name = getattr(server, "name", None)
    if not isinstance(name, str):
        return None, None, None
    icons = getattr(server, "icons", None) or []
    icon = str(icons[0].src) if isinstance(icons, list) and icons else None
    page = getattr(server, "website_url", None)
    return name, icon, page if isinstance(page, str) else None


def _page(title: str, body: str, *, icon: tuple[str | None, str | None] = (None, None), policy: str = _POLICY) -> str:
    source, alternative = icon
    logo = f'<img class="logo" src="{escape(source)}" alt="{escape(alternative or "")}">' if source is not None else ""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">' if policy else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{meta}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><main>{logo}{body}</main></body></html>"
    )


def _details(rows: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows) + "</dl>"


def create_consent_html(
    client_id: str,
    redirect_uri: str,
    scopes: list[str],
    txn_id: str,
    csrf_token: str,
    client_name: str | None = None,
    title: str = "Application Access Request",
    server_name: str | None = None,
    server_icon_url: str | None = None,
    server_website_url: str | None = None,
    client_website_url: str | None = None,
    csp_policy: str | None = None,
    is_cimd_client: bool = False,
    cimd_domain: str | None = None,
) -> str:
    """Return the page that asks whether a client may act for the user."""
    server = escape(server_name or "the MCP server")
    if server_website_url and server_website_url.startswith(("https://", "http://")):
        server = f'<a href="{escape(server_website_url)}" rel="noopener noreferrer">{server}</a>'
    verified = ""
    if is_cimd_client and cimd_domain:
        verified = f'<p class="info-box">Verified: the application is published by {escape(cimd_domain)}.</p>'
    rows = [("Application", client_name or client_id), ("Client ID", client_id), ("Redirect URI", redirect_uri)]
    rows += [("Website", client_website_url)] if client_website_url else []
    rows.append(("Requested scopes", ", ".join(scopes) or "none"))
    body = (
        f"<h1>{escape(title)}</h1>"
        f"<p>{escape(client_name or client_id)} wants to access {server} on your behalf.</p>{verified}"
        f'<div class="info-box">After you allow it, you are sent to <strong>{escape(redirect_uri)}</strong>. '
        f"Allow it only if you started this and know where that leads.</div>{_details(rows)}"
        '<form method="POST" action="">'
        f'<input type="hidden" name="txn_id" value="{escape(txn_id)}">'
        f'<input type="hidden" name="csrf_token" value="{escape(csrf_token)}">'
        '<button class="approve" type="submit" name="action" value="approve">Allow access</button> '
        '<button type="submit" name="action" value="deny">Deny</button></form>'
    )
    policy = _POLICY if csp_policy is None else csp_policy
    return _page(title, body, icon=(server_icon_url, server_name), policy=policy)


def create_error_html(
    error_title: str,
    error_message: str,
    error_details: Mapping[str, str] | None = None,
    server_name: str | None = None,
    server_icon_url: str | None = None,
) -> str:
    """Return the page of an error."""
    details = f"<h2>Error Details</h2>{_details(error_details.items())}" if error_details else ""
    body = f'<h1>{escape(error_title)}</h1><div class="info-box error">{escape(error_message)}</div>{details}'
    return _page(error_title, body, icon=(server_icon_url, server_name))


def create_unregistered_client_html(
    client_id: str,
    registration_endpoint: str,
    discovery_endpoint: str,
    server_name: str | None = None,
    server_icon_url: str | None = None,
    title: str = "Client Not Registered",
) -> str:
    """Return the page for a client that the server does not know."""
    body = (
        f"<h1>{escape(title)}</h1>"
        f'<div class="info-box error">The client ID <code>{escape(client_id)}</code> is not registered here. '
        "The server may have been reset since it registered.</div>"
        "<h2>To fix this</h2><ol><li>Close this browser window.</li>"
        "<li>Clear authentication tokens of this server in your client.</li>"
        "<li>Connect again: the client registers anew.</li></ol>"
        + _details([("Registration endpoint", registration_endpoint), ("Discovery", discovery_endpoint)])
    )
    return _page(title, body, icon=(server_icon_url, server_name))
