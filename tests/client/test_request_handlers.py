"""Which requests of a server can be handled, and how the return value of a callback becomes a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.support import run_async
from trunkline.client.options import resolve_settings
from trunkline.client.request_handlers import RequestHandlers
from trunkline.errors import InvalidParams, LocalProtocolError
from trunkline.protocol.methods import embedded_requests, requests_to_client
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, REVISIONS, Revision

NAMES = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 40}},
    "required": ["name"],
}
ONE = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
FORM = t.ElicitRequestParams(message="Who?", requested_schema=NAMES)
SHORT = t.ElicitRequestParams(message="How many?", requested_schema=ONE)
PAGE = t.ElicitRequestParams(message="Log in", mode="url", url="https://example.com")
WISH = t.CreateMessageRequestParams(messages=[], max_tokens=5)


@dataclass
class Person:
    name: str


def answers(revision: Revision = NEWEST_HANDSHAKE, **options: Any) -> RequestHandlers:
    asked = requests_to_client if revision.handshake else embedded_requests
    return RequestHandlers(resolve_settings(options), revision, asked(revision))


def elicited(given: Any, question: t.ElicitRequestParams = FORM) -> Any:
    found = answers(elicitation=lambda _: given)
    return run_async(found.answer("elicitation/create", question))


def without_extensions(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in capabilities.items() if name != "extensions"}


# --- what is declared


@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (REVISIONS[0], {"sampling": {}, "roots": {"listChanged": True}}),
        (REVISIONS[1], {"sampling": {}, "roots": {"listChanged": True}}),
        (REVISIONS[2], {"sampling": {}, "roots": {"listChanged": True}, "elicitation": {}}),
        (
            REVISIONS[3],
            {
                "sampling": {"tools": {}},
                "roots": {"listChanged": True},
                "elicitation": {"form": {}, "url": {}},
                "tasks": {
                    "list": {},
                    "cancel": {},
                    "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
                },
            },
        ),
        (REVISIONS[4], {"sampling": {"tools": {}}, "roots": {}, "elicitation": {"form": {}, "url": {}}}),
    ],
    ids=lambda value: value.name if isinstance(value, Revision) else "",
)
def test_capabilities_are_declared_in_the_words_of_the_revision(revision: Revision, expected: Any) -> None:
    found = answers(
        revision,
        sampling=print,
        sampling_tools=True,
        elicitation=print,
        elicitation_urls=True,
        roots=["/"],
    )
    assert without_extensions(found.capabilities) == expected


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.name)
def test_tasks_and_skills_are_declared_where_the_revision_has_them(revision: Revision) -> None:
    declared = answers(revision).capabilities["extensions"]
    tasks: dict[str, Any] = {} if revision.handshake else {"io.modelcontextprotocol/tasks": {}}
    assert declared == {"io.modelcontextprotocol/skills": {}, **tasks}


def test_an_extension_with_settings_of_none_is_not_declared() -> None:
    off = {"io.modelcontextprotocol/tasks": None, "io.modelcontextprotocol/skills": None}
    found = answers(REVISIONS[3], extensions=off, sampling=print, received_tasks=False)
    assert found.capabilities == {"sampling": {}}


def test_an_option_that_goes_with_a_missing_callback_declares_nothing() -> None:
    assert without_extensions(answers(sampling_tools=True, elicitation_urls=True).capabilities) == {}


# --- elicitation


@pytest.mark.parametrize(
    ("given", "action"),
    [
        (None, "decline"),
        (False, "decline"),
        (t.ElicitResult(action="cancel"), "cancel"),
        (t.ElicitResult(action="decline", content={"name": "ignored"}), "decline"),
    ],
    ids=["nothing", "no", "cancelled", "declined"],
)
def test_a_question_that_is_not_accepted_carries_no_content(given: Any, action: str) -> None:
    assert elicited(given) == t.ElicitResult(action=action)  # type: ignore[arg-type]


DEFAULTS = t.ElicitRequestParams(
    message="?", requested_schema={"type": "object", "properties": {"age": {"type": "integer", "default": 40}}}
)


@pytest.mark.parametrize(
    ("given", "question", "content"),
    [
        pytest.param({"name": "Ada"}, FORM, {"age": 40, "name": "Ada"}, id="fields"),
        pytest.param(Person("Ada"), FORM, {"age": 40, "name": "Ada"}, id="record"),
        pytest.param(
            t.ElicitResult(action="accept", content={"name": "Ada"}), FORM, {"age": 40, "name": "Ada"}, id="result"
        ),
        pytest.param(True, DEFAULTS, {"age": 40}, id="yes to a form with defaults"),
        pytest.param(3, SHORT, {"value": 3}, id="the value of a form with one field"),
        pytest.param({"x": 1}, t.ElicitRequestParams(message="?"), {"x": 1}, id="a form without a schema"),
        pytest.param(True, PAGE, None, id="yes to a page"),
        pytest.param({"a": 1}, PAGE, None, id="a page has no content"),
    ],
)
def test_an_accepted_question_has_the_content_of_its_form(
    given: Any, question: t.ElicitRequestParams, content: Any
) -> None:
    assert elicited(given, question) == t.ElicitResult(action="accept", content=content)


@pytest.mark.parametrize(
    ("given", "words"),
    [("Ada", "name, age"), ({"name": 3}, "/name"), (True, "the root")],
    ids=["one value for several fields", "a wrong value", "yes to required fields"],
)
def test_content_that_does_not_fit_never_leaves(given: Any, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        elicited(given)


def test_a_form_that_is_not_a_schema_is_rejected() -> None:
    question = t.ElicitRequestParams(message="?", requested_schema={"type": "object", "$ref": "https://example.com"})
    with pytest.raises(InvalidParams, match="requestedSchema"):
        elicited({"name": "Ada"}, question)


# --- sampling


async def _later(params: Any) -> str:
    return "later"


WHOLE = t.CreateMessageResult(role="assistant", content=t.TextContent(text="x"), model="m")


def said_by_us(content: Any) -> t.CreateMessageResult:
    return t.CreateMessageResult(role="assistant", content=content, model="trunkline", stop_reason="endTurn")


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        pytest.param(lambda _: "hi", said_by_us(t.TextContent(text="hi")), id="text"),
        pytest.param(_later, said_by_us(t.TextContent(text="later")), id="async"),
        pytest.param(
            lambda _: t.ImageContent(data="", mime_type="image/png"),
            said_by_us(t.ImageContent(data="", mime_type="image/png")),
            id="block",
        ),
        pytest.param(lambda _: [t.TextContent(text="hi")], said_by_us([t.TextContent(text="hi")]), id="blocks"),
        pytest.param(lambda _: WHOLE, WHOLE, id="whole"),
    ],
)
def test_what_a_model_says_becomes_a_message(sampling: Any, message: t.CreateMessageResult) -> None:
    assert run_async(answers(sampling=sampling).answer("sampling/createMessage", WISH)) == message


def test_an_invalid_message_is_an_error_of_the_callback() -> None:
    with pytest.raises(LocalProtocolError, match="int"):
        run_async(answers(sampling=lambda _: 3).answer("sampling/createMessage", WISH))


# --- roots


def test_roots_may_be_paths_uris_or_records() -> None:
    given = [Path("/home/ada/code"), "/", "file:///x%20y", t.Root(uri="file:///z", name="Z")]
    listed: Any = run_async(answers(roots=given).answer("roots/list", t.RequestParams()))
    assert listed.roots == [
        t.Root(uri="file:///home/ada/code", name="code"),
        t.Root(uri="file:///"),
        t.Root(uri="file:///x%20y"),
        t.Root(uri="file:///z", name="Z"),
    ]


def test_roots_may_be_a_function() -> None:
    async def later() -> list[str]:
        return ["file:///b"]

    plain: Any = run_async(answers(roots=lambda: ["file:///a"]).answer("roots/list", None))
    waited: Any = run_async(answers(roots=later).answer("roots/list", None))
    assert [plain.roots[0].uri, waited.roots[0].uri] == ["file:///a", "file:///b"]
