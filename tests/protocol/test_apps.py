"""MCP Apps on the wire: what ``_meta`` and capabilities say, whatever a server sends."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.protocol.apps import (
    APP_MIME_TYPE,
    app_uri,
    declares_apps,
    has_ui,
    tool_visibility,
    with_app_uris,
    without_ui,
)
from trunkline.protocol.extensions import APPS

PANEL = "ui://weather/panel"


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        ({}, False),
        ({"extensions": {APPS: {"mimeTypes": [APP_MIME_TYPE]}}}, True),
        ({"extensions": {APPS: {"mimeTypes": ["text/plain", "text/html; Profile=mcp-app"]}}}, True),
        ({"extensions": {APPS: {"mimeTypes": ["text/html"]}}}, False),
        ({"extensions": {APPS: {"mimeTypes": APP_MIME_TYPE}}}, False),
        ({"extensions": {APPS: {"mimeTypes": [None, 7]}}}, False),
        ({"extensions": {APPS: {}}}, False),
        ({"extensions": {APPS: None}}, False),
        ({"extensions": [APPS]}, False),
        ({"experimental": {APPS: {"mimeTypes": [APP_MIME_TYPE]}}}, False),
    ],
)
def test_a_client_shows_pages_if_it_declared_their_media_type(capabilities: dict[str, Any], declared: bool) -> None:
    assert declares_apps(capabilities) is declared


@pytest.mark.parametrize(
    ("meta", "uri"),
    [
        (None, None),
        ({}, None),
        ({"ui": {"resourceUri": PANEL}}, PANEL),
        ({"ui/resourceUri": PANEL}, PANEL),
        ({"ui": {"resourceUri": PANEL}, "ui/resourceUri": "ui://other/one"}, PANEL),
        ({"ui": {"visibility": ["app"]}, "ui/resourceUri": PANEL}, PANEL),
        ({"ui": {"resourceUri": "https://weather/panel"}}, None),
        ({"ui": {"resourceUri": 7}}, None),
        ({"ui": "ui://weather/panel"}, None),
        ({"ui/resourceUri": ["ui://weather/panel"]}, None),
        ({"ui": {"resourceUri": "ui://"}}, None),
    ],
)
def test_the_page_of_a_tool_is_read_in_both_forms(meta: dict[str, Any] | None, uri: str | None) -> None:
    assert app_uri(meta) == uri


@pytest.mark.parametrize(
    ("meta", "visibility"),
    [
        (None, ("model", "app")),
        ({"ui": {}}, ("model", "app")),
        ({"ui": {"visibility": ["app"]}}, ("app",)),
        ({"ui": {"visibility": ["app", "model"]}}, ("model", "app")),
        ({"ui": {"visibility": ["app", "robot", None]}}, ("app",)),
        ({"ui": {"visibility": []}}, ()),
        ({"ui": {"visibility": "app"}}, ("model", "app")),
        ({"ui": None}, ("model", "app")),
    ],
)
def test_who_may_call_a_tool(meta: dict[str, Any] | None, visibility: tuple[str, ...]) -> None:
    assert tool_visibility(meta) == visibility


@pytest.mark.parametrize(
    ("meta", "left"),
    [
        (None, None),
        ({"ui": {}}, None),
        ({"ui": {}, "ui/resourceUri": PANEL, "kept": 1}, {"kept": 1}),
        ({"kept": 1}, {"kept": 1}),
    ],
)
def test_the_members_of_the_extension_can_be_left_out(meta: dict[str, Any] | None, left: dict[str, Any] | None) -> None:
    assert without_ui(meta) == left
    assert not has_ui(without_ui(meta))


def test_uris_are_rewritten_in_both_forms_and_nothing_else() -> None:
    meta = {"ui": {"resourceUri": PANEL, "visibility": ["app"]}, "ui/resourceUri": PANEL, "kept": {"uri": PANEL}}
    assert with_app_uris(meta, str.upper) == {
        "ui": {"resourceUri": PANEL.upper(), "visibility": ["app"]},
        "ui/resourceUri": PANEL.upper(),
        "kept": {"uri": PANEL},
    }


@pytest.mark.parametrize("meta", [{}, {"ui": {"resourceUri": "https://x"}}, {"ui": [1]}, {"ui/resourceUri": 7}])
def test_meta_without_a_page_stays_the_same_object(meta: dict[str, Any]) -> None:
    assert with_app_uris(meta, str.upper) is meta
