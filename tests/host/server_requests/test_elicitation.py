"""Elicitation: which forms and pages are shown to a person, and what leaves; in both eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.chat.support import LoopClock
from tests.host.server_requests.support import ERAS, call, eliciting, entry, new_session, opened
from trunkline.errors import LocalProtocolError
from trunkline.host.server_requests.elicitation import (
    ElicitationHandler,
    FormDenied,
    FormPrompt,
    InvalidPageUrl,
    UrlPrompt,
    credentials_in,
    parse_form,
    parse_page_url,
)
from trunkline.host.server_requests.handlers import HostRequestHandler, ReviewOutcome

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Person:
    """Says what was given to say, and keeps what was shown."""

    def __init__(self, action: Any = "accept", **content: Any) -> None:
        """Take the answer."""
        self._answer = None if action is None else t.ElicitResult(action=action, content=content or None)
        self.shown: list[FormPrompt | UrlPrompt] = []

    async def __call__(self, question: FormPrompt | UrlPrompt) -> t.ElicitResult | None:
        self.shown.append(question)
        return self._answer


def form(message: str = "Which?", **fields: Any) -> t.ElicitRequestParams:
    """Make a form of these fields."""
    return t.ElicitRequestParams(message=message, requested_schema={"type": "object", "properties": fields})


def page(url: str) -> t.ElicitRequestParams:
    """Make a question with a page to open."""
    return t.ElicitRequestParams(message="Log in", mode="url", url=url)


# --- through a host, in both eras -------------------------------------------------------------------------------------


@ERAS
async def test_a_form_is_filled_in_by_a_person_who_sees_which_server_asks(era: str, tmp_path: Path) -> None:
    person = Person(city="Oslo")
    async with opened({"forms": eliciting(era, CITY)}, tmp_path) as host:
        answer = await call(host, HostRequestHandler(elicitation=ElicitationHandler(person)), "forms/ask")
    assert answer.startswith("accept")
    assert "Oslo" in answer
    (shown,) = person.shown
    assert isinstance(shown, FormPrompt)
    assert (shown.server, shown.message, shown.schema) == ("forms", "Which city?", CITY)


@ERAS
@pytest.mark.parametrize(("action", "heard"), [("decline", "decline"), ("cancel", "cancel"), (None, "cancel")])
async def test_a_person_may_decline_and_cancel(era: str, action: str | None, heard: str, tmp_path: Path) -> None:
    async with opened({"forms": eliciting(era, CITY)}, tmp_path) as host:
        answer = await call(host, HostRequestHandler(elicitation=ElicitationHandler(Person(action))), "forms/ask")
    assert answer == f"{heard} None"


@ERAS
async def test_a_form_that_asks_for_credentials_is_declined_unseen(era: str, tmp_path: Path) -> None:
    person, notices = Person(password="hunter2"), list[str]()
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}
    request_handler = HostRequestHandler(elicitation=ElicitationHandler(person, notice=notices.append))
    async with opened({"forms": eliciting(era, schema)}, tmp_path) as host:
        answer = await call(host, request_handler, "forms/ask")
    assert answer == "decline None"
    assert person.shown == []
    assert "The form of forms was declined: it asks for credentials (password)" in notices[0]


@ERAS
async def test_a_page_is_shown_with_its_warnings(era: str, tmp_path: Path) -> None:
    person = Person()
    async with opened({"forms": eliciting(era, CITY)}, tmp_path) as host:
        request_handler = HostRequestHandler(elicitation=ElicitationHandler(person))
        answer = await call(host, request_handler, "forms/visit", url="http://example.com/login")
    assert answer == "accept"
    (shown,) = person.shown
    assert isinstance(shown, UrlPrompt)
    assert (shown.server, shown.page_url.url) == ("forms", "http://example.com/login")
    assert "not encrypted" in shown.page_url.warnings[0]


@ERAS
async def test_waiting_for_the_person_stops_the_clock(era: str, tmp_path: Path) -> None:
    clock = LoopClock()

    async def slow(question: FormPrompt | UrlPrompt) -> t.ElicitResult:
        await clock.advance(8)
        return t.ElicitResult(action="accept", content={"city": "Oslo"})

    settings = {"timeout": 4, "total_timeout": 4}
    async with opened({"forms": eliciting(era, CITY)}, tmp_path, settings=settings) as host:
        answer = await call(host, HostRequestHandler(elicitation=ElicitationHandler(slow)), "forms/ask")
    assert answer.startswith("accept")


# --- the desk ---------------------------------------------------------------------------------------------------------


async def test_without_a_prompter_a_question_is_declined() -> None:
    notices = list[str]()
    request_handler = ElicitationHandler(None, notice=notices.append)
    result = await request_handler.answer(entry(), form(city={"type": "string"}), new_session())
    assert (result.action, request_handler.capabilities) == ("decline", {})
    assert "there is no terminal or client to ask" in notices[0]


async def test_the_outcome_of_a_question_is_reported_without_its_content() -> None:
    told = list[ReviewOutcome]()
    request_handler = ElicitationHandler(Person(city="Oslo"), tell=told.append)
    await request_handler.answer(entry(), form(city={"type": "string"}), new_session())
    assert [(each.allowed, each.by, each.note) for each in told] == [(True, "user", "accept")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param({"city": 3}, "does not fit the form at /city", id="wrong-type"),
        pytest.param({"city": "Oslo", "more": "x"}, "'more' that the form does not have", id="unknown-field"),
    ],
)
async def test_an_answer_that_is_none_to_the_form_does_not_leave(content: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        await ElicitationHandler(Person(**content)).answer(entry(), form(city={"type": "string"}), new_session())


async def test_nothing_is_sent_along_with_a_page() -> None:
    result = await ElicitationHandler(Person(extra="x")).answer(entry(), page("https://example.com/"), new_session())
    assert result == t.ElicitResult(action="accept")


async def test_an_address_that_no_browser_should_be_sent_to_is_declined_unseen() -> None:
    person, notices = Person(), list[str]()
    result = await ElicitationHandler(person, notice=notices.append).answer(
        entry(), page("javascript:alert(1)"), new_session()
    )
    assert (result.action, person.shown) == ("decline", [])
    assert "only http and https" in notices[0]


# --- forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        pytest.param({"type": "string", "minLength": 2, "maxLength": 9, "pattern": "^[a-z]+$"}, id="text"),
        pytest.param({"type": "string", "format": "email", "default": "a@b.c"}, id="format"),
        pytest.param({"type": "integer", "minimum": 1, "maximum": 9, "default": 3}, id="integer"),
        pytest.param({"type": "number", "minimum": 0}, id="number"),
        pytest.param({"type": "boolean", "default": False}, id="boolean"),
        pytest.param({"type": "string", "enum": ["a", "b"], "default": "a"}, id="enum"),
        pytest.param({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, id="enum-names"),
        pytest.param({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, id="titled"),
        pytest.param({"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1}, id="several"),
        pytest.param({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, id="several-titled"),
    ],
)
def test_every_kind_of_field_is_shown_as_it_is(field: dict[str, Any]) -> None:
    assert parse_form(form(value=field))["properties"] == {"value": field}


@pytest.mark.parametrize(
    ("field", "plain"),
    [
        pytest.param(
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "T"},
            {"type": "string", "title": "T"},
            id="any-of",
        ),
        pytest.param({"type": ["integer", "null"], "minimum": 1}, {"type": "integer", "minimum": 1}, id="two-types"),
    ],
)
def test_a_field_that_may_be_null_is_one_that_may_be_left_out(field: dict[str, Any], plain: dict[str, Any]) -> None:
    assert parse_form(form(value=field))["properties"] == {"value": plain}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(None, id="none"),
        pytest.param({"type": "string"}, id="no-object"),
        pytest.param({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}, id="nested"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, id="rows"
        ),
        pytest.param({"type": "object", "properties": {"a": {"type": "colour"}}}, id="unknown-type"),
        pytest.param({"type": "object", "properties": {"a": {"type": "string", "format": "hostname"}}}, id="format"),
        pytest.param({"type": "object", "properties": {"a": {"type": "string", "not": {}}}}, id="keyword"),
        pytest.param({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, id="no-such-reference"),
        pytest.param({"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(101)}}, id="many"),
    ],
)
def test_what_is_no_flat_form_is_refused(schema: dict[str, Any] | None) -> None:
    with pytest.raises(FormDenied):
        parse_form(t.ElicitRequestParams(message="?", requested_schema=schema))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *(
            pytest.param(name, {}, id=name.encode("unicode_escape").decode())
            for name in (
                *("password", "userPassword", "passw0rd", "p@ssword", "pass_phrase", "PIN", "pin-code", "otp", "cvv"),
                *("apiKey", "API_KEY", "APIKey", "github_token", "secret", "client-secret", "ssn", "creditCard"),
                *("seed phrase", "recovery_code", "privateKey", "mot_de_passe", "Passwort", "p\u200bassword", "密码"),
            )
        ),
        pytest.param("value", {"title": "API key"}, id="title"),
        pytest.param("value", {"description": "The access token of your account"}, id="description"),
        pytest.param("value", {"format": "password"}, id="format"),
        pytest.param("value", {"writeOnly": True}, id="write-only"),
        pytest.param("otp", {"type": "integer"}, id="a-number"),
    ],
)
def test_a_field_for_credentials_is_found(name: str, field: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string", **field}}}
    assert credentials_in("Fill this in", schema) == (name,)
    with pytest.raises(FormDenied, match="asks for credentials"):
        parse_form(t.ElicitRequestParams(message="Fill this in", requested_schema=schema))


@pytest.mark.parametrize(
    "message", ["Please enter your GitHub password", "I need the API key of the service", "No problem, enter password"]
)
def test_a_message_that_asks_for_credentials_is_found(message: str) -> None:
    assert credentials_in(message, {"properties": {"value": {"type": "string"}}}) == ("the message",)


@pytest.mark.parametrize(
    ("message", "name", "field"),
    [
        *(
            pytest.param("Fill this in", name, {"type": "string"}, id=name)
            for name in ("name", "email", "username", "max_tokens", "token_limit", "secretName", "compass", "mapPin")
        ),
        pytest.param("Reset your password?", "sure", {"type": "boolean"}, id="a-switch"),
        pytest.param("Enter the kind of password", "kind", {"type": "string", "enum": ["long"]}, id="a-choice"),
        pytest.param("Never enter your password here", "name", {"type": "string"}, id="a-warning"),
        pytest.param("x", "name", {"type": "string", "description": "No password needed"}, id="said-not-to-be"),
    ],
)
def test_other_fields_are_left_alone(message: str, name: str, field: dict[str, Any]) -> None:
    assert credentials_in(message, {"properties": {name: field}}) == ()


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param("http://example.com/", "not encrypted", id="http"),
        pytest.param("https://bank.com@evil.io/", "the page is at evil.io", id="user"),
        pytest.param("https://example.com:8443/", "unusual port, 8443", id="port"),
        pytest.param("https://203.0.113.7/", "an IP address, not a name", id="ip"),
        pytest.param("https://192.168.1.1/", "a private address", id="private"),
        pytest.param("https://[2001:db8::1]/", "an IP address, not a name", id="ip6"),
        pytest.param("https://2130706433/", "the host is a number", id="decimal"),
        pytest.param("https://0x7f.1/", "the host is a number", id="hexadecimal"),
        pytest.param("http://localhost:3000/", "on this machine", id="loopback"),
        pytest.param("https://xn--pple-43d.com/", "browsers may show as \u0430pple.com", id="punycode"),
        pytest.param("https://\u0430pple.com/", "it is xn--pple-43d.com", id="letters"),
        pytest.param("https://\u0430pple.com/", "mixes scripts: Cyrillic, Latin", id="scripts"),
        pytest.param("https://bank.com.evil.io/", "named at the end of the host: evil.io", id="long-name"),
    ],
)
def test_an_address_that_may_deceive_has_a_warning(url: str, words: str) -> None:
    assert any(words in warning for warning in parse_page_url(url).warnings)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        pytest.param("https://bank.com@evil.io:8/x", "evil.io", id="user"),
        pytest.param("https://[::1]:8/x", "[::1]", id="ip6"),
        pytest.param("https://EXAMPLE.com", "EXAMPLE.com", id="capitals"),
    ],
)
def test_the_parts_of_an_address_are_the_whole_of_it(url: str, host: str) -> None:
    address = parse_page_url(url)
    assert (address.host, address.before + address.host + address.after) == (host, url)


@pytest.mark.parametrize(
    "url",
    [
        *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "ftp://example.com/", "example.com", ""),
        *("https:example.com", "https:/example.com", "https:///x", "https://exa mple.com/", "https://exa\\mple.com/"),
        *("https://example.com/\n", "https://example.com/\x1b[2J", "https://exam\u200bple.com/", "https://[::1/"),
        *("https://example.com/\u202egnp", "https://example.com:port/", f"https://example.com/{'x' * 20_000}"),
    ],
    ids=lambda url: url[:30].encode("unicode_escape").decode(),
)
def test_an_address_that_can_be_read_in_two_ways_or_is_no_page_is_refused(url: str) -> None:
    with pytest.raises(InvalidPageUrl):
        parse_page_url(url)
