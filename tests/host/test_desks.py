"""Desks: who answers what, what is declared, and what is written down of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import trunkline.types as t
from tests.host.asking import asked_for, entry, new_session
from tests.host.gateway.support import in_loop
from trunkline.client.answers import Answers
from trunkline.client.options import settings_from
from trunkline.errors import MethodNotFound
from trunkline.host.audit.trail import AuditTrail
from trunkline.host.desks import CallbackDesk, HostDesk, question_act, recorder
from trunkline.host.elicitation.answering import ElicitationDesk
from trunkline.host.events import Asked, Events
from trunkline.host.models.scripted import ScriptedModel
from trunkline.host.policy.policy import Policy
from trunkline.host.sampling.answering import SamplingDesk, SamplingOptions
from trunkline.host.sampling.models import SamplingModels
from trunkline.host.sampling.review import SamplingDecision, SamplingReview
from trunkline.protocol.methods import embedded_requests
from trunkline.protocol.revisions import NEWEST

FORM = t.ElicitRequestParams(message="?", requested_schema={"type": "object", "properties": {"a": {"type": "string"}}})


async def yes(review: SamplingReview) -> SamplingDecision:
    """Agree to all of it."""
    return SamplingDecision(allow=True)


async def decline(question: Any) -> t.ElicitResult:
    """Decline all of it."""
    return t.ElicitResult(action="decline")


def callbacks(**given: Any) -> CallbackDesk:
    """Make a desk of functions."""
    return CallbackDesk(Answers(settings_from(given), NEWEST, embedded_requests(NEWEST)))


def sampling(**options: Any) -> SamplingDesk:
    """Make a desk with a model."""
    model = ScriptedModel([{"says": "by the model", "again": True}])
    return SamplingDesk(SamplingModels(model), Policy(), SamplingOptions(review=yes, **options))


def test_a_desk_declares_what_its_parts_and_the_rest_can_answer() -> None:
    desk = HostDesk(sampling=sampling(), elicitation=ElicitationDesk(decline), rest=callbacks(roots=["/srv"]))
    assert desk.capabilities == {
        "sampling": {"tools": {}},
        "elicitation": {"form": {}, "url": {}},
        "roots": callbacks(roots=["/srv"]).capabilities["roots"],
    }


def test_a_desk_of_nothing_declares_nothing() -> None:
    assert HostDesk().capabilities == {}


@in_loop
async def test_a_part_answers_before_the_rest() -> None:
    desk = HostDesk(sampling=sampling(), rest=callbacks(sampling=lambda question: "by the function"))
    raw = await desk.answer(entry(), "sampling/createMessage", asked_for(), new_session())
    assert msgspec.json.decode(raw)["content"]["text"] == "by the model"


@in_loop
async def test_the_rest_answers_what_no_part_does() -> None:
    desk = HostDesk(elicitation=ElicitationDesk(None), rest=callbacks(elicitation=lambda question: {"a": "x"}))
    raw = await desk.answer(entry(), "elicitation/create", FORM, new_session())
    assert msgspec.json.decode(raw) == {"action": "accept", "content": {"a": "x"}}


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
@in_loop
async def test_what_nobody_answers_is_refused(method: str) -> None:
    with pytest.raises(MethodNotFound, match="cannot be answered here"):
        await HostDesk(rest=callbacks()).answer(entry(), method, FORM, new_session())


def test_a_question_is_judged_as_the_servers() -> None:
    session = new_session()
    act = question_act(entry(trusted=True), "elicitation/create", FORM, session)
    assert (act.kind, act.server, act.name, act.caller) == ("elicitation", "notes", "elicitation/create", "server")
    assert (act.trusted, act.session) == (True, session.id)
    assert act.arguments is not None
    assert act.arguments["message"] == "?"


@in_loop
async def test_what_came_of_a_question_is_in_the_trail_and_told_as_an_event(tmp_path: Path) -> None:
    path, events = tmp_path / "audit.jsonl", Events()
    trail, follower = AuditTrail.open(path), events.follow()
    await sampling(tell=recorder(trail, events)).answer(entry(), asked_for("my secret"), new_session())
    trail.close()
    written = path.read_text()
    assert '"kind":"sampling"' in written
    assert '"by":"user"' in written
    assert "secret" not in written
    async with asyncio.timeout(20):
        assert await anext(aiter(follower)) == Asked("notes", "sampling/createMessage", True, "user")
