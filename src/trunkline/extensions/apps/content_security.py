"""The policies that a host applies to a page: the Content-Security-Policy header, and the frame's ``allow``.

Both are built only from validated values: an ``AppCsp`` contains only origins, so no declaration can add a directive or
weaken one. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from types import MappingProxyType
from urllib.parse import urlsplit

from trunkline.extensions.apps.declarations import AppCsp, AppDeclaration

__all__ = ["content_security_policy", "frame_permissions", "internal_origins", "without_origins"]

# SEP-1865, Host Behavior, Restrictive Default, and the three directives that the sandbox applies to every page (Sandbox
# proxy, 5): without them a page could frame, embed or rebase, which ``default-src`` does not cover for ``base-uri``.
_RESTRICTIVE = (
    "default-src 'none'",
    "script-src 'self' 'unsafe-inline'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "media-src 'self' data:",
    "connect-src 'none'",
    "frame-src 'none'",
    "object-src 'none'",
    "base-uri 'self'",
)
_FEATURES = MappingProxyType(
    {
        "camera": "camera",
        "microphone": "microphone",
        "geolocation": "geolocation",
        "clipboard_write": "clipboard-write",
    }
)


def content_security_policy(csp: AppCsp | None) -> str:
    """Return the value of the Content-Security-Policy header for a page with this declaration.

    Without a declaration it is the restrictive default of the specification, otherwise the policy that SEP-1865 defines
    (Content Security Policy Enforcement).
    """
    if csp is None:
        return "; ".join(_RESTRICTIVE)
    resources = ("'self'", "'unsafe-inline'", *csp.resources)
    media = ("'self'", "data:", *csp.resources)
    directives = {
        "default-src": ("'none'",),
        "script-src": resources,
        "style-src": resources,
        "connect-src": ("'self'", *csp.connect),
        "img-src": media,
        "font-src": ("'self'", *csp.resources),
        "media-src": media,
        "frame-src": csp.frames or ("'none'",),
        "object-src": ("'none'",),
        "base-uri": csp.base_uris or ("'self'",),
    }
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())


def frame_permissions(declared: AppDeclaration) -> str:
    """Return the ``allow`` attribute of a frame with all permissions that a page requests; a host may grant fewer."""
    return "; ".join(_FEATURES[name] for name in declared.permissions)


#: Suffixes below which anybody gets a name, so that a wildcard there matches everybody's site. These are the large
#: hosts of the Public Suffix List, which has about ten thousand entries and changes every week.
_SHARED_SUFFIXES = frozenset(
    """app.github.dev appspot.com azureedge.net azurefd.net azurewebsites.net b-cdn.net blogspot.com cloudfront.net
    cloudfunctions.net csb.app deno.dev firebaseapp.com firebaseio.com fly.dev github.io gitlab.io glitch.me
    googleusercontent.com gradio.live herokuapp.com hf.space loca.lt lovable.app modal.run myshopify.com netlify.app
    ngrok.app ngrok.dev ngrok-free.app ngrok-free.dev ngrok.io ondigitalocean.app onrender.com pages.dev r2.dev
    replit.app replit.dev streamlit.app supabase.co surge.sh trycloudflare.com vercel.app web.app webflow.io
    wixsite.com wordpress.com workers.dev""".split()  # noqa: SIM905
)
#: The same, with a region or service between the name and the suffix: ``NAME.s3.eu-west-1.amazonaws.com``.
_SHARED_AT_ANY_DEPTH = re.compile(
    r"(?:.+\.)?(?:(?:amazonaws|azure|aliyuncs|backblazeb2|digitaloceanspaces|linodeobjects|oraclecloud)\.com"
    r"|(?:azurestaticapps|windows)\.net|(?:railway|run)\.app|r\.appspot\.com)"
)
#: The second level of a country's domain: two letters (co.uk, ne.jp, on.ca, ca.us), or one of the usual words.
_COUNTRY_SUFFIX = re.compile(
    r"(?:[a-z]{2}|asn|biz|com|edu|firm|gen|gob|gouv|gov|govt|ind|info|int|ltd|mil|net|nhs|nom|org|plc|sch|school)"
    r"\.[a-z]{2}"
)
_INTERNAL_SUFFIXES = (".local", ".localhost", ".internal", ".intranet", ".lan", ".home.arpa")
_NUMERIC = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)\.?")


def internal_origins(csp: AppCsp) -> tuple[str, ...]:
    """Return the declared origins that a page of another machine needs consent for.

    These are this machine, names of a local network, hosts written as numbers (any address, in any notation), and
    wildcards that match the sites of everybody.
    """
    declared = dict.fromkeys((*csp.connect, *csp.resources, *csp.frames, *csp.base_uris))
    return tuple(origin for origin in declared if _is_internal(urlsplit(origin).netloc))


def _is_internal(where: str) -> bool:
    host = re.sub(r":(?:\d+|\*)$", "", where).rstrip(".")
    if host.startswith("*."):
        host = host[2:]
        if host in _SHARED_SUFFIXES or _SHARED_AT_ANY_DEPTH.fullmatch(host) or _COUNTRY_SUFFIX.fullmatch(host):
            return True
    return (
        host.startswith("[") or "." not in host or host.endswith(_INTERNAL_SUFFIXES) or bool(_NUMERIC.fullmatch(host))
    )


def without_origins(csp: AppCsp, origins: Collection[str]) -> AppCsp:
    """Return a declaration without these origins."""
    kept = {name: tuple(one for one in getattr(csp, name) if one not in origins) for name in csp.__struct_fields__}
    return AppCsp(**kept)
