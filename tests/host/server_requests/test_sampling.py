"""Sampling for servers: reviewed both ways, by the models and within the limits that a server may have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import trunkline.types as t
from tests.host.chat.support import LoopClock
from tests.host.gateway.support import until
from tests.host.server_requests.support import ERAS, Clock, asked_for, call, entry, new_session, opened, sampling
from trunkline.errors import ConfigError, InvalidParams, RequestFailed
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.models.interface import ImageBlock, Model, TextBlock, ToolResultBlock, Traits, Usage
from trunkline.host.models.scripted import ScriptedModel
from trunkline.host.server_requests.handlers import HostRequestHandler, ReviewOutcome
from trunkline.host.server_requests.sampling.handler import (
    SamplingDecision,
    SamplingHandler,
    SamplingOptions,
    SamplingPrompter,
    SamplingReview,
)
from trunkline.host.server_requests.sampling.limits import SamplingLimits, limits_for
from trunkline.host.server_requests.sampling.model_request import SamplingModels, choose_model, preferences_text
from trunkline.host.session import ServerResults

YES = SamplingDecision(allow=True)
NO = SamplingDecision(allow=False)
ALLOWED = parse_policy('[[rule]]\neffect = "allow"\nserver = "notes"\nkind = "sampling"\n', file="policy.toml")
DENIED = parse_policy('[[rule]]\neffect = "deny"\nserver = "notes"\nkind = "sampling"\n', file="policy.toml")
PIXEL = "iVBORw0KGgo="


class Reviewer:
    """A person who says what a script says, and keeps what was shown."""

    def __init__(self, *decisions: SamplingDecision | Callable[[SamplingReview], SamplingDecision] | None) -> None:
        """Take what to say, in order; afterwards it is yes."""
        self._decisions = list(decisions)
        self.shown: list[SamplingReview] = []

    async def __call__(self, review: SamplingReview) -> SamplingDecision | None:
        self.shown.append(review)
        said = self._decisions.pop(0) if self._decisions else YES
        return said(review) if callable(said) else said


def model(*script: Any, name: str = "scripted:one", **traits: Any) -> ScriptedModel:
    """Make a model that says this, else that it is sour, for ever."""
    turns = script or ({"says": "it is sour", "again": True},)
    known = Traits(**{"input_price": 1.0, "output_price": 2.0, **traits})
    return ScriptedModel(turns, name=name, traits=known)


def desk(
    *models: Model, review: SamplingPrompter | None = None, policy: Policy | None = None, **options: Any
) -> SamplingHandler:
    """Make a desk."""
    made = SamplingModels(*(models or (model(),)))
    return SamplingHandler(made, policy or Policy(), SamplingOptions(review=review, **options))


# --- through a host, in both eras -------------------------------------------------------------------------------------


@ERAS
async def test_a_request_and_its_answer_are_reviewed(era: str, tmp_path: Path) -> None:
    review, one = Reviewer(), model()
    async with opened({"notes": sampling(era)}, tmp_path) as host:
        answer = await call(host, HostRequestHandler(sampling=desk(one, review=review)), "notes/summarize", text="milk")
    assert answer == "it is sour"
    assert [(shown.stage, shown.server) for shown in review.shown] == [("request", "notes"), ("response", "notes")]
    first, second = review.shown
    assert first.request.messages[0].content == t.TextContent(text="milk")
    assert (first.model, first.max_tokens) == ("scripted:one", 50)
    assert second.response is not None
    assert second.response.content == t.TextContent(text="it is sour")
    assert one.requests[0].tools == ()


@ERAS
async def test_a_request_that_is_denied_reaches_no_model(era: str, tmp_path: Path) -> None:
    one, notices = model(), list[str]()
    at = HostRequestHandler(sampling=desk(one, review=Reviewer(NO), notice=notices.append))
    async with opened({"notes": sampling(era)}, tmp_path) as host:
        with pytest.raises(RequestFailed):
            await call(host, at, "notes/summarize", text="milk")
    assert one.requests == []
    assert notices == ["A sampling request of notes was denied: the user denied the request"]


@ERAS
async def test_an_answer_that_is_denied_never_reaches_the_server(era: str, tmp_path: Path) -> None:
    at = HostRequestHandler(sampling=desk(model("my secret"), review=Reviewer(YES, NO)))
    async with opened({"notes": sampling(era)}, tmp_path) as host:
        with pytest.raises(RequestFailed) as failure:
            await call(host, at, "notes/summarize", text="milk")
    assert "secret" not in str(failure.value)


@ERAS
async def test_a_request_and_an_answer_may_be_edited(era: str, tmp_path: Path) -> None:
    one = model("draft")

    def edited(review: SamplingReview) -> SamplingDecision:
        return SamplingDecision(allow=True, request=replace(asked_for("bread"), max_tokens=7))

    def improved(review: SamplingReview) -> SamplingDecision:
        assert review.response is not None
        changed = replace(review.response, content=t.TextContent(text="fresh"))
        return SamplingDecision(allow=True, response=changed)

    at = HostRequestHandler(sampling=desk(one, review=Reviewer(edited, improved)))
    async with opened({"notes": sampling(era)}, tmp_path) as host:
        assert await call(host, at, "notes/summarize", text="milk") == "fresh"
    assert one.requests[0].messages[0].text == "bread"
    assert one.requests[0].max_tokens == 7


@ERAS
async def test_sampling_is_not_declared_where_every_request_would_be_denied(era: str, tmp_path: Path) -> None:
    one = model()
    at = HostRequestHandler(sampling=desk(one))
    async with opened({"notes": sampling(era)}, tmp_path) as host:
        try:
            told = await call(host, at, "notes/summarize", text="milk")
        except RequestFailed as failure:
            told = failure.message
    # A stateless server's question is refused; one that shook hands was never told of sampling, and its tool fails.
    assert "sampling" in told.lower()
    assert at.capabilities == {}
    assert one.requests == []


@ERAS
async def test_waiting_for_the_person_stops_the_clock(era: str, tmp_path: Path) -> None:
    clock = LoopClock()

    async def slow(review: SamplingReview) -> SamplingDecision:
        await clock.advance(8)
        return YES

    at = HostRequestHandler(sampling=desk(review=slow))
    settings = {"timeout": 4, "total_timeout": 4}
    async with opened({"notes": sampling(era)}, tmp_path, settings=settings) as host:
        assert await call(host, at, "notes/summarize", text="milk") == "it is sour"


# --- who decides ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("review", "policy", "words", "by"),
    [
        pytest.param(None, Policy(), 'kind = "sampling"', "policy", id="nobody-and-no-rule"),
        pytest.param(Reviewer(YES), DENIED, "does not allow|rule", "policy", id="a-rule-against-it"),
        pytest.param(Reviewer(NO), Policy(), "denied the request", "user", id="no"),
        pytest.param(Reviewer(None), Policy(), "did not answer", "user", id="no-answer"),
        pytest.param(Reviewer(YES, NO), Policy(), "denied the response", "user", id="no-to-the-answer"),
    ],
)
async def test_a_denial_gives_the_reason_to_the_user_and_not_to_the_server(
    review: SamplingPrompter | None, policy: Policy, words: str, by: str
) -> None:
    notices, told = list[str](), list[ReviewOutcome]()
    at = desk(review=review, policy=policy, notice=notices.append, tell=told.append)
    with pytest.raises(RequestFailed) as failure:
        await at.answer(entry(), asked_for(), new_session())
    assert (failure.value.code, failure.value.message) == (-1, "User rejected sampling request")
    assert any(word in notices[0] for word in words.split("|"))
    assert [(each.allowed, each.by) for each in told] == [(False, by)]


async def test_a_review_that_fails_is_a_no() -> None:
    async def broken(review: SamplingReview) -> SamplingDecision:
        raise KeyError("oops")

    one, notices = model(), list[str]()
    with pytest.raises(RequestFailed, match="User rejected"):
        await desk(one, review=broken, notice=notices.append).answer(entry(), asked_for(), new_session())
    assert one.requests == []
    assert "KeyError" in notices[0]


async def test_a_review_without_an_answer_in_time_is_denied() -> None:
    async def silent(review: SamplingReview) -> SamplingDecision:
        await asyncio.Event().wait()
        return YES

    told = list[ReviewOutcome]()
    at = desk(review=silent, review_seconds=0.01, tell=told.append)
    with pytest.raises(RequestFailed, match="User rejected"):
        await at.answer(entry(), asked_for(), new_session())
    assert told[0].by == "deadline"


async def test_a_yes_for_the_session_holds_for_this_server_and_session_alone() -> None:
    always = SamplingDecision(allow=True, remember="session")
    review, session = Reviewer(always, always), new_session()
    at = desk(review=review)
    await at.answer(entry("notes"), asked_for(), session)
    await at.answer(entry("notes"), asked_for("other"), session)
    assert len(review.shown) == 2
    await at.answer(entry("other"), asked_for(), session)
    await at.answer(entry("notes"), asked_for(), new_session())
    assert [shown.server for shown in review.shown] == ["notes", "notes", "other", "other", "notes", "notes"]


async def test_a_yes_for_requests_of_the_session_still_has_answers_reviewed() -> None:
    review, session = Reviewer(SamplingDecision(allow=True, remember="session")), new_session()
    at = desk(review=review)
    await at.answer(entry(), asked_for(), session)
    await at.answer(entry(), asked_for(), session)
    assert [shown.stage for shown in review.shown] == ["request", "response", "response"]


async def test_a_changed_request_is_judged_again() -> None:
    policy = parse_policy(
        '[[rule]]\neffect = "deny"\nkind = "sampling"\nwhen = [{ arg = "/maxTokens", min = 500 }]\n', file="p.toml"
    )
    one = model()
    dearer = SamplingDecision(allow=True, request=asked_for(maxTokens=900))
    with pytest.raises(RequestFailed, match="User rejected"):
        await desk(one, review=Reviewer(dearer), policy=policy).answer(entry(), asked_for(), new_session())
    assert one.requests == []


async def test_the_outcome_of_a_request_is_reported_with_model_and_tokens() -> None:
    told = list[ReviewOutcome]()
    one = model({"says": "yes", "usage": Usage(11, 3)})
    await desk(one, review=Reviewer(), tell=told.append).answer(entry(), asked_for(), new_session())
    assert [(each.allowed, each.by, each.note) for each in told] == [
        (True, "user", "scripted:one: 11 tokens in, 3 out")
    ]


# --- what is shown ----------------------------------------------------------------------------------------------------


async def test_a_review_shows_the_request_whole_and_what_it_may_cost() -> None:
    review = Reviewer()
    question = asked_for(systemPrompt="Be brief", maxTokens=90_000, metadata={"a": 1}, temperature=0.5)
    at = desk(model(temperature=False, output_tokens=1_000_000), review=review)
    await at.answer(entry(), question, new_session())
    shown = review.shown[0]
    assert (shown.request, shown.command) == (question, "notes-server")
    assert shown.max_tokens == 4096
    assert shown.most_cost == pytest.approx((shown.input_tokens + 2 * 4096) / 1_000_000)
    assert (shown.requests_left, shown.tokens_left) == (9, 100_000)
    assert shown.notes == (
        "it asked for 90000 tokens, and gets 4096 at most",
        "the model does not support a temperature, so its default is used",
        "its metadata is not forwarded",
    )


# --- which model ------------------------------------------------------------------------------------------------------

FAST = Traits(speed=0.9, intelligence=0.3, input_price=1.0, output_price=1.0)
CLEVER = Traits(speed=0.2, intelligence=1.0, input_price=9.0, output_price=9.0)
UNPRICED = Traits(speed=0.5, intelligence=0.5)


@pytest.mark.parametrize(
    ("wishes", "chosen", "why"),
    [
        pytest.param(None, "a:fast", ("it is the first in the user's order",), id="no-wishes"),
        pytest.param(
            {"hints": [{"name": "gpt"}, {"name": "CLEV"}]},
            "a:clever",
            ("the hint 'gpt' is in no name", "the hint 'CLEV' is in its name"),
            id="second-hint",
        ),
        pytest.param({"hints": [{"name": "a:"}, {"name": "clever"}]}, "a:fast", None, id="first-hint-wins"),
        pytest.param({"hints": [{}, {"name": ""}]}, "a:fast", None, id="empty-hints"),
        pytest.param({"intelligencePriority": 1}, "a:clever", None, id="intelligence"),
        pytest.param({"speedPriority": 1}, "a:fast", None, id="speed"),
        pytest.param({"costPriority": 1}, "a:fast", None, id="cost"),
        pytest.param({"costPriority": 0.1, "intelligencePriority": 0.9}, "a:clever", None, id="both"),
        pytest.param({"hints": [{"name": "odd"}], "costPriority": 1}, "b:odd", None, id="hint-before-priority"),
        pytest.param({"costPriority": 0, "speedPriority": 0}, "a:fast", None, id="nothing-matters"),
    ],
)
def test_wishes_are_mapped_to_a_model(wishes: Any, chosen: str, why: tuple[str, ...] | None) -> None:
    models = {"a:fast": FAST, "a:clever": CLEVER, "b:odd": UNPRICED}
    choice = choose_model(models, wishes and msgspec.convert(wishes, t.ModelPreferences))
    assert choice.name == chosen
    assert why in (None, choice.why)


def test_wishes_are_written_for_people() -> None:
    wishes = t.ModelPreferences(hints=[t.ModelHint(name="sonnet")], cost_priority=0.3, speed_priority=1)
    assert preferences_text(wishes) == "hints: sonnet; cost 0.3, speed 1"


async def test_a_server_has_the_models_of_its_list_alone() -> None:
    review, cheap, dear = Reviewer(), model(name="a:cheap"), model(name="a:dear")
    at = desk(dear, cheap, review=review)
    wishes = {"hints": [{"name": "dear"}]}
    await at.answer(entry(sampling={"models": ["a:ch*"]}), asked_for(modelPreferences=wishes), new_session())
    assert (review.shown[0].model, review.shown[0].models) == ("a:cheap", ("a:cheap",))
    assert dear.requests == []


async def test_a_model_of_a_list_is_opened_when_it_is_first_needed() -> None:
    opened_ones, late = list[str](), model(name="b:late")

    def opener(name: str) -> Model:
        opened_ones.append(name)
        return late

    models = SamplingModels(model(), opener=opener)
    at = SamplingHandler(models, Policy(), SamplingOptions(review=Reviewer()))
    await at.answer(entry(sampling={"models": ["b:late"]}), asked_for(), new_session())
    await at.answer(entry(sampling={"models": ["b:late"]}), asked_for(), new_session())
    assert opened_ones == ["b:late"]
    await at.aclose()
    assert late.closed


async def test_the_person_may_choose_another_model_of_those_it_may_have() -> None:
    one, two = model(name="a:one"), model(name="a:two")
    other = SamplingDecision(allow=True, model="a:two")
    await desk(one, two, review=Reviewer(other)).answer(entry(), asked_for(), new_session())
    assert (len(one.requests), len(two.requests)) == (0, 1)


async def test_a_model_that_it_may_not_have_cannot_be_chosen() -> None:
    one = model(name="a:one")
    other = SamplingDecision(allow=True, model="a:two")
    with pytest.raises(RequestFailed, match="User rejected"):
        await desk(one, review=Reviewer(other)).answer(entry(), asked_for(), new_session())
    assert one.requests == []


async def test_a_list_in_which_nothing_is_there_gives_no_model() -> None:
    notices = list[str]()
    at = desk(review=Reviewer(), notice=notices.append)
    with pytest.raises(RequestFailed, match="Sampling is not set up for this server"):
        await at.answer(entry(sampling={"models": ["x:*"]}), asked_for(), new_session())
    assert "no available model is allowed for it" in notices[0]


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_requests_in_a_minute_are_limited_by_server_also_those_that_are_denied() -> None:
    clock, review = Clock(), Reviewer(NO, NO)
    at = desk(review=review, limits=SamplingLimits(per_minute=2), clock=clock)
    with pytest.raises(RequestFailed, match="User rejected"):
        await at.answer(entry(), asked_for(), new_session())
    with pytest.raises(RequestFailed, match="User rejected"):
        await at.answer(entry(), asked_for(), new_session())
    with pytest.raises(RequestFailed, match="2 a minute is the limit; try again in 60 s"):
        await at.answer(entry(), asked_for(), new_session())
    assert len(review.shown) == 2
    await at.answer(entry("other"), asked_for(), new_session())
    clock.now += 60
    await at.answer(entry(), asked_for(), new_session())


async def test_tokens_in_an_hour_are_limited() -> None:
    clock = Clock()
    one = model({"says": "a", "usage": Usage(400, 500), "again": True})
    at = desk(one, review=Reviewer(), limits=SamplingLimits(tokens=1000, per_minute=100), clock=clock)
    await at.answer(entry(), asked_for(), new_session())
    await at.answer(entry(), asked_for(maxTokens=100), new_session())
    assert one.requests[1].max_tokens < 100
    with pytest.raises(RequestFailed, match="The hourly token limit of this server is used up"):
        await at.answer(entry(), asked_for(), new_session())
    clock.now += 3600
    await at.answer(entry(), asked_for(), new_session())


async def test_requests_at_once_are_limited() -> None:
    waiting, go = asyncio.Event(), asyncio.Event()

    async def slow(review: SamplingReview) -> SamplingDecision:
        waiting.set()
        await go.wait()
        return YES

    at = desk(review=slow, limits=SamplingLimits(concurrent=1))
    first = asyncio.create_task(at.answer(entry(), asked_for(), new_session()))
    await waiting.wait()
    with pytest.raises(RequestFailed, match="at once"):
        await at.answer(entry(), asked_for(), new_session())
    go.set()
    await first


@pytest.mark.parametrize(
    ("written", "scope", "limits"),
    [
        pytest.param(None, "user", SamplingLimits(), id="nothing"),
        pytest.param({"maxTokens": 9, "perMinute": 99}, "user", SamplingLimits(max_tokens=9, per_minute=99), id="user"),
        pytest.param({"max_tokens": 9}, "given", SamplingLimits(max_tokens=9), id="other-spelling"),
        pytest.param(
            {"maxTokens": 9, "perMinute": 99, "models": ["a:*"]},
            "project",
            SamplingLimits(max_tokens=9),
            id="a-project-only-narrows",
        ),
    ],
)
def test_the_limits_of_a_server_stand_in_its_entry(written: Any, scope: str, limits: SamplingLimits) -> None:
    assert limits_for(entry(scope=scope, sampling=written), SamplingLimits()) == limits


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({"maxTokns": 9}, id="unknown"),
        pytest.param({"maxTokens": "many"}, id="no-number"),
        pytest.param({"maxTokens": -1}, id="negative"),
        pytest.param([], id="no-object"),
    ],
)
async def test_limits_that_cannot_be_understood_give_nothing(written: Any) -> None:
    with pytest.raises(ConfigError, match="notes: sampling"):
        limits_for(entry(sampling=written), SamplingLimits())
    one = model()
    with pytest.raises(RequestFailed, match="not set up"):
        await desk(one, review=Reviewer()).answer(entry(sampling=written), asked_for(), new_session())
    assert one.requests == []


# --- content ----------------------------------------------------------------------------------------------------------


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """Write a message down."""
    return {"role": role, "content": list(blocks)}


IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
TEXT = {"type": "text", "text": "look"}
USE = {"type": "tool_use", "id": "c1", "name": "get weather", "input": {"city": "Oslo"}}
RESULT = {"type": "tool_result", "toolUseId": "c1", "content": [{"type": "text", "text": "rain"}]}
WEATHER = {"name": "get weather", "description": "Tell", "inputSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("block", "word"), [pytest.param(IMAGE, "images", id="image"), pytest.param(AUDIO, "audio", id="audio")]
)
async def test_what_the_model_cannot_take_is_refused_with_a_sentence(block: dict[str, Any], word: str) -> None:
    one = model(images=False, audio=False)
    with pytest.raises(RequestFailed, match=f"The model scripted:one does not support {word}"):
        await desk(one, review=Reviewer()).answer(
            entry(), asked_for(messages=[said("user", TEXT, block)]), new_session()
        )
    assert one.requests == []


async def test_a_model_that_can_take_it_is_preferred_to_the_first() -> None:
    blind, seeing = model(name="a:blind", images=False), model(name="a:seeing", images=True)
    question = asked_for(messages=[said("user", TEXT, IMAGE)])
    await desk(blind, seeing, review=Reviewer()).answer(entry(), question, new_session())
    assert seeing.requests[0].messages[0].content == (TextBlock("look"), ImageBlock(PIXEL, "image/png"))


async def test_tools_of_the_request_are_offered_and_their_calls_go_to_the_server() -> None:
    one = model({"calls": [{"tool": "get_weather_", "arguments": {"city": "Oslo"}}]})
    one._turns[0] = replace(one._turns[0], calls=(replace(one._turns[0].calls[0], tool=_wire_name(one)),))
    question = asked_for(tools=[WEATHER], toolChoice={"mode": "required"})
    result = await desk(one, review=Reviewer()).answer(entry(), question, new_session())
    assert one.requests[0].tool_choice == "any"
    assert isinstance(result.content, t.ToolUseContent)
    assert (result.content.name, result.content.input) == ("get weather", {"city": "Oslo"})
    assert result.stop_reason == "toolUse"


def _wire_name(one: ScriptedModel) -> str:
    from trunkline.host.chat.tool_schemas import schema_dialect
    from trunkline.host.upstreams.catalog.names import wire_name

    return wire_name("", "get weather", schema_dialect(one.traits.schemas).naming)


async def test_a_tool_that_the_request_does_not_have_cannot_be_called() -> None:
    one = model({"calls": [{"tool": "delete_all", "arguments": {}}]})
    with pytest.raises(RequestFailed, match="a tool that the request does not have"):
        await desk(one, review=Reviewer()).answer(entry(), asked_for(tools=[WEATHER]), new_session())


async def test_results_of_tools_go_to_the_model() -> None:
    one = model()
    talk = [said("user", TEXT), said("assistant", USE), said("user", RESULT)]
    await desk(one, review=Reviewer()).answer(entry(), asked_for(messages=talk, tools=[WEATHER]), new_session())
    assert one.requests[0].messages[2].content == (ToolResultBlock("c1", (TextBlock("rain"),)),)
    assert one.requests[0].messages[1].tool_uses[0].name == one.requests[0].tools[0].name


@pytest.mark.parametrize(
    ("talk", "words"),
    [
        pytest.param([], "there are no messages", id="nothing"),
        pytest.param([said("assistant", USE)], "Tool result missing in request", id="no-result"),
        pytest.param([said("assistant", USE), said("user", TEXT)], "Tool result missing in request", id="other-reply"),
        pytest.param([said("assistant", USE), said("user", RESULT, TEXT)], "Tool results mixed", id="mixed"),
        pytest.param([said("user", RESULT)], "has no matching call", id="result-of-nothing"),
        pytest.param([said("user", USE), said("user", RESULT)], "assistant messages", id="a-users-call"),
        pytest.param([said("assistant", USE, USE), said("user", RESULT)], "have the same id", id="one-id-twice"),
        pytest.param([said("user", {**IMAGE, "data": "no base64!"})], "not valid base64", id="no-base64"),
    ],
)
async def test_what_breaks_the_protocol_is_invalid(talk: list[Any], words: str) -> None:
    with pytest.raises(InvalidParams, match=words):
        await desk(review=Reviewer()).answer(entry(), asked_for(messages=talk), new_session())


async def test_loops_of_tools_are_bounded() -> None:
    once = [said("assistant", USE), said("user", RESULT)]
    at = desk(review=Reviewer(), limits=SamplingLimits(rounds=2))
    await at.answer(entry(), asked_for(messages=[said("user", TEXT), *once, *once]), new_session())
    with pytest.raises(RequestFailed, match="called tools 2 times"):
        await at.answer(entry(), asked_for(messages=[said("user", TEXT), *once, *once, *once]), new_session())


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("end", "endTurn"), ("length", "maxTokens"), ("stop_sequence", "stopSequence"), ("refusal", "refusal")],
)
async def test_the_stop_reason_uses_the_protocols_words(stop: str, reason: str) -> None:
    one = model({"says": "x", "stop": stop})
    result = await desk(one, review=Reviewer()).answer(entry(), asked_for(stopSequences=["."]), new_session())
    assert (result.stop_reason, result.model) == (reason, "one")
    assert one.requests[0].stop_sequences == (".",)


async def test_a_request_that_is_longer_than_the_window_is_refused() -> None:
    one = model(window_tokens=100)
    with pytest.raises(RequestFailed, match="too long for the model"):
        await desk(one, review=Reviewer()).answer(entry(), asked_for("long " * 200), new_session())


async def test_a_model_that_fails_is_the_users_business() -> None:
    notices = list[str]()
    one = model({"fails": "refused key"})
    with pytest.raises(RequestFailed) as failure:
        await desk(one, review=Reviewer(), notice=notices.append).answer(entry(), asked_for(), new_session())
    assert failure.value.message == "The model did not answer (refused key)"
    assert notices[0].startswith("scripted:one did not answer: ")


async def test_a_request_that_is_cancelled_stops_the_model() -> None:
    one = model({"says": "begin", "hangs": True})
    task = asyncio.create_task(desk(one, review=Reviewer()).answer(entry(), asked_for(), new_session()))
    await until(lambda: one.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.stopped == 1


# --- context ----------------------------------------------------------------------------------------------------------


def results() -> ServerResults:
    """Keep what two servers answered."""
    kept = ServerResults()
    kept.keep("notes", "read", t.CallToolResult(content=[t.TextContent(text="milk")]))
    kept.keep("bank", "balance", t.CallToolResult(content=[t.TextContent(text="1000 EUR")]))
    return kept


@pytest.mark.parametrize("asked", [None, "none"])
async def test_no_context_goes_along_by_default(asked: str | None) -> None:
    review, one, kept = Reviewer(SamplingDecision(allow=True, context=True)), model(), results()
    at = desk(one, review=review, results=lambda session, server: kept.text(server))
    await at.answer(entry(), asked_for(includeContext=asked), new_session())
    assert (review.shown[0].context, one.requests[0].system) == ("", None)


@pytest.mark.parametrize("asked", ["thisServer", "allServers"])
async def test_context_is_the_servers_own_and_needs_consent(asked: str) -> None:
    review, one, kept = Reviewer(SamplingDecision(allow=True, context=True)), model(), results()
    at = desk(one, review=review, results=lambda session, server: kept.text(server))
    await at.answer(entry(), asked_for(includeContext=asked, systemPrompt="Be brief"), new_session())
    assert one.requests[0].system == "Be brief\n\nWhat this server answered earlier:\n\nread:\nmilk"
    said_so = any("treated as thisServer" in note for note in review.shown[0].notes)
    assert said_so is (asked == "allServers")


async def test_context_is_not_included_without_consent() -> None:
    one, kept = model(), results()
    at = desk(one, review=Reviewer(), results=lambda session, server: kept.text(server))
    await at.answer(entry(), asked_for(includeContext="thisServer"), new_session())
    assert one.requests[0].system is None


async def test_context_never_goes_along_without_a_review() -> None:
    one, kept = model(), results()
    at = desk(one, policy=ALLOWED, results=lambda session, server: kept.text(server))
    await at.answer(entry(), asked_for(includeContext="allServers"), new_session())
    assert one.requests[0].system is None


def many_results() -> ServerResults:
    """Keep more, and longer ones, than there is room for."""
    kept = ServerResults()
    for number in range(20):
        kept.keep("a", f"t{number}", t.CallToolResult(content=[t.TextContent(text="x" * 9000)]))
    return kept


def test_results_are_kept_by_server_and_bounded() -> None:
    kept = many_results()
    kept.keep("b", "read", t.ReadResourceResult(contents=[t.ResourceContents(uri="f:1", text="emma")]))
    kept.keep("b", "quiet", t.CallToolResult(content=[]))
    assert kept.text("b") == "read:\nemma"
    assert kept.text("c") == ""
    assert kept.text("a").startswith("t12:\n")
    assert len(kept.text("a")) < 8 * 4100
