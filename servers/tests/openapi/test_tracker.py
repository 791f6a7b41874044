"""The tracker, a document of 3.1: alternatives, deep schemas, oauth2, paging, and parts that are not for tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servers.tests.openapi.fake_api import Answer
from servers.tests.openapi.support import TRACKER, call, schema_of
from trunkline_servers.openapi import make_server

TOKEN = {"oauth": "t0ken"}


def test_webhooks_callbacks_and_operations_elsewhere_are_no_tools() -> None:
    assert sorted(make_server(TRACKER).registry.tools) == [
        "export", "issues_comment", "issues_create", "issues_get", "issues_list", "issues_update", "me",
        "payments_create", "payments_get", "payments_list",
    ]  # fmt: skip


def test_a_discriminator_says_which_alternative_a_value_is() -> None:
    block = schema_of(TRACKER, "issues_comment")["$defs"]["Block"]
    assert [branch["properties"]["type"] for branch in block["oneOf"]] == [
        {"const": "text"},
        {"const": "code"},
        {"const": "quote"},
    ]


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        ({"type": "text", "text": "Hi"}, True),
        ({"type": "quote", "blocks": [{"type": "code", "code": "1"}]}, True),
        ({"type": "code", "text": "Hi"}, False),
        ({"type": "quote", "blocks": [{"type": "other"}]}, False),
    ],
    ids=["text", "nested", "wrong form", "wrong inside"],
)
def test_alternatives_are_checked_before_anything_is_sent(part: dict[str, Any], fits: bool) -> None:
    arguments = {"project": "p", "number": 1, "parts": [part]}
    result, double = call(TRACKER, "issues_comment", arguments, auth=TOKEN, output_schemas=False)
    assert result.is_error is not fits
    assert bool(double.heard) is fits


def test_a_parent_that_lists_its_children_is_still_usable() -> None:
    arguments = {"Idempotency-Key": "12345678", "amount": 5, "currency": "EUR", "method": {"kind": "bank", "iban": "X"}}
    result, double = call(TRACKER, "payments_create", arguments, auth=TOKEN, output_schemas=False)
    assert not result.is_error, result.text
    assert json.loads(double.last.body) == {"amount": 5, "currency": "EUR", "method": {"kind": "bank", "iban": "X"}}
    assert double.last.headers["idempotency-key"] == "12345678"


def test_required_members_of_an_alternative_are_checked() -> None:
    arguments = {"Idempotency-Key": "12345678", "amount": 5, "currency": "EUR", "method": {"kind": "bank"}}
    result, double = call(TRACKER, "payments_create", arguments, auth=TOKEN)
    assert result.is_error
    assert double.heard == []


def test_parts_of_allof_are_spread_over_the_arguments() -> None:
    schema = schema_of(TRACKER, "payments_create")
    assert schema["required"] == ["Idempotency-Key", "amount", "currency", "method"]


def test_an_unsupported_pattern_is_dropped_and_the_tool_is_kept() -> None:
    assert schema_of(TRACKER, "payments_get")["properties"]["payment"] == {"type": "string"}


def test_a_name_that_no_argument_can_have_is_made_one_and_sent_as_it_was() -> None:
    arguments = {"project": "p", "filter_state_": "open", "labels": ["a", "b,c"], "page": 2}
    _, double = call(TRACKER, "issues_list", arguments, auth=TOKEN, output_schemas=False)
    assert double.last.query == "page=2&labels=a,b%2Cc&filter%5Bstate%5D=open"


def test_oauth_is_sent_as_a_bearer_token() -> None:
    _, double = call(TRACKER, "me", {}, auth=TOKEN)
    assert double.last.headers["authorization"] == "Bearer t0ken"


def test_a_key_in_the_query_is_sent_with_what_needs_it() -> None:
    answers = {"GET /export": Answer("a,b\n1,2\n", content_type="text/csv; charset=utf-8")}
    result, double = call(TRACKER, "export", {"fields": {"a": "1"}}, answers, auth={"query_key": "k&y"})
    assert result.text == "a,b\n1,2\n"
    assert double.last.query == "a=1&key=k%26y"


def test_pages_are_structured() -> None:
    page = {"items": [{"number": 1, "title": "T", "author": {"login": "ann", "manager": None}}], "next": 2}
    answers = {"GET /projects/p/issues": Answer(page)}
    result, _ = call(TRACKER, "issues_list", {"project": "p"}, answers, auth=TOKEN)
    assert result.data == page


def test_an_error_is_reported_with_its_detail() -> None:
    problem = Answer(json.dumps({"title": "Declined", "detail": "no money"}), 402, "application/problem+json")
    arguments = {"Idempotency-Key": "12345678", "amount": 5, "currency": "EUR", "method": {"kind": "bank", "iban": "X"}}
    result, _ = call(TRACKER, "payments_create", arguments, {"POST /payments": problem}, auth=TOKEN)
    assert result.text == "Tracker & Billing answered 402: no money; Declined"


def test_an_answer_may_have_members_that_were_not_promised() -> None:
    user = {"login": "ann", "manager": {"login": "bo", "manager": {"login": "cy"}}, "shoe": 43}
    result, _ = call(TRACKER, "me", {}, {"GET /me": Answer(user)}, auth=TOKEN)
    assert result.data == user
