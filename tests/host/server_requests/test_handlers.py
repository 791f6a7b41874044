"""Desks: who answers what, what is declared, and what is written down of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trunkline.types as t
from tests.host.server_requests.support import asked_for, entry, new_session
from trunkline.client.options import resolve_settings
from trunkline.client.request_handlers import RequestHandlers
from trunkline.errors import MethodNotFound
from trunkline.host.audit.trail import AuditTrail
from trunkline.host.authorization.authorizer import act_for_server_request
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.events import ConsentAsked, EventBus
from trunkline.host.models.scripted import ScriptedModel
from trunkline.host.server_requests.elicitation import ElicitationHandler
from trunkline.host.server_requests.handlers import (
    CallbackRequestHandler,
    HostRequestHandler,
    review_recorder,
)
from trunkline.host.server_requests.sampling.handler import (
    SamplingDecision,
    SamplingHandler,
    SamplingOptions,
    SamplingReview,
)
from trunkline.host.server_requests.sampling.model_request import SamplingModels
from trunkline.protocol.methods import embedded_requests
from trunkline.protocol.revisions import NEWEST

FORM = t.ElicitRequestParams(message="?", requested_schema={"type": "object", "properties": {"a": {"type": "string"}}})


async def yes(review: SamplingReview) -> SamplingDecision:
    """Agree to all of it."""
    return SamplingDecision(allow=True)


async def decline(question: Any) -> t.ElicitResult:
    """Decline all of it."""
    return t.ElicitResult(action="decline")


def callbacks(**given: Any) -> CallbackRequestHandler:
    """Make a desk of functions."""
    return CallbackRequestHandler(RequestHandlers(resolve_settings(given), NEWEST, embedded_requests(NEWEST)))


def sampling(**options: Any) -> SamplingHandler:
    """Make a desk with a model."""
    model = ScriptedModel([{"says": "by the model", "again": True}])
    return SamplingHandler(SamplingModels(model), Policy(), SamplingOptions(review=yes, **options))


def test_a_handler_declares_what_its_parts_and_the_rest_can_answer() -> None:
    request_handler = HostRequestHandler(
        sampling=sampling(), elicitation=ElicitationHandler(decline), rest=callbacks(roots=["/srv"])
    )
    assert request_handler.capabilities == {
        "sampling": {"tools": {}},
        "elicitation": {"form": {}, "url": {}},
        "roots": callbacks(roots=["/srv"]).capabilities["roots"],
    }


async def test_a_part_answers_before_the_rest() -> None:
    request_handler = HostRequestHandler(
        sampling=sampling(), rest=callbacks(sampling=lambda question: "by the function")
    )
    raw = await request_handler.answer(entry(), "sampling/createMessage", asked_for(), new_session())
    assert msgspec.json.decode(raw)["content"]["text"] == "by the model"


async def test_the_rest_answers_what_no_part_does() -> None:
    request_handler = HostRequestHandler(
        elicitation=ElicitationHandler(None), rest=callbacks(elicitation=lambda question: {"a": "x"})
    )
    raw = await request_handler.answer(entry(), "elicitation/create", FORM, new_session())
    assert msgspec.json.decode(raw) == {"action": "accept", "content": {"a": "x"}}


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_a_request_without_a_handler_is_rejected(method: str) -> None:
    with pytest.raises(MethodNotFound, match="cannot be answered here"):
        await HostRequestHandler(rest=callbacks()).answer(entry(), method, FORM, new_session())


def test_a_question_is_judged_as_the_servers() -> None:
    session = new_session()
    act = act_for_server_request(entry(trusted=True), "elicitation/create", FORM, session)
    assert (act.kind, act.server, act.name, act.caller) == ("elicitation", "notes", "elicitation/create", "server")
    assert (act.trusted, act.session) == (True, session.id)
    assert act.arguments is not None
    assert act.arguments["message"] == "?"


async def test_the_outcome_of_a_question_is_recorded_and_published(tmp_path: Path) -> None:
    path, events = tmp_path / "audit.jsonl", EventBus()
    trail, follower = AuditTrail.open(path), events.subscribe()
    await sampling(tell=review_recorder(trail, events)).answer(entry(), asked_for("my secret"), new_session())
    trail.close()
    written = path.read_text()
    assert '"kind":"sampling"' in written
    assert '"by":"user"' in written
    assert "secret" not in written
    async with asyncio.timeout(120):
        assert await anext(aiter(follower)) == ConsentAsked("notes", "sampling/createMessage", True, "user")
