"""How a question is settled: what was allowed earlier, who is asked, and everything that is a no."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import run_async
from trunkline.errors import ConnectionLost, RequestFailed, RequestTimeout
from trunkline.host.authorization.approval import (
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalResult,
    Approver,
    Prompter,
    can_remember,
)
from trunkline.host.authorization.grants import (
    MAX_TOOLS_PER_GRANT,
    GrantStore,
    ServerTool,
    SessionGrants,
    argument_pattern,
    make_grant,
)
from trunkline.host.authorization.policy.decisions import Act, Decision, ToolHints

ACT = Act(kind="tool", server="files", name="write", arguments={"path": "/a/b", "n": 1}, pin="sha256:1", session="s1")
ASK = Decision("ask", "policy.toml:3", "writes are asked about")
DENY = Decision("deny", "policy.toml:9", "never there")
ALLOW = Decision("allow", "policy.toml:1", "reads are fine")
DEFINITION = {"name": "write", "inputSchema": {"type": "object"}}


def question(act: Act = ACT, **more: Any) -> ApprovalRequest:
    """Make the question about an act."""
    more = {"definition": DEFINITION, "editable": True, **more}
    return ApprovalRequest(act=act, decision=ASK, arguments=act.arguments, **more)


class ScriptedPrompter:
    """A face that answers as it was told, and remembers what it was asked."""

    def __init__(self, *answers: ApprovalAnswer | Exception | None) -> None:
        """Take the answers, in order."""
        self._answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        self.asked.append(question)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def book(tmp_path: Path) -> GrantStore:
    """An empty book."""
    return GrantStore(tmp_path / "grants.json")


async def settled(consent: Approver, act: Act = ACT, decision: Decision = ASK, **more: Any) -> ApprovalResult:
    """Settle an act with the question about it."""
    more = {"question": lambda: question(act), **more}
    return await consent.resolve(act, decision, **more)


def rule(consent: Approver, act: Act = ACT, decision: Decision = ASK, **more: Any) -> ApprovalResult:
    """Settle one act by itself."""
    return run_async(settled(consent, act, decision, **more))


YES, NO = ApprovalAnswer(allow=True), ApprovalAnswer(allow=False)
#: What follows where a person did not say no.
STEP = " Allow it: trunkline grants allow files/write"
TOOLS = (ServerTool("write", "sha256:1"), ServerTool("read", "sha256:2", True), ServerTool("list", "sha256:3", True))
READ = replace(ACT, name="read", pin="sha256:2")


# --- the order of things ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("decision", "allowed"), [(ALLOW, True), (DENY, False)], ids=["allow", "deny"])
def test_what_the_policy_decides_is_not_asked(decision: Decision, allowed: bool, book: GrantStore) -> None:
    prompter = ScriptedPrompter()
    ruling = rule(Approver(book), decision=decision, prompter=prompter)
    assert ruling == ApprovalResult(allowed=allowed, by="policy", rule=decision.rule, reason=decision.reason)
    assert prompter.asked == []


def test_a_grant_does_not_undo_a_denial(book: GrantStore) -> None:
    book.add(make_grant(ACT, "always", now=0.0, expires=1e12))
    session = SessionGrants()
    session.add(make_grant(ACT, "session", now=0.0))
    assert not rule(Approver(book), decision=DENY, session_grants=session).allowed


def test_what_was_allowed_earlier_is_not_asked(book: GrantStore) -> None:
    grant = make_grant(ACT, "always", now=0.0, expires=1e12)
    book.add(grant)
    ruling = rule(Approver(book))
    assert (ruling.allowed, ruling.by, ruling.rule) == (True, f"grant:{grant.id}", ASK.rule)


def test_a_counted_grant_is_spent(book: GrantStore) -> None:
    book.add(make_grant(ACT, "always", now=0.0, expires=1e12, uses=2))
    consent = Approver(book)
    assert [rule(consent).allowed for _ in range(3)] == [True, True, False]


def test_a_yes_holds_once(book: GrantStore) -> None:
    consent, prompter = Approver(book), ScriptedPrompter(YES, NO)
    assert [rule(consent, prompter=prompter).allowed for _ in range(2)] == [True, False]


# --- when nobody can be asked ----------------------------------------------------------------------------------------


def test_without_a_prompter_the_denial_says_that_no_person_can_be_asked(book: GrantStore) -> None:
    ruling = rule(Approver(book))
    assert (ruling.allowed, ruling.by) == (False, "policy")
    assert "files/write needs approval" in ruling.reason
    assert "there is no terminal or client to ask" in ruling.reason


def test_a_broken_store_allows_nothing_and_the_denial_names_it(book: GrantStore, tmp_path: Path) -> None:
    (tmp_path / "grants.json").write_text("{")
    ruling = rule(Approver(book))
    assert not ruling.allowed
    assert "grants.json: the grants cannot be read, so none is used" in ruling.reason


def test_with_a_broken_store_the_person_can_still_say_yes(book: GrantStore, tmp_path: Path) -> None:
    (tmp_path / "grants.json").write_text("{")
    ruling = rule(Approver(book), prompter=ScriptedPrompter(ApprovalAnswer(allow=True, remember="always")))
    assert (ruling.allowed, ruling.grant) == (True, None)
    assert "it could not be remembered" in ruling.reason
    assert (tmp_path / "grants.json").read_text() == "{"


def test_a_function_that_is_not_async_is_named(book: GrantStore) -> None:
    ruling = rule(Approver(book), prompter=lambda request: ApprovalAnswer(allow=True))
    assert not ruling.allowed
    assert "could not be asked: consent= is not an async function" in ruling.reason


@pytest.mark.parametrize("answer", [True, "yes", 1, {"allow": True}, ApprovalAnswer(allow=1)], ids=repr)  # type: ignore[arg-type]
def test_what_is_no_answer_is_a_no(answer: Any, book: GrantStore) -> None:
    assert not rule(Approver(book), prompter=ScriptedPrompter(answer)).allowed


# --- four ways to a no -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "by", "reason"),
    [
        (NO, "user", "the user declined files/write"),
        (ApprovalAnswer(allow=False, by="client"), "client", f"the client declined files/write.{STEP}"),
        (
            ApprovalAnswer(allow=False, no="cancelled"),
            "user",
            f"the user cancelled the question about files/write without an answer.{STEP}",
        ),
        (
            ApprovalAnswer(allow=False, no="misfit", by="client"),
            "policy",
            "the answer to the question about files/write does not fit it: the client chose nothing that was "
            f"offered.{STEP}",
        ),
        ("yes", "policy", f"the answer to the question about files/write does not fit it: {{}}.{STEP}"),
        (None, "policy", f"the question about files/write was left without an answer.{STEP}"),
        (
            RequestTimeout("", clock="total", seconds=7),
            "deadline",
            f"the question about files/write was not answered within 7 s.{STEP}",
        ),
        (
            ConnectionLost("gone"),
            "policy",
            f"the question about files/write could not be asked: the client went away.{STEP}",
        ),
        (
            RuntimeError("secret detail"),
            "policy",
            f"the question about files/write could not be asked: RuntimeError.{STEP}",
        ),
        (
            RequestFailed("no", code=-32601),
            "policy",
            f"the question about files/write could not be asked: the client answered with error -32601.{STEP}",
        ),
    ],
    ids=[
        "declined",
        "client declined",
        "cancelled",
        "misfit",
        "no answer",
        "none",
        "silence",
        "gone",
        "failed",
        "error",
    ],
)
def test_each_no_says_how_it_came_about(answer: Any, by: str, reason: str, book: GrantStore) -> None:
    ruling = rule(Approver(book), prompter=ScriptedPrompter(answer))
    expected = reason.format("it is not an ApprovalAnswer object")
    assert (ruling.allowed, ruling.by, ruling.reason) == (False, by, expected)


@pytest.mark.parametrize(
    ("act", "step"),
    [
        (replace(ACT, flagged=True), "trunkline pins accept files/write"),
        (replace(ACT, changed=True), "trunkline pins accept files/write"),
        (
            replace(ACT, profile="at work", principal="ann"),
            "trunkline grants allow files/write --profile 'at work' --principal ann",
        ),
        (replace(ACT, name="a b"), "trunkline grants allow 'files/a b'"),
    ],
    ids=["flagged", "changed", "profile", "quoted"],
)
def test_a_no_that_is_no_decision_names_the_command_that_allows_it(act: Act, step: str, book: GrantStore) -> None:
    assert rule(Approver(book), act, prompter=ScriptedPrompter(None)).reason.endswith(f". Allow it: {step}")


# --- time ------------------------------------------------------------------------------------------------------------


async def silent(question: ApprovalRequest) -> ApprovalAnswer | None:
    """Never answer."""
    await asyncio.Event().wait()
    return YES


async def stubborn(question: ApprovalRequest) -> ApprovalAnswer | None:
    """Answer yes as soon as the question is withdrawn."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return YES
    return NO


