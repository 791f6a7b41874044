"""The host's policy holds at the gateway: what may not be used is not there, and what is judged is what is sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import trunkline.types as t
from tests.host.gateway.support import CELLS, FRONTS, NEW, OLD, PAIRS, allow, asked, fronted, on_stage, server
from tests.support import run_async
from trunkline import Client, Context, RequestFailed, Server, ToolError
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import Filters
from trunkline.host.gateway.sessions import GatewayOptions

DENY = '[[rule]]\nname = "no danger"\neffect = "deny"\nserver = "s"\ntool = "danger"\n'
ASK = parse_policy('[[rule]]\nname = "careful"\neffect = "ask"\nserver = "s"\ntool = "*"\n', file="policy.toml")
ONCE, SESSION, NO = "allow once", "allow for this session", "do not allow"


class Shelf:
    """A server that remembers what it was asked to do."""

    def __init__(self, revision: str) -> None:
        self.done: list[Any] = []
        self.server: Server = server("shelf", revision)
        self.server.add_tool(self.put)
        self.server.add_tool(self.danger)
        self.server.add_tool(self.ask)
        self.server.resource("note://1")(self.note)
        self.server.resource("secret://1")(self.secret)
        self.server.prompt(self.hello)
        self.server.prompt(self.curse)

    async def put(self, value: dict[str, Any]) -> str:
        """Put something."""
        self.done.append(value)
        return "put"

    async def danger(self) -> str:
        """Do harm."""
        self.done.append("danger")
        return "harm"

    async def ask(self, ctx: Context) -> str:
        """Ask a question of its own."""
        answer = (await ctx.elicit("Name?", str)).data
        self.done.append(answer)
        return str(answer)

    async def note(self) -> str:
        return "note"

    async def secret(self) -> str:
        self.done.append("secret")
        return "secret"

    async def hello(self) -> str:
        return "hello"

    async def curse(self) -> str:
        self.done.append("curse")
        return "curse"


async def _refusal(client: Client, method: str, params: dict[str, Any]) -> tuple[int, str, str]:
    with pytest.raises(RequestFailed) as refused:
        await client.request(method, params)
    error = refused.value
    return error.code, error.message, json.dumps(error.data)


@PAIRS
@pytest.mark.parametrize(
    ("rule", "method", "member", "denied", "unknown"),
    [
        pytest.param('tool = "danger"', "tools/call", "name", "s__danger", "s__dangeR", id="tool"),
        pytest.param('uri = "secret://*"', "resources/read", "uri", "secret://s/1", "secret://s/2", id="resource"),
        pytest.param('prompt = "curse"', "prompts/get", "name", "s__curse", "s__none", id="prompt"),
    ],
)
async def test_what_is_denied_is_not_listed_and_answered_like_what_is_not_there(
    channel: str, upstream: str, rule: str, method: str, member: str, denied: str, unknown: str, tmp_path: Path
) -> None:
    shelf = Shelf(upstream)
    policy = allow("s", more=f'[[rule]]\neffect = "deny"\nserver = "s"\n{rule}\n')
    async with fronted({"s": shelf.server}, tmp_path, channel, policy=policy) as client:
        listed = [prompt.name for prompt in await client.list_prompts()]
        listed += [tool.name for tool in await client.list_tools()]
        listed += [resource.uri for resource in await client.list_resources()]
        refusals = [await _refusal(client, method, {member: name}) for name in (denied, unknown)]
    assert denied not in listed
    assert [str(part).replace(unknown, denied) for part in refusals[1]] == list(map(str, refusals[0]))
    assert shelf.done == []


BY_ARGUMENT = """[[rule]]
name = "small only"
effect = "deny"
server = "s"
tool = "put"
when = [{ arg = "/value/size", min = 10 }]
"""


@PAIRS
@pytest.mark.parametrize(
    ("message", "told"),
    [
        pytest.param('message = "Smaller, please."', "Smaller, please.", id="message"),
        pytest.param("", "The policy of this host does not allow s/put.", id="no message"),
    ],
)
async def test_a_call_denied_for_its_arguments_says_no_more_than_the_rule_wants_told(
    channel: str, upstream: str, message: str, told: str, tmp_path: Path
) -> None:
    shelf = Shelf(upstream)
    policy = allow("s", more=f"{BY_ARGUMENT}{message}\n")
    async with fronted({"s": shelf.server}, tmp_path, channel, policy=policy) as client:
        assert (await client.call_tool("s__put", {"value": {"size": 1}})).text == "put"
        refused = await client.call_tool("s__put", {"value": {"size": 11}}, raise_on_error=False)
    assert (refused.is_error, refused.text) == (True, told)
    assert shelf.done == [{"size": 1}]


# --- what is judged is what is sent ----------------------------------------------------------------------------------


TWO_READINGS = [
    '{"value":{"size":11},"value":{"size":1}}',
    '{"value":{"size":1},"value":{"size":11}}',
    '{"value":{"size":11,"size":1}}',
    '{"value":{"size":1,"size":11}}',
    '{"value":{"size":1,"\\u0073ize":11}}',
    '{"Value":{"size":11},"value":{"size":1}}',
    '{"value":{"size":1,"Size":11}}',
    '{"value":{"size":1.0}}',
    '{"value":{"size":1e400}}',
    '{"value":{"size":11.0}}',
    '{"value":{"size":"11"}}',
]


@PAIRS
async def test_members_given_twice_mean_the_same_to_policy_and_server(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    """Whatever the server got, the policy would have allowed that very thing."""
    shelf = Shelf(upstream)
    policy = allow("s", more=BY_ARGUMENT)
    async with fronted({"s": shelf.server}, tmp_path, channel, policy=policy) as client:
        calls = [t.CallToolRequestParams(name="s__put", arguments=msgspec.Raw(each.encode())) for each in TWO_READINGS]
        await asyncio.gather(*(client.forward("tools/call", call) for call in calls), return_exceptions=True)
    assert shelf.done
    assert [value for value in shelf.done if not _is_small(value.get("size"))] == []


def _is_small(size: Any) -> bool:
    return not isinstance(size, int | float) or size < 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-20, 20) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.lists(st.tuples(st.sampled_from(["size", "a"]), inner), max_size=4),
    max_leaves=6,
)


def _written(value: Any) -> str:
    """Write JSON in which members may stand twice: a list of pairs is an object."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return "{" + ",".join(f"{json.dumps(name)}:{_written(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)


DOCUMENTS = st.lists(st.tuples(st.sampled_from(["value", "size"]), JSON), min_size=1, max_size=4)


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(documents=st.lists(DOCUMENTS, min_size=10, max_size=20))
def test_the_server_sees_what_the_policy_saw(documents: list[list[tuple[str, Any]]], tmp_path: Path) -> None:
    judged: list[Any] = []
    sent: list[Any] = []
    made = Server("any")

    class Judging(Policy):
        """Allows everything, and remembers what it saw."""

        __slots__ = ()

        def decide(self, act: Any, now: float | None = None) -> Any:
            judged.append(act.arguments)
            return super().decide(act, now)

    @made.tool(output_schema=None)
    async def put(value: Any = None, size: Any = None) -> str:
        """Put."""
        return ""

    async def see(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            sent.append(msgspec.json.decode(request.params.arguments))
        return await call_next(request)

    made.add_middleware(see)
    written = list(map(_written, documents))

    async def main() -> None:
        async with fronted({"s": made}, tmp_path, policy=Judging(allow("s").rules)) as client:
            for text in written:
                params = t.CallToolRequestParams(name="s__put", arguments=msgspec.Raw(text.encode()))
                await client.forward("tools/call", params)

    run_async(main())
    assert judged == sent == list(map(msgspec.json.decode, written))


# --- asking for consent ----------------------------------------------------------------------------------------------


@FRONTS
async def test_without_a_prompt_a_call_is_denied_and_the_rule_to_add_is_named(channel: str, tmp_path: Path) -> None:
    shelf = Shelf(NEW)
    async with fronted({"s": shelf.server}, tmp_path, channel, policy=ASK) as client:
        result = await client.call_tool("s__danger", raise_on_error=False)
    assert result.is_error
    assert result.text == (
        "s/danger needs approval (rule 'careful' (policy.toml:1) requires approval), and the client connected "
        "to this gateway cannot be asked (it did not declare elicitation). Allow it: "
        'change the effect of that rule to "allow", or make the call where you can be asked'
    )
    assert shelf.done == []


class User:
    """A user in front of the gateway, who answers what a list says."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[t.ElicitRequestParams] = []

    def __call__(self, question: t.ElicitRequestParams) -> Any:
        self.asked.append(question)
        answer = self.answers.pop(0)
        return {"decision": answer} if answer in (ONCE, SESSION, NO) else answer


@PAIRS
async def test_the_client_in_front_is_asked_for_consent(channel: str, upstream: str, tmp_path: Path) -> None:
    shelf, user = Shelf(upstream), User(ONCE)
    async with fronted({"s": shelf.server}, tmp_path, channel, policy=ASK, elicitation=user) as client:
        assert (await client.call_tool("s__danger")).text == "harm"
    (question,) = user.asked
    assert "'danger' of server 's'" in question.message
    assert "careful" in question.message
    assert shelf.done == ["danger"]


@PAIRS
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (t.ElicitResult(action="decline"), "the client declined s/danger"),
        ({"decision": NO}, "the client declined s/danger"),
        (t.ElicitResult(action="cancel"), "the client cancelled the question about s/danger without an answer"),
    ],
    ids=["decline", "no", "cancel"],
)
async def test_each_answer_but_a_yes_is_a_no_of_its_own(
    channel: str, upstream: str, answer: Any, said: str, tmp_path: Path
) -> None:
    shelf, trail = Shelf(upstream), tmp_path / "audit.jsonl"
    async with fronted(
        {"s": shelf.server}, tmp_path, channel, policy=ASK, audit=trail, elicitation=lambda _: answer
    ) as client:
        with pytest.raises(ToolError, match=said):
            await client.call_tool("s__danger")
    assert shelf.done == []
    notes = [json.loads(line).get("note") or "" for line in trail.read_text().splitlines()]
    assert [note for note in notes if note.startswith(said)]


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept", "content": {"decision": "maybe"}},
        {"action": "accept", "content": {"decision": "always allow this tool"}},
        {"action": "accept", "content": {"decision": ["allow once"]}},
        {"action": "accept", "content": {}},
        {"action": "accept"},
        {"action": "accept", "content": {"decision": True}},
    ],
    ids=["unknown", "not offered", "list", "empty", "no content", "boolean"],
)
async def test_an_answer_that_fits_no_choice_is_a_no(answer: Any, tmp_path: Path) -> None:
    """Our own client would not send such answers, so they are put on the wire by hand."""
    shelf = Shelf(OLD)
    async with fronted(
        {"s": shelf.server}, tmp_path, NEW, policy=ASK, elicitation=lambda _: pytest.fail("asked")
    ) as client:
        params, question = await asked(client, "s__danger")
        raw = msgspec.Raw(msgspec.json.encode(answer))
        result, _ = await client.forward(
            "tools/call",
            replace(params, input_responses={"consent": raw}, request_state=question.request_state),
        )
    assert (result.is_error, shelf.done) == (True, [])
    said = "the answer to the question about s/danger does not fit it: the client chose nothing that was offered"
    assert result.content[0].text.startswith(said)


@PAIRS
async def test_a_client_that_fails_to_ask_is_told_so(channel: str, upstream: str, tmp_path: Path) -> None:
    def broken(question: t.ElicitRequestParams) -> Any:
        raise RequestFailed("no window", code=-32050)

    shelf = Shelf(upstream)
    async with fronted({"s": shelf.server}, tmp_path, channel, policy=ASK, elicitation=broken) as client:
        if channel == NEW:
            # Nothing is sent back in this era: the client's own call ends.
            with pytest.raises(RequestFailed, match="no window"):
                await client.call_tool("s__danger")
        else:
            with pytest.raises(ToolError, match="could not be asked: the client answered with error -32050"):
                await client.call_tool("s__danger")
    assert shelf.done == []


async def test_a_client_that_does_not_answer_is_told_so(tmp_path: Path) -> None:
    async def silent(question: t.ElicitRequestParams) -> Any:
        await asyncio.Event().wait()

    shelf = Shelf(OLD)
    async with fronted(
        {"s": shelf.server}, tmp_path, OLD, policy=ASK, consent_seconds=0.05, elicitation=silent
    ) as client:
        with pytest.raises(ToolError, match=r"about s/danger was not answered within 0\.05 s"):
            await client.call_tool("s__danger")
    assert shelf.done == []


# --- how long a yes holds --------------------------------------------------------------------------------------------

READS = t.ToolAnnotations(read_only_hint=True)


def library(era: str) -> Server:
    """Make a server with two tools that read and one that writes."""
    made = server("library", era)

    async def look() -> str:
        return "look done"

    async def lists() -> str:
        return "list done"

    async def burn() -> str:
        return "burn done"

    made.tool(annotations=READS)(look)
    made.tool(name="list", annotations=READS)(lists)
    made.tool(burn)
    return made


def choices(question: t.ElicitRequestParams) -> list[str]:
    """Give what can be chosen."""
    assert question.requested_schema is not None
    found: list[str] = question.requested_schema["properties"]["decision"]["enum"]
    return found


SESSION_WIDE = "allow all 3 tools of s for this session"
READING = "always allow all 2 read-only tools of s"


@FRONTS
async def test_what_outlives_the_session_is_offered_only_to_the_users_own_client(channel: str, tmp_path: Path) -> None:
    offered = []

    def decline(question: t.ElicitRequestParams) -> Any:
        offered.append(choices(question))
        assert ("Read-only tools of 's': list, look" in question.message) is (READING in offered[-1])
        return t.ElicitResult(action="decline")

    for own in (False, True):
        options = GatewayOptions(own_user=own)
        async with fronted(
            {"s": library(NEW)}, tmp_path, channel, policy=ASK, gateway=options, elicitation=decline
        ) as client:
            await client.call_tool("s__look", raise_on_error=False)
    assert offered == [
        [ONCE, SESSION, SESSION_WIDE, NO],
        [ONCE, SESSION, "always allow this tool", READING, SESSION_WIDE, NO],
    ]


@PAIRS
async def test_everything_of_a_server_is_allowed_for_the_session(channel: str, upstream: str, tmp_path: Path) -> None:
    seen: list[str] = []

    def once_for_all(question: t.ElicitRequestParams) -> Any:
        seen.append(question.message)
        return {"decision": SESSION_WIDE} if SESSION_WIDE in choices(question) else {"decision": NO}

    async with fronted(
        {"s": library(upstream), "other": library(upstream)}, tmp_path, channel, policy=ASK, elicitation=once_for_all
    ) as client:
        for name in ("look", "list", "burn"):
            assert (await client.call_tool(f"s__{name}")).text == f"{name} done"
        # It is about this server alone: another is asked about by its own name.
        refused = await client.call_tool("other__look", raise_on_error=False)
    assert (len(seen), refused.is_error) == (2, True)
    assert "Tools of 's': burn, list, look" in seen[0]


async def test_what_a_profile_hides_is_not_named_in_a_question(tmp_path: Path) -> None:
    seen: list[tuple[str, list[str]]] = []

    def decline(question: t.ElicitRequestParams) -> Any:
        seen.append((question.message, choices(question)))
        return t.ElicitResult(action="decline")

    denying = parse_policy(
        '[[rule]]\neffect = "ask"\nserver = "s"\ntool = "*"\n[[rule]]\neffect = "deny"\nserver = "s"\ntool = "burn"\n',
        file="policy.toml",
    )
    options = GatewayOptions(tools=Filters(deny=("list",)))
    async with fronted(
        {"s": library(NEW)}, tmp_path, OLD, policy=denying, gateway=options, elicitation=decline
    ) as client:
        await client.call_tool("s__look", raise_on_error=False)
    ((message, offered),) = seen
    assert "Tools of 's': look" in message
    assert not {"list", "burn"} & set(message.split())
    assert "allow the tool of s for this session" in offered


@PAIRS
async def test_consent_for_a_session_holds_for_that_session_alone(channel: str, upstream: str, tmp_path: Path) -> None:
    shelf, one, two = Shelf(upstream), User(SESSION), User(NO)
    async with (
        on_stage({"s": shelf.server}, tmp_path, policy=ASK) as stage,
        stage.client(channel, elicitation=one) as client,
    ):
        await client.call_tool("s__danger")
        await client.call_tool("s__danger")
        async with stage.client(channel, elicitation=two) as other:
            refused = await other.call_tool("s__danger", raise_on_error=False)
        await client.call_tool("s__danger")
    assert (len(one.asked), len(two.asked)) == (1, 1)
    assert (shelf.done, refused.is_error) == (["danger"] * 3, True)


@CELLS
async def test_consent_for_a_session_survives_the_servers_own_question(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    shelf, user = Shelf(upstream), User(SESSION, "Ada", "Bea")
    async with fronted({"s": shelf.server}, tmp_path, channel, policy=ASK, elicitation=user) as client:
        results = [(await client.call_tool("s__ask")).text, (await client.call_tool("s__ask")).text]
    assert results == shelf.done == ["Ada", "Bea"]
    assert [question.message.partition(" ")[0] for question in user.asked] == ["May", "[s]", "[s]"]


@PAIRS
async def test_a_prompter_of_the_gateway_is_asked_instead_of_the_client(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    from trunkline.host.gateway.gateway import Gateway

    shelf = Shelf(upstream)
    seen: list[ApprovalRequest] = []

    async def prompter(question: ApprovalRequest) -> ApprovalAnswer:
        seen.append(question)
        return ApprovalAnswer(allow=True, arguments={"value": {"size": 2}})

    async with on_stage({"s": shelf.server}, tmp_path, policy=ASK) as stage:
        gateway = Gateway(stage.gateway.core, ASK, GatewayOptions(), prompter=prompter)
        async with Client(gateway, revision=channel, elicitation=lambda _: pytest.fail("asked")) as client:
            await client.call_tool("s__put", {"value": {"size": 1}})
        await gateway.aclose()
    assert [question.arguments for question in seen] == [{"value": {"size": 1}}]
    assert shelf.done == [{"size": 2}]
