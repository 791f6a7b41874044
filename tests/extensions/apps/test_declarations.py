"""What a page may declare, and the policy that a host applies to it, with hostile declarations."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from trunkline import Server
from trunkline.extensions import AppCsp, AppDeclaration, content_security_policy, frame_permissions
from trunkline.extensions.apps.content_security import internal_origins
from trunkline.extensions.apps.declarations import read_declaration

#: What could add a directive to a header, or loosen one.
HOSTILE = [
    "https://a.example; script-src *",
    "https://a.example\nscript-src: *",
    "https://a.example\r\nSet-Cookie: a=b",
    "https://a.example\n",
    "https://a.example https://b.example",
    "https://a.example,https://b.example",
    "'unsafe-eval'",
    "'self'",
    "*",
    "https://*",
    "https://*.com",
    "https://a.*.example",
    "https://a*.example.com",
    "https:",
    "data:",
    "blob:",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "https://user:pass@a.example",
    "https://a.example/path",
    "https://a.example?x=1",
    "https://a.example#x",
    "https://a.example:port",
    "https://a.example:123456",
    "https://[::1]",
    "https://ä.example",
    "https://\u212aelvin.example",
    "https://a..example",
    "https://-a.example",
    "https://" + "a" * 64 + ".example",
    "https://" + "a." * 200 + "example",
    "//a.example",
    "a.example",
    "",
    7,
    None,
    ["https://a.example"],
]


@pytest.mark.parametrize("member", ["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"])
def test_nothing_but_origins_is_accepted_from_a_server(member: str) -> None:
    accepted = []
    for origin in HOSTILE:
        with suppress(ValueError):
            accepted.append(read_declaration({"csp": {member: [origin]}}))
    assert accepted == []


@pytest.mark.parametrize(
    "origin",
    [
        "https://api.example.com",
        "https://api.example.com:8443",
        "wss://live.example.com",
        "http://localhost:3000",
        "http://127.0.0.1:3000",
        "https://*.example.com",
        "https://*.localhost",
        "https://xn--4ca.example",
        "https://HOST.Example",
    ],
)
def test_an_origin_is_accepted_as_it_is_compared_in_lower_case(origin: str) -> None:
    assert AppCsp(connect=(origin,)).connect == (origin.lower(),)


def test_an_origin_of_a_server_may_end_with_a_slash() -> None:
    declared = read_declaration({"csp": {"connectDomains": ["https://a.example/", "https://a.example"]}})
    assert declared.csp == AppCsp(connect=("https://a.example",))


@pytest.mark.parametrize(
    "ui",
    [
        {"csp": ["https://a.example"]},
        {"csp": {"connectDomains": "https://a.example"}},
        {"csp": {"connectDomains": {"https://a.example": 1}}},
        {"csp": {"connectDomains": [f"https://a{n}.example" for n in range(65)]}},
        {"permissions": ["camera"]},
    ],
)
def test_a_declaration_of_another_shape_is_refused(ui: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|allowed"):
        read_declaration(ui)


@pytest.mark.parametrize(
    ("ui", "declared"),
    [
        (None, AppDeclaration()),
        ({}, AppDeclaration()),
        ({"csp": {}}, AppDeclaration(csp=AppCsp())),
        ({"csp": {"connectDomains": None, "somethingNew": ["'x'"]}}, AppDeclaration(csp=AppCsp())),
        (
            {"permissions": {"camera": {}, "clipboardWrite": {}}},
            AppDeclaration(permissions=("camera", "clipboard_write")),
        ),
        ({"permissions": {"camera": True, "usb": {}}}, AppDeclaration()),
        ({"domain": "panel.example.com"}, AppDeclaration(domain="panel.example.com")),
        ({"domain": "https://panel.example.com"}, AppDeclaration()),
        ({"domain": "a\nb"}, AppDeclaration()),
        ({"prefersBorder": False}, AppDeclaration(prefers_border=False)),
        ({"prefersBorder": "yes"}, AppDeclaration()),
        ({"resourceUri": "ui://x/y"}, AppDeclaration()),
    ],
)
def test_what_a_server_declares_is_read(ui: dict[str, Any] | None, declared: AppDeclaration) -> None:
    assert read_declaration(ui) == declared


def test_a_page_that_declares_nothing_gets_the_restrictive_policy() -> None:
    assert content_security_policy(None) == (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src 'none'; object-src 'none'; "
        "base-uri 'self'"
    )


def test_a_policy_allows_what_was_declared_and_nothing_else() -> None:
    csp = AppCsp(
        connect=("https://api.example.com", "wss://live.example.com"),
        resources=("https://*.cdn.example",),
        frames=("https://video.example",),
        base_uris=("https://base.example",),
    )
    assert content_security_policy(csp) == (
        "default-src 'none'; "
        "script-src 'self' 'unsafe-inline' https://*.cdn.example; "
        "style-src 'self' 'unsafe-inline' https://*.cdn.example; "
        "connect-src 'self' https://api.example.com wss://live.example.com; "
        "img-src 'self' data: https://*.cdn.example; "
        "font-src 'self' https://*.cdn.example; "
        "media-src 'self' data: https://*.cdn.example; "
        "frame-src https://video.example; "
        "object-src 'none'; "
        "base-uri https://base.example"
    )


def test_an_empty_declaration_allows_no_other_origin() -> None:
    policy = content_security_policy(AppCsp())
    assert "://" not in policy
    assert "connect-src 'self';" in policy
    assert "frame-src 'none'; object-src 'none'; base-uri 'self'" in policy


def test_permissions_become_the_features_of_a_frame() -> None:
    assert frame_permissions(AppDeclaration(permissions=("camera", "clipboard_write"))) == "camera; clipboard-write"
    assert frame_permissions(AppDeclaration()) == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csp": {"connect": ["https://a.example/v1"]}}, "leave out the path: https://a.example"),
        ({"csp": {"connect": ["a.example"]}}, "begin it with a scheme, such as https://a.example"),
        ({"csp": {"resources": ["'unsafe-eval'"]}}, "only origins can be declared"),
        ({"csp": {"resources": ["https://cdn.*.example"]}}, "a wildcard may only be the leftmost label"),
        ({"csp": {"resources": ["https://*.com"]}}, "every site below 'com'; use your own domain"),
        ({"csp": {"frames": ["a b"]}}, "write scheme, host and port"),
        ({"csp": {"frames": "https://a.example"}}, "frames is a list of origins"),
        ({"csp": {"conect": []}}, "csp has no list 'conect'; it has connect, resources, frames, base_uris"),
        ({"permissions": ["usb"]}, "unknown permission 'usb'; use camera, microphone"),
        ({"domain": "https://panel.example"}, "without scheme and port"),
    ],
)
def test_a_wrong_declaration_fails_at_registration_and_names_the_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"page 'ui://a/b'") as caught:
        Server("s").add_app("ui://a/b", "<p>", **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"csp": ["https://a.example"]}, "csp= is AppCsp"),
        ({"permissions": "camera"}, r'permissions= is a list, such as \["camera"\]'),
        ({"prefers_border": "yes"}, "prefers_border= is True, False or None"),
        ({"tools": "show"}, "tools= is a list of functions or names"),
        ({"cps": {}}, "unknown option 'cps'; did you mean 'csp'"),
        ({"zzzzzz": {}}, "unknown option 'zzzzzz'; a page has cache_scope, csp,"),
    ],
)
def test_an_option_of_the_wrong_type_fails_at_registration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Server("s").add_app("ui://a/b", "<p>", **options)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("https://api.example.com", False),
        ("https://*.example.com", False),
        ("https://alice.github.io", False),
        ("http://localhost:3000", True),
        ("http://app.localhost", True),
        ("http://127.0.0.1:9000", True),
        ("http://2130706433", True),
        ("http://0x7f000001", True),
        ("http://0x7f.1", True),
        ("https://8.8.8.8", True),
        ("http://nas", True),
        ("http://printer.local", True),
        ("https://*.github.io", True),
        ("https://*.co.uk", True),
        ("https://*.govt.nz", True),
        ("https://*.on.ca", True),
        ("https://*.amazon.co.uk", False),
        ("https://*.project.pages.dev", False),
        ("https://*.up.railway.app", True),
        ("https://*.s3.eu-west-1.amazonaws.com", True),
    ],
)
def test_internal_origins(origin: str, expected: bool) -> None:
    assert internal_origins(AppCsp(resources=(origin,))) == ((origin,) if expected else ())