async def impatient(question: ApprovalRequest) -> ApprovalAnswer | None:
    """Fail with a deadline of its own."""
    raise TimeoutError


async def aborted(question: ApprovalRequest) -> ApprovalAnswer | None:
    """End as a task does that somebody else cancelled."""
    raise asyncio.CancelledError


@pytest.mark.parametrize("prompter", [silent, stubborn])
def test_a_question_without_an_answer_in_time_is_denied(prompter: Prompter, book: GrantStore) -> None:
    ruling = rule(Approver(book, deadline=0.01), prompter=prompter)
    assert (ruling.allowed, ruling.by) == (False, "deadline")
    assert ruling.reason == f"the question about files/write was not answered within 0.01 s.{STEP}"


@pytest.mark.parametrize("prompter", [impatient, aborted])
def test_a_prompter_without_an_answer_counts_as_a_denial(prompter: Prompter, book: GrantStore) -> None:
    ruling = rule(Approver(book), prompter=prompter)
    assert (ruling.allowed, ruling.by) == (False, "policy")


async def test_cancelling_the_act_withdraws_the_question(book: GrantStore) -> None:
    withdrawn = []

    async def prompter(question: ApprovalRequest) -> ApprovalAnswer | None:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.append(question.act.name)
        return YES

    consent = Approver(book)
    task = asyncio.create_task(settled(consent, prompter=prompter))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert withdrawn == ["write"]
    assert (await settled(consent, prompter=ScriptedPrompter(YES))).allowed


