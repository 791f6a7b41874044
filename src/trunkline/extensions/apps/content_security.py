"""The policies that a host applies to a page: the Content-Security-Policy header, and the frame's ``allow``.

Both are built only from validated values: an ``AppCsp`` contains only origins, so no declaration can add a directive or
weaken one. Pure: no I/O.
"""

from __future__ import annotations

from types import MappingProxyType

from trunkline.extensions.apps.declarations import AppCsp, AppDeclaration

__all__ = ["content_security_policy", "frame_permissions"]

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
