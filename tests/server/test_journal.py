"""The journal of a suspended call: what it accepts, how it names questions, and how much of it is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

import trunkline.types as t
from tests.server.talk import FORMS, STATELESS, accept, reach, serving, text
from trunkline import Context
from trunkline.errors import InvalidParams
from trunkline.protocol.channel import RequestToClient
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST
from trunkline.server.journal import Journal, OpenJournal, make_question, message_digest

ELICIT = "elicitation/create"


def test_an_answer_keeps_the_digest_of_its_question() -> None:
    journal = Journal().ask("size", "d1").answer({"size": Raw(b'"L"')})
    assert (journal.asked, journal.answers) == ({}, {"size": ("d1", Raw(b'"L"'))})


def test_answers_to_questions_that_were_not_asked_are_ignored() -> None:
    journal = Journal().ask("size", "d1")
    assert journal.answer({"colour": Raw(b'"red"')}) is journal


def test_a_withdrawn_question_cannot_be_answered() -> None:
    journal = Journal().ask("size", "d1").withdraw(["size"])
    assert journal.answer({"size": Raw(b'"L"')}) is journal


def test_an_answer_counts_only_for_the_question_that_was_asked() -> None:
    journal = OpenJournal(Journal().ask("size", "d1").answer({"size": Raw(b'"L"')}))
    assert (journal.answer_to("size", "d1"), journal.answer_to("size", "d2")) == (Raw(b'"L"'), None)


def test_a_journal_survives_being_written_down() -> None:
    journal = Journal().ask("a", "d1").answer({"a": Raw(b"1")}).ask("b", "d2").keep_once("k", Raw(b"[2]"))
    assert msgspec.json.decode(msgspec.json.encode(journal), type=Journal) == journal


async def test_results_of_once_come_back_as_plain_data() -> None:
    journal = OpenJournal()

    async def compute() -> Any:
        return journal.encode_once("k", t.Implementation(name="app", version="1"))[0]

    first = await journal.do_once("k", compute)
    assert OpenJournal(journal.record()).results == {"k": first} == {"k": {"name": "app", "version": "1"}}


async def test_a_result_without_a_json_form_is_not_recorded() -> None:
    journal = OpenJournal()
    await journal.do_once("socket", lambda: asyncio.sleep(0, object()))
    await journal.do_once("number", lambda: asyncio.sleep(0, 7))
    assert journal.record().once == {"number": Raw(b"7")}


async def test_a_failed_once_call_leaves_nothing_in_the_journal() -> None:
    journal = OpenJournal()

    async def fail() -> None:
        journal.encode_once("k", 1)
        raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        await journal.do_once("k", fail)
    assert journal.record() == Journal()


@given(st.lists(st.sampled_from(["who", "who-2", "who-2-2", "who-3"]), max_size=12))
def test_names_are_unique_and_the_same_in_every_run(keys: list[str]) -> None:
    first, second = OpenJournal(), OpenJournal()
    names = [first.name(key) for key in keys]
    assert len(set(names)) == len(names)
    assert names == [second.name(key) for key in keys]


def test_a_question_is_digested_once() -> None:
    request = RequestToClient(ELICIT, t.ElicitRequestParams(mode="form", message="Which?", requested_schema={}), None)
    question = make_question(request, NEWEST)
    assert make_question(request, NEWEST) is question
    assert question.digest == message_digest(ELICIT, bytes(question.request.params or b""))


@pytest.mark.parametrize(
    ("journal", "said"),
    [
        (Journal(once={str(n): Raw(b"1") for n in range(4)}), "more than 3 questions and results"),
        (
            Journal(asked={"a": "d"}, answers={"b": ("d", Raw(b"1"))}, once=dict.fromkeys("cd", Raw(b"1"))),
            "more than 3",
        ),
        (Journal(answers={"a": ("d", Raw(b"x" * 60))}, once={"b": Raw(b"y" * 50)}), "too large to keep"),
    ],
    ids=["once", "all kinds", "bytes"],
)
def test_a_journal_that_is_too_large_is_an_error(journal: Journal, said: str) -> None:
    with pytest.raises(InvalidParams, match=said):
        journal.check_size(Limits(journal_entries=3, journal_bytes=100))


def test_a_journal_may_be_as_large_as_its_limits() -> None:
    journal = Journal(asked={"a": "d"}, answers={"b": ("d", Raw(b"x" * 60))}, once={"c": Raw(b"y" * 40)})
    journal.check_size(Limits(journal_entries=3, journal_bytes=100))


async def test_a_call_of_too_many_answers_fails() -> None:
    async def f(ctx: Context) -> str:
        for number in range(9):
            await ctx.elicit(f"Question {number}", str)
        return "done"

    async with reach(serving(f, limits=Limits(journal_entries=4)), STATELESS, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: accept("yes")})
    assert (len(talk.questions), talk.answer["error"]["code"]) == (4, -32602)
    assert "more than 4" in talk.answer["error"]["message"]


async def test_keys_that_look_like_generated_ones_stay_apart() -> None:
    async def f(ctx: Context) -> str:
        answers = await asyncio.gather(*(ctx.elicit(key, str, key=key) for key in ("who", "who", "who-2")))
        return ", ".join(str(answer.data) for answer in answers)

    async with reach(serving(f), STATELESS, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: lambda params: accept(f"<{params['message']}>")})
    assert text(talk.answer["result"]) == "<who>, <who>, <who-2>"