# --- one question at a time ------------------------------------------------------------------------------------------


class HeldPrompter:
    """A face whose questions are answered by the test, one by one."""

    def __init__(self) -> None:
        """Start with no question."""
        self.asked: list[ApprovalRequest] = []
        self._answers: asyncio.Queue[ApprovalAnswer] = asyncio.Queue()
        self._came = asyncio.Event()

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        self.asked.append(question)
        self._came.set()
        return await self._answers.get()

    async def next(self) -> ApprovalRequest:
        """Wait for a question."""
        await self._came.wait()
        self._came.clear()
        return self.asked[-1]

    async def serve(self, count: int, answer: ApprovalAnswer = YES) -> list[str]:
        """Answer so many questions; give the names they were about."""
        names = []
        for _ in range(count):
            names.append((await self.next()).act.name)
            self._answers.put_nowait(answer)
        return names


def named(name: str, session: str = "s1") -> Act:
    """Make an act of another name."""
    return replace(ACT, name=name, session=session)


async def started(*work: Coroutine[Any, Any, ApprovalResult]) -> list[asyncio.Task[ApprovalResult]]:
    """Start some work in order, and let it come as far as it can."""
    tasks = [asyncio.create_task(each) for each in work]
    await asyncio.sleep(0)
    return tasks


