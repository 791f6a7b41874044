"""The values of ``auth=``: compatible and conflicting options, and that no secret is ever shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import case_id
from trunkline import ApiKey, BearerToken, Client, OAuth, Server
from trunkline.errors import ConfigError

ISSUER = "https://auth.example.com"
NUMBER: Any = 3
SECRET = {"client_id": "me", "client_secret": "s", "issuer": ISSUER}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"client_id": "public"},
        SECRET,
        {"client_id": "me", "private_key": "pem", "issuer": ISSUER, "grant": "client_credentials"},
        {**SECRET, "issuer": lambda issuer: True, "grant": "client_credentials"},
        {"grant": "jwt_bearer", "assertion": "a.b.c", "issuer": ISSUER},
        {**SECRET, "grant": "enterprise", "id_token": lambda: "x", "idp_issuer": "https://idp.example.com"},
        {"client_metadata_url": "https://app.example.com/client.json"},
        {"redirect_uri": "https://app.example.com/back"},
        {"redirect_uri": "http://localhost:8000/back"},
        {"scopes": ["a", "b:c"], "dpop": True, "store": "memory"},
    ],
    ids=case_id,
)
def test_compatible_options_are_accepted(options: dict[str, Any]) -> None:
    assert isinstance(OAuth(**options), OAuth)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grant": "password"}, "is not known"),
        ({"grant": "client_credentials", "issuer": ISSUER}, "client_id="),
        ({"grant": "client_credentials", "client_id": "me"}, "issuer="),
        ({"grant": "client_credentials", "client_id": "me", "issuer": ISSUER}, "client_secret= or private_key="),
        ({"grant": "jwt_bearer", "issuer": ISSUER}, "assertion="),
        ({"grant": "jwt_bearer", "assertion": "a"}, "issuer="),
        ({**SECRET, "grant": "enterprise", "idp_issuer": "https://idp"}, "id_token="),
        ({**SECRET, "grant": "enterprise", "id_token": "x"}, "idp_issuer="),
        ({"client_secret": "s", "issuer": ISSUER}, "client_id"),
        ({"client_id": "me", "client_secret": "s"}, "need issuer="),
        ({"client_id": "me", "private_key": "pem"}, "need issuer="),
        ({**SECRET, "private_key": "pem"}, "set only one"),
        ({"client_metadata_url": "http://app.example.com/c.json"}, "https URL with a path"),
        ({"client_metadata_url": "https://app.example.com"}, "https URL with a path"),
        ({"client_metadata_url": "https://app.example.com/"}, "https URL with a path"),
        ({"client_metadata_url": "https://app.example.com/c#x"}, "https URL with a path"),
        ({"redirect_uri": "http://app.example.com/back"}, "https, or a loopback URL"),
        ({"redirect_uri": "https://a/b", "redirect_port": 8000}, "set only one"),
        ({"scopes": ["a b"]}, "not a valid scope"),
        ({"scopes": "ab"}, "list"),
        ({**SECRET, "grant": "enterprise", "id_token": "x", "idp_token_endpoint": "http://idp/t"}, "https URL"),
        ({"dpop": "yes"}, "dpop="),
    ],
    ids=case_id,
)
def test_conflicting_options_are_a_config_error_with_the_fix(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        OAuth(**options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BearerToken("a b"), "visible"),
        (lambda: BearerToken(""), "visible"),
        (lambda: BearerToken("a\r\nb"), "visible"),
        (lambda: BearerToken(NUMBER), "visible"),
        (lambda: ApiKey("X-API-Key", "a\nb"), "visible"),
        (lambda: ApiKey("X API", "k"), "header name"),
        (lambda: ApiKey("", "k"), "header name"),
    ],
)
def test_a_token_that_does_not_fit_in_a_header_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    "value",
    [
        OAuth(client_id="me", client_secret="hidden", issuer=ISSUER),
        OAuth(client_id="me", private_key="hidden", issuer=ISSUER),
        OAuth(grant="jwt_bearer", assertion="hidden", issuer=ISSUER),
        BearerToken("hidden"),
        ApiKey("X-API-Key", "hidden"),
    ],
    ids=["secret", "key", "assertion", "token", "api key"],
)
def test_no_secret_is_shown(value: object) -> None:
    assert "hidden" not in repr(value) + str(value) + f"{value}"


@pytest.mark.parametrize(
    ("target", "auth"),
    [
        ("python server.py", "token"),
        (["python", "-m", "server"], "oauth"),
        ({"command": "python"}, OAuth()),
        (Server("s"), BearerToken("t")),
        (Server("s"), ApiKey("X-API-Key", "k")),
    ],
    ids=["command", "list", "entry", "object", "key"],
)
def test_auth_for_a_target_without_a_url_is_a_config_error(target: Any, auth: Any) -> None:
    with pytest.raises(ConfigError, match="environment"):
        Client(target, auth=auth)
