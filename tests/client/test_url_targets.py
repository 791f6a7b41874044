"""Servers with a URL: which URLs are valid, and what their options mean."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.support import case_id
from trunkline.auth import ApiKey
from trunkline.client.client import Client
from trunkline.client.options import resolve_settings
from trunkline.client.targets import Target, resolve_target
from trunkline.errors import ConfigError
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

URL = "https://example.com/mcp"


def found(target: object, **options: Any) -> Target:
    return resolve_target(target, resolve_settings(options))


def test_a_url_is_a_server_whose_requests_stand_for_themselves() -> None:
    target = found(f"{URL}?key=secret")
    assert (target.name, target.separate, target.can_reopen, target.handshake_only) == (URL, True, True, False)
    assert target.fallback is not None
    assert "secret" not in (target.fingerprint or "")


def test_the_fingerprint_of_a_url_is_its_own() -> None:
    assert found(URL).fingerprint == found({"url": URL, "headers": {"X-A": "b"}}).fingerprint
    assert found(URL).fingerprint != found(f"{URL}/other").fingerprint


@pytest.mark.parametrize("kind", ["http", "streamable-http"])
@pytest.mark.parametrize("member", ["type", "transport"])
def test_an_entry_may_say_that_it_is_streamable_http(kind: str, member: str) -> None:
    target = found({"url": URL, member: kind})
    assert (target.separate, target.fallback) == (True, None)


def test_an_entry_may_say_that_it_is_the_old_transport() -> None:
    target = found({"url": URL, "type": "sse"})
    assert (target.separate, target.fallback, target.handshake_only) == (False, None, True)


def test_a_pinned_stateless_revision_has_no_older_transport() -> None:
    assert found(URL, revision=NEWEST.name).fallback is None
    assert found(URL, revision=NEWEST_HANDSHAKE.name).fallback is not None


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("http://", {}, "not a server URL"),
        ("http://a:99999/", {}, "not a server URL"),
        ("http://[/", {}, "not a server URL"),
        ("http://a b/", {}, "not a server URL"),
        ("http://user:secret@host/", {}, "headers= or auth="),
        ({"url": "file:///x"}, {}, "not a server URL"),
        ({"url": 3}, {}, "url"),
        ({"url": URL, "headers": "x"}, {}, "headers"),
        ({"url": URL, "headers": {"X": 3}}, {}, "headers"),
        ({"url": URL, "type": "stdio"}, {}, "'stdio'"),
        (URL, {"headers": {"Mcp-Session-Id": "x"}}, "Mcp-Session-Id"),
        (URL, {"headers": {"content-type": "x"}}, "content-type"),
        (URL, {"headers": {"Host": "x"}}, "Host"),
        (URL, {"headers": {"X Y": "x"}}, "cannot carry"),
        (URL, {"headers": {"X": "a\r\nB: c"}}, "cannot carry"),
        ("http://example.com/mcp", {"auth": "t"}, "plain http"),
        ("http://example.com/mcp", {"auth": "oauth"}, "plain http"),
        (URL, {"auth": ApiKey("X-API-Key", "k"), "headers": {"x-api-key": "x"}}, "one of them"),
        (URL, {"auth": "oauth", "headers": {"Authorization": "x"}}, "one of them"),
        (URL, {"auth": 3}, "int"),
        (URL, {"auth": "a b"}, "visible"),
        (URL, {"auth": "t", "headers": {"authorization": "x"}}, "one of them"),
    ],
    ids=case_id,
)
def test_an_inconsistent_entry_is_a_config_error(target: object, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Client(target, **options)


def test_a_secret_in_a_url_is_not_shown() -> None:
    with pytest.raises(ConfigError) as failure:
        Client("http://user:secret@host/")
    assert "secret" not in str(failure.value)


def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'trunkline\[http\]'"):
        Client(URL)