async def test_a_prompter_is_asked_one_question_at_a_time(book: GrantStore) -> None:
    consent, held = Approver(book), HeldPrompter()
    tasks = await started(*(settled(consent, named(name), prompter=held) for name in "abc"))
    assert len(held.asked) == 1
    assert await held.serve(3) == ["a", "b", "c"]
    assert [(await task).allowed for task in tasks] == [True, True, True]


async def test_two_prompters_are_asked_at_once(book: GrantStore) -> None:
    consent, one, other = Approver(book), HeldPrompter(), HeldPrompter()
    tasks = await started(settled(consent, prompter=one), settled(consent, prompter=other))
    assert (len(one.asked), len(other.asked)) == (1, 1)
    await one.serve(1)
    await other.serve(1)
    await asyncio.gather(*tasks)


async def test_sessions_take_turns(book: GrantStore) -> None:
    consent, held = Approver(book), HeldPrompter()
    acts = [
        *(named(f"a{number}", "loud") for number in range(4)),
        named("b0", "b"),
        named("c0", "c"),
        named("b1", "b"),
    ]
    tasks = await started(*(settled(consent, act, prompter=held) for act in acts))
    assert await held.serve(7) == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    await asyncio.gather(*tasks)


async def test_a_queued_request_is_not_shown_if_the_last_answer_covers_it(book: GrantStore) -> None:
    consent, held = Approver(book), HeldPrompter()
    tasks = await started(settled(consent, prompter=held), settled(consent, prompter=held))
    await held.serve(1, ApprovalAnswer(allow=True, remember="always"))
    first, second = [await task for task in tasks]
    assert first.grant is not None
    assert (second.allowed, second.by) == (True, f"grant:{first.grant.id}")
    assert len(held.asked) == 1


async def test_a_question_that_waits_too_long_for_its_turn_is_a_no(book: GrantStore) -> None:
    consent = Approver(book, deadline=0.02)
    held = HeldPrompter()
    _, second = await started(settled(consent, prompter=held), settled(consent, prompter=held))
    ruling = await second
    assert (ruling.allowed, ruling.by) == (False, "deadline")


async def test_a_session_may_have_so_many_questions_waiting(book: GrantStore) -> None:
    consent, held = Approver(book), HeldPrompter()
    tasks = await started(*(settled(consent, prompter=held) for _ in range(66)))
    ruling = await tasks[-1]
    assert not ruling.allowed
    assert "could not be asked: 64 questions of this session wait for an answer already" in ruling.reason
    await held.serve(65)
    await asyncio.gather(*tasks)


async def test_a_cancelled_waiter_does_not_hold_up_the_others(book: GrantStore) -> None:
    consent, held = Approver(book), HeldPrompter()
    tasks = await started(*(settled(consent, named(name), prompter=held) for name in "abcd"))
    tasks[1].cancel()
    tasks[3].cancel()
    await asyncio.wait([tasks[1], tasks[3]])
    assert await held.serve(2) == ["a", "c"]
    assert ((await tasks[0]).allowed, (await tasks[2]).allowed) == (True, True)
    assert (await settled(consent, named("e"), prompter=ScriptedPrompter(YES))).allowed


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_turn_that_comes_as_it_is_given_up_goes_to_the_next(moment: str, book: GrantStore) -> None:
    consent, held = Approver(book), HeldPrompter()
    first, second, third = await started(*(settled(consent, named(name), prompter=held) for name in "abc"))
    acts: dict[str, list[Callable[[], object]]] = {
        "before": [second.cancel, first.cancel],
        "after": [first.cancel, lambda: asyncio.get_running_loop().call_soon(second.cancel)],
    }
    await held.next()
    assert [act() is not None for act in acts[moment]] == [True, True]
    await asyncio.wait([first, second])
    assert await held.serve(1) == ["c"]
    assert (await third).allowed


