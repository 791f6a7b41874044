"""The record of a task: whatever happens to it, in any order, it obeys the state machine of the specification."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

import trunkline.types as t
from tests.server.tasks.records import RESULT, make_question, make_record
from trunkline.protocol.caller import Origin, Principal, Session
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.protocol.tasks import FINISHED, timestamp
from trunkline.server.journal import Journal
from trunkline.server.tasks.record import (
    CallerFacts,
    TaskRecord,
    add_question,
    answer_questions,
    finish,
    keep_once,
    owner_of,
    start_again,
    withdraw_question,
)

#: 2025-11-25, basic/utilities/tasks, Task Status Lifecycle; the extension has the same diagram.
ALLOWED = {
    "working": {"working", "input_required", *FINISHED},
    "input_required": {"working", "input_required", *FINISHED},
    **{status: {status} for status in FINISHED},
}

Step = Callable[[TaskRecord, float], TaskRecord]
keys = st.sampled_from(["a", "b", "c", "d"])


def ending(status: t.TaskStatus) -> Step:
    """Return a step that finishes a task."""
    if status == "completed":
        return lambda record, now: finish(record, status, now, result=RESULT)
    error = t.ErrorObject(code=-32603, message="broken") if status == "failed" else None
    return lambda record, now: finish(record, status, now, error=error, message=status)


def asking(key: str) -> Step:
    """Return a step that asks a question under a key that was not used before, as handlers do."""
    return lambda record, now: record if key in record.used_keys else add_question(record, key, make_question(key), now)


steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(ending, st.sampled_from(sorted(FINISHED))),
    st.builds(asking, keys),
    st.builds(
        lambda given: lambda record, now: answer_questions(record, dict.fromkeys(given, Raw(b"{}")), now),
        st.lists(keys),
    ),
    st.builds(lambda key: lambda record, now: withdraw_question(record, key, now), keys),
    st.builds(lambda key: lambda record, now: keep_once(record, key, Raw(b'{"value":1}')), keys),
    st.just(lambda record, now: start_again(record, f"runner at {now}", now)),
)


def life(record: TaskRecord, walk: list[Step]) -> list[TaskRecord]:
    """Return the record after each step, with a second between two steps."""
    seen = [record]
    for number, step in enumerate(walk, 1):
        seen.append(step(seen[-1], 100.0 + number))
    return seen


walks = st.lists(steps, max_size=12)


@given(walks, st.integers(0, 2))
def test_a_task_moves_only_along_the_arrows_of_the_specification(walk: list[Step], retry: int) -> None:
    seen = life(make_record(retry=retry), walk)
    assert all(after.status in ALLOWED[before.status] for before, after in itertools.pairwise(seen))


@given(walks)
def test_a_finished_task_never_changes_again(walk: list[Step]) -> None:
    seen = life(make_record(), walk)
    ended = [each for each in seen if each.finished]
    assert all(each is ended[0] for each in ended)


@given(walks, st.integers(0, 2))
def test_a_task_waits_for_input_exactly_while_it_has_questions(walk: list[Step], retry: int) -> None:
    seen = life(make_record(retry=retry), walk)
    assert all((each.status == "input_required") == bool(each.requests) for each in seen)


@given(walks, st.integers(0, 2))
def test_a_task_is_started_as_often_as_its_policy_allows_at_most(walk: list[Step], retry: int) -> None:
    last = life(make_record(retry=retry), walk)[-1]
    assert 1 <= last.attempts <= retry + 1


@given(walks, st.integers(0, 2))
def test_the_key_of_a_question_stays_used_for_ever(walk: list[Step], retry: int) -> None:
    seen = life(make_record(retry=retry), walk)
    assert all(before.used_keys <= after.used_keys for before, after in itertools.pairwise(seen))


@given(walks)
def test_an_answer_is_kept_as_it_came_first(walk: list[Step]) -> None:
    seen = life(make_record(), walk)
    assert all(
        before.journal.answers.items() <= after.journal.answers.items() for before, after in itertools.pairwise(seen)
    )


@given(walks)
def test_only_a_finished_task_expires(walk: list[Step]) -> None:
    seen = life(make_record(ttl=60.0), walk)
    assert [each.expires for each in seen] == [each.updated + 60.0 if each.finished else None for each in seen]


@given(walks, st.integers(0, 1))
def test_a_record_survives_being_written_down(walk: list[Step], retry: int) -> None:
    last = life(make_record(retry=retry), walk)[-1]
    assert msgspec.json.decode(msgspec.json.encode(last), type=TaskRecord) == last


@given(walks)
def test_the_time_of_a_task_never_goes_back(walk: list[Step]) -> None:
    times = [each.updated for each in life(make_record(), walk)]
    assert times == sorted(times)


# --- single changes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_the_end_removes_open_questions(status: t.TaskStatus) -> None:
    waiting = add_question(make_record(), "a", make_question(), 101.0)
    assert ending(status)(waiting, 102.0).requests == {}


def test_an_answer_comes_with_the_digest_of_its_question() -> None:
    waiting = add_question(make_record(), "a", make_question("Which?"), 101.0)
    assert answer_questions(waiting, {"a": Raw(b"1")}, 102.0).journal.answers == {"a": ("Which?", Raw(b"1"))}


def test_a_question_that_is_withdrawn_lets_the_task_work_on() -> None:
    waiting = add_question(make_record(), "a", make_question(), 101.0)
    after = withdraw_question(waiting, "a", 102.0)
    assert (after.status, after.requests, after.used_keys) == ("working", {}, {"a"})


def test_a_task_without_a_retry_fails_when_its_process_is_gone() -> None:
    after = start_again(make_record(retry=0), "next", 105.0)
    assert (after.status, after.error is not None and after.error.code, after.updated) == ("failed", -32603, 105.0)


def test_a_task_with_a_retry_goes_to_the_next_process() -> None:
    after = start_again(make_record(retry=1), "next", 105.0)
    assert (after.status, after.attempts, after.runner) == ("working", 2, "next")


def test_a_task_that_is_kept_for_ever_never_expires() -> None:
    assert finish(make_record(ttl=None), "completed", 101.0, result=RESULT).expires is None


def test_the_size_counts_what_callers_sent_and_get() -> None:
    record = make_record(
        params=Raw(b"x" * 10), journal=Journal(answers={"a": ("d", Raw(b"y" * 20))}, once={"b": Raw(b"w" * 5)})
    )
    assert finish(record, "completed", 101.0, result=Raw(b"z" * 30)).size == 65


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1970-01-01T00:00:00.000Z"), (1700000000.25, "2023-11-14T22:13:20.250Z")],
    ids=["epoch", "fraction"],
)
def test_times_are_written_as_iso_8601_in_utc(seconds: float, text: str) -> None:
    assert timestamp(seconds) == text


# --- the caller -------------------------------------------------------------------------------------------------------


def principals() -> list[Principal | None]:
    """Return principals that must be told apart."""
    return [
        None,
        Principal(subject="a"),
        Principal(subject="b"),
        Principal(subject="a", issuer="i"),
        Principal(subject="a", client="c"),
        Principal(subject="", issuer="a"),
    ]


def test_different_principals_own_different_tasks() -> None:
    owners = [owner_of(each) for each in principals()]
    assert len(set(owners)) == len(owners)


def test_the_scopes_of_a_token_do_not_change_the_owner() -> None:
    assert owner_of(Principal(subject="a", scopes=frozenset({"x"}))) == owner_of(Principal(subject="a"))


def test_the_claims_of_a_token_are_not_kept() -> None:
    origin = Origin("http", Principal(subject="a", claims={"secret": object()}))
    caller = CallerFacts(NEWEST.name, {}, principal=origin.principal).caller()
    kept = CallerFacts.of(caller)
    assert kept.principal == Principal(subject="a")


@pytest.mark.parametrize("revision", [NEWEST, NEWEST_HANDSHAKE], ids=lambda each: each.name)
def test_a_caller_is_restored_with_everything_that_a_handler_can_see(revision: Any) -> None:
    facts = CallerFacts(
        revision.name,
        {"elicitation": {}},
        t.Implementation(name="app", version="1"),
        Principal(subject="a", scopes=frozenset({"read"})),
        "warning",
        "http",
    )
    restored = facts.caller()
    assert CallerFacts.of(restored) == facts
    assert (restored.revision, restored.session is not None) == (revision, revision.handshake)


def test_a_revision_that_is_no_longer_known_is_read_as_the_newest() -> None:
    facts = CallerFacts("1999-01-01", {})
    assert (facts.caller().revision, facts.revision_has_core_tasks) == (NEWEST, False)


def test_some_answers_leave_the_task_waiting_for_the_others() -> None:
    waiting = add_question(add_question(make_record(), "a", make_question(), 101.0), "b", make_question(), 102.0)
    partly = answer_questions(waiting, {"a": Raw(b"1")}, 103.0)
    assert (partly.status, list(partly.requests), list(partly.journal.answers)) == ("input_required", ["b"], ["a"])


def test_answers_to_questions_that_are_not_open_are_ignored() -> None:
    waiting = add_question(make_record(), "a", make_question(), 101.0)
    assert answer_questions(waiting, {"b": Raw(b"1")}, 102.0) is waiting


def test_the_session_of_a_restored_caller_is_ready() -> None:
    session = CallerFacts(NEWEST_HANDSHAKE.name, {}).caller().session
    assert isinstance(session, Session)
    assert session.initialized
