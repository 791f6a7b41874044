"""Prompters that show several requests at once, and those that ask in several places."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.authorization.test_approval import ACT, NO, YES, question, settled
from trunkline.errors import ConnectionLost
from trunkline.host.authorization import prompters
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest, ApprovalResult, Approver
from trunkline.host.authorization.grants import GrantStore, SessionGrants
from trunkline.host.authorization.prompters import race, shows_several
from trunkline.host.chat.tool_calls import PausingPrompter, TurnTimer


class Board:
    """A prompter that shows all requests at once, until the test answers them."""

    concurrent = True

    def __init__(self) -> None:
        self.shown: list[tuple[str, asyncio.Future[ApprovalAnswer | None]]] = []
        self.withdrawn: list[str] = []

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        future: asyncio.Future[ApprovalAnswer | None] = asyncio.get_running_loop().create_future()
        entry = question.act.name, future
        self.shown.append(entry)
        try:
            return await entry[1]
        except asyncio.CancelledError:
            self.withdrawn.append(entry[0])
            raise
        finally:
            self.shown.remove(entry)

    async def shows(self, *names: str) -> None:
        """Wait until exactly these requests are shown."""
        while [name for name, _ in self.shown] != list(names):  # noqa: ASYNC110 - the board has no event
            await asyncio.sleep(0)

    def answer(self, name: str, answer: ApprovalAnswer | None) -> None:
        """Answer the first request of a name."""
        next(future for shown, future in self.shown if shown == name).set_result(answer)


def ask(consent: Approver, board: Any, name: str, **more: Any) -> asyncio.Task[ApprovalResult]:
    return asyncio.create_task(settled(consent, replace(ACT, name=name), prompter=board, **more))


@pytest.fixture
def consent(tmp_path: Path) -> Approver:
    return Approver(GrantStore(tmp_path / "grants.json"))


async def test_all_requests_are_shown_at_once(consent: Approver) -> None:
    board = Board()
    asked = [ask(consent, board, name) for name in ("a", "b", "c")]
    await board.shows("a", "b", "c")
    board.answer("b", YES)
    assert (await asked[1]).allowed
    board.answer("a", NO)
    board.answer("c", None)
    assert not (await asked[0]).allowed
    assert "left without an answer" in (await asked[2]).reason
    assert consent._queues == {}


async def test_a_remembered_answer_settles_the_others_that_it_covers(consent: Approver) -> None:
    board, session = Board(), SessionGrants()
    asked = [ask(consent, board, name, session_grants=session) for name in ("write", "write", "erase")]
    elsewhere = ask(consent, board, "write", session_grants=SessionGrants())
    await board.shows("write", "write", "erase", "write")
    board.answer("write", ApprovalAnswer(allow=True, remember="session"))
    assert (await asked[0]).grant is not None
    second = await asked[1]
    assert (second.allowed, second.by.partition(":")[0]) == (True, "grant")
    assert board.withdrawn == ["write"]
    await board.shows("erase", "write")
    for task in (asked[2], elsewhere):
        task.cancel()
    await asyncio.gather(asked[2], elsewhere, return_exceptions=True)
    assert board.withdrawn == ["write", "erase", "write"]
    assert consent._queues == {}


async def test_a_session_cannot_show_any_number(consent: Approver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompters, "MAX_QUEUED", 2)
    board = Board()
    asked = [ask(consent, board, name) for name in ("a", "b", "c")]
    refused = await asked[2]
    assert not refused.allowed
    assert "wait for an answer already" in refused.reason
    for task in asked[:2]:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_each_request_has_its_own_deadline(tmp_path: Path) -> None:
    consent, board = Approver(GrantStore(tmp_path / "grants.json"), deadline=0.05), Board()
    first, second = ask(consent, board, "a"), ask(consent, board, "b")
    assert [(await first).by, (await second).by] == ["deadline", "deadline"]
    assert sorted(board.withdrawn) == ["a", "b"]


def test_a_wrapped_prompter_declares_what_the_inner_one_does() -> None:
    assert shows_several(PausingPrompter(Board(), TurnTimer()))
    assert not shows_several(PausingPrompter(_plain, TurnTimer()))


async def _plain(question: ApprovalRequest) -> ApprovalAnswer | None:
    return None


# --- in several places ------------------------------------------------------------------------------------------------


async def test_the_first_answer_counts_and_the_other_place_is_withdrawn() -> None:
    slow, quick = Board(), Board()
    asking = asyncio.ensure_future(race(slow, quick)(question()))
    await slow.shows("write")
    await quick.shows("write")
    quick.answer("write", NO)
    assert await asking == NO
    assert (slow.withdrawn, quick.withdrawn) == (["write"], [])


@pytest.mark.parametrize("lost", [None, ConnectionLost("gone")])
async def test_a_place_without_an_answer_leaves_the_question_to_the_other(lost: Exception | None) -> None:
    async def absent(question: ApprovalRequest) -> ApprovalAnswer | None:
        if lost is not None:
            raise lost
        return None

    board = Board()
    asking = asyncio.ensure_future(race(absent, board)(question()))
    await board.shows("write")
    board.answer("write", YES)
    assert await asking == YES


async def test_if_nobody_answers_there_is_no_answer() -> None:
    async def gone(question: ApprovalRequest) -> ApprovalAnswer | None:
        raise ConnectionLost("gone")

    assert await race(_plain, _plain)(question()) is None
    with pytest.raises(ConnectionLost):
        await race(gone, gone)(question())


async def test_cancelling_withdraws_the_question_everywhere() -> None:
    one, other = Board(), Board()
    asking = asyncio.ensure_future(race(one, other)(question()))
    await one.shows("write")
    await other.shows("write")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert (one.withdrawn, other.withdrawn) == (["write"], ["write"])