# --- remembering -----------------------------------------------------------------------------------------------------


def test_a_yes_for_the_session_is_remembered_there(book: GrantStore) -> None:
    consent, session = Approver(book), SessionGrants()
    ruling = rule(
        consent, prompter=ScriptedPrompter(ApprovalAnswer(allow=True, remember="session")), session_grants=session
    )
    assert session.all() == [ruling.grant]
    assert book.all() == []
    assert rule(consent, replace(ACT, arguments={"path": "/x"}), session_grants=session).allowed
    assert not rule(consent, replace(ACT, session="s2"), session_grants=session).allowed


def test_an_answer_of_always_is_stored(book: GrantStore) -> None:
    answer = ApprovalAnswer(allow=True, remember="always", expires=1e12, uses=5)
    ruling = rule(Approver(book), prompter=ScriptedPrompter(answer))
    assert ruling.grant is not None
    assert book.all() == [ruling.grant]
    assert (ruling.grant.expires, ruling.grant.uses) == (1e12, 5)


def test_a_yes_for_read_only_tools_is_for_those_of_this_moment(book: GrantStore) -> None:
    consent, prompter = Approver(book), ScriptedPrompter(ApprovalAnswer(allow=True, remember="read-only"))
    ruling = rule(consent, READ, prompter=prompter, question=lambda: question(READ, tools=TOOLS))
    assert ruling.grant is not None
    assert (ruling.grant.tools, ruling.grant.read_only) == ({"read": "sha256:2", "list": "sha256:3"}, True)
    assert book.all() == [ruling.grant]
    assert rule(consent, replace(READ, arguments={"any": 1}, session="s2")).allowed
    assert rule(consent, replace(READ, name="list", pin="sha256:3")).allowed
    later = {
        "writing": ACT,
        "added": replace(READ, name="new", pin="sha256:9"),
        "changed": replace(READ, pin="sha256:9"),
        "drifted": replace(READ, changed=True),
        "flagged": replace(READ, flagged=True),
        "no pin": replace(READ, pin=None),
        "another server": replace(READ, server="other"),
        "another principal": replace(READ, principal="eve"),
        "another profile": replace(READ, profile="work"),
    }
    assert [name for name, act in later.items() if rule(consent, act).allowed] == []


def test_a_yes_for_a_server_is_for_its_tools_of_this_moment_in_this_session(book: GrantStore) -> None:
    consent, session = Approver(book), SessionGrants()
    prompter = ScriptedPrompter(ApprovalAnswer(allow=True, remember="server"))
    ruling = rule(consent, prompter=prompter, session_grants=session, question=lambda: question(tools=TOOLS))
    assert session.all() == [ruling.grant]
    assert book.all() == []
    assert rule(consent, READ, session_grants=session).allowed
    assert rule(consent, session_grants=session).allowed
    for act in (replace(READ, pin="sha256:9"), replace(READ, name="new"), replace(READ, session="s2")):
        assert not rule(consent, act, session_grants=session).allowed


def test_a_yes_for_a_server_may_be_counted_too(book: GrantStore) -> None:
    consent, prompter = (
        Approver(book),
        ScriptedPrompter(ApprovalAnswer(allow=True, remember="read-only", uses=1, expires=1e12)),
    )
    rule(consent, READ, prompter=prompter, question=lambda: question(READ, tools=TOOLS))
    assert [rule(consent, READ).allowed for _ in range(2)] == [True, False]


@pytest.mark.parametrize("by", ["user", "client"])
def test_a_yes_is_recorded_as_that_of_who_gave_it(by: Any, book: GrantStore) -> None:
    ruling = rule(Approver(book), prompter=ScriptedPrompter(ApprovalAnswer(allow=True, by=by)))
    assert (ruling.allowed, ruling.by, ruling.rule) == (True, by, ASK.rule)


def test_a_yes_for_read_only_tools_to_a_writing_call_holds_once_for_that_call(book: GrantStore) -> None:
    consent, prompter = Approver(book), ScriptedPrompter(*[ApprovalAnswer(allow=True, remember="read-only")] * 2, NO)
    rulings = [rule(consent, prompter=prompter, question=lambda: question(tools=TOOLS)) for _ in range(3)]
    assert [ruling.allowed for ruling in rulings] == [True, True, False]
    assert rule(consent, READ).allowed
    # The same answer again, as in the next round of a request, is no second grant.
    assert len(book.all()) == 1


def test_reading_in_a_tainted_session_is_allowed_only_where_nothing_leads_out(book: GrantStore) -> None:
    consent, prompter = Approver(book), ScriptedPrompter(ApprovalAnswer(allow=True, remember="read-only"))
    rule(consent, READ, prompter=prompter, question=lambda: question(READ, tools=TOOLS))
    tainted = replace(READ, tainted=True)
    assert not rule(consent, tainted).allowed
    assert not rule(consent, replace(tainted, annotations=ToolHints(read_only=True, open_world=True))).allowed
    assert rule(consent, replace(tainted, annotations=ToolHints(read_only=True, open_world=False))).allowed


def test_a_grant_given_before_the_scan_found_something_is_asked_about_again(book: GrantStore) -> None:
    consent = Approver(book)
    rule(consent, prompter=ScriptedPrompter(ApprovalAnswer(allow=True, remember="always")))
    flagged = replace(ACT, flagged=True)
    assert not rule(consent, flagged).allowed
    rule(consent, flagged, prompter=ScriptedPrompter(ApprovalAnswer(allow=True, remember="always")))
    assert rule(consent, flagged).allowed


@pytest.mark.parametrize(
    ("act", "tools", "offered"),
    [
        (ACT, TOOLS, {"read-only", "server"}),
        (ACT, TOOLS[:1], {"server"}),
        (replace(ACT, flagged=True), TOOLS, set()),
        (replace(ACT, changed=True), TOOLS, set()),
        (ACT, tuple(ServerTool(str(number), "x", True) for number in range(MAX_TOOLS_PER_GRANT + 1)), set()),
        (Act(kind="resource", server="files", name="file:///a"), TOOLS, set()),
    ],
    ids=["all", "none reads", "flagged", "changed", "too many", "resource"],
)
def test_an_answer_for_the_server_is_offered_where_it_means_something(
    act: Act, tools: tuple[ServerTool, ...], offered: set[str], book: GrantStore
) -> None:
    prompter = ScriptedPrompter(NO)
    rule(Approver(book), act, prompter=prompter, question=lambda: question(act, tools=tools))
    assert set(prompter.asked[0].can_remember) & {"read-only", "server"} == offered


def test_a_yes_for_arguments_like_these_is_for_these(book: GrantStore) -> None:
    consent = Approver(book)
    rule(consent, prompter=ScriptedPrompter(ApprovalAnswer(allow=True, remember="alike", vary="/path", like="/a/**")))
    assert rule(consent, replace(ACT, arguments={"path": "/a/c", "n": 1})).allowed
    assert not rule(consent, replace(ACT, arguments={"path": "/a/../c", "n": 1})).allowed
    assert not rule(consent, replace(ACT, arguments={"path": "/a/c", "n": 2})).allowed


def test_likeness_that_makes_no_sense_is_not_remembered(book: GrantStore) -> None:
    ruling = rule(
        Approver(book), prompter=ScriptedPrompter(ApprovalAnswer(allow=True, remember="alike", vary="/nowhere"))
    )
    assert (ruling.allowed, ruling.grant) == (True, None)
    assert "there is no argument at /nowhere" in ruling.reason


def test_without_a_store_nothing_outlives_the_session() -> None:
    ruling = rule(Approver(None), prompter=ScriptedPrompter(ApprovalAnswer(allow=True, remember="always")))
    assert (ruling.allowed, ruling.grant) == (True, None)


@pytest.mark.parametrize(
    ("act", "definition", "offered"),
    [
        (ACT, DEFINITION, ("session", "always", "alike")),
        (ACT, None, ("alike",)),
        (replace(ACT, pin=None), DEFINITION, ()),
        (replace(ACT, arguments=None), DEFINITION, ("session", "always")),
        (replace(ACT, arguments=None), None, ()),
        (Act(kind="resource", server="files", name="file:///a"), None, ("session", "always")),
    ],
    ids=["all", "no definition", "no pin", "no arguments", "neither", "resource"],
)
def test_only_what_the_question_shows_can_be_remembered(
    act: Act, definition: Any, offered: Any, book: GrantStore
) -> None:
    prompter = ScriptedPrompter(NO)
    rule(Approver(book), act, prompter=prompter, question=lambda: question(act, definition=definition))
    assert can_remember(act, definition) == offered
    assert prompter.asked[0].can_remember == offered


def test_a_prompter_cannot_choose_a_scope_that_was_not_offered(book: GrantStore) -> None:
    prompter = ScriptedPrompter(ApprovalAnswer(allow=True, remember="always"))
    ruling = rule(Approver(book), prompter=prompter, question=lambda: question(definition=None))
    assert (ruling.allowed, ruling.grant) == (True, None)
    assert book.all() == []


# --- changed arguments -----------------------------------------------------------------------------------------------

CHANGED = {"path": "/etc/passwd", "n": 1}


def test_changed_arguments_are_judged_again(book: GrantStore) -> None:
    judged: list[Any] = []

    def reevaluate(arguments: dict[str, Any]) -> Decision:
        judged.append(arguments)
        return ASK

    ruling = rule(
        Approver(book), prompter=ScriptedPrompter(ApprovalAnswer(allow=True, arguments=CHANGED)), reevaluate=reevaluate
    )
    assert (ruling.allowed, ruling.arguments) == (True, CHANGED)
    assert judged == [CHANGED]


def test_changed_arguments_do_not_escape_a_denial(book: GrantStore) -> None:
    prompter = ScriptedPrompter(ApprovalAnswer(allow=True, arguments=CHANGED, remember="always"))
    ruling = rule(Approver(book), prompter=prompter, reevaluate=lambda arguments: DENY)
    assert (ruling.allowed, ruling.by, ruling.rule) == (False, "policy", DENY.rule)
    assert ruling.reason == "the policy denies the changed arguments: never there"
    assert book.all() == []


@pytest.mark.parametrize(
    ("editable", "reevaluate"), [(False, lambda arguments: ALLOW), (True, None)], ids=["not editable", "no judge"]
)
def test_arguments_that_may_not_be_changed_are_not(editable: bool, reevaluate: Any, book: GrantStore) -> None:
    prompter = ScriptedPrompter(ApprovalAnswer(allow=True, arguments=CHANGED))
    ruling = rule(
        Approver(book), prompter=prompter, reevaluate=reevaluate, question=lambda: question(editable=editable)
    )
    misfit = "the answer to the question about files/write does not fit it: it changes arguments that cannot be edited"
    assert (ruling.allowed, ruling.reason) == (False, f"{misfit}.{STEP}")


def test_what_is_remembered_is_what_was_changed_to(book: GrantStore) -> None:
    prompter = ScriptedPrompter(ApprovalAnswer(allow=True, arguments=CHANGED, remember="alike"))
    ruling = rule(Approver(book), prompter=prompter, reevaluate=lambda arguments: ASK)
    assert ruling.grant is not None
    assert ruling.grant.match == argument_pattern(CHANGED)
