"""Passing requests on: servers that ask without end, ask what nobody can be asked, or ask nonsense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import trunkline.types as t
from tests.host.gateway.support import FRONTS, NEW, OLD, fronted, on_stage, server
from tests.host.supervised import scripted
from trunkline import RequestFailed, Server
from trunkline.protocol.limits import Limits
from trunkline.server.request_state import RoundState, StateBinding
from trunkline.server.runtime import ServerRuntime

FORM = {"mode": "form", "message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}


async def nothing() -> str:
    """Do nothing."""
    return ""


#: Those whose state is written down, too, and was never sealed.
SCRIPTED: dict[Server, Any] = {}


@pytest.fixture(autouse=True)
def unsealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open the state of scripted servers by themselves."""
    seal = vars(ServerRuntime)["seal"].fget
    monkeypatch.setattr(
        ServerRuntime, "seal", property(lambda runtime: SCRIPTED.get(runtime.definition) or seal(runtime))
    )


class Scripted:
    """A stateless server whose answers to calls are written down; the last one is repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[t.CallToolRequestParams] = []
        self.server: Server = server("scripted", NEW)
        self.server.add_tool(nothing)
        self.server.table.handlers["tools/call"] = self.answer
        SCRIPTED[self.server] = self

    async def open(self, text: str, *, binding: StateBinding) -> RoundState:
        """Return an empty state for any text."""
        return RoundState()

    async def answer(self, exchange: Any, params: t.CallToolRequestParams) -> Any:
        """Give the next answer."""
        self.calls.append(params)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def asks(method: str, params: Any, *, state: str | None = "s") -> t.InputRequiredResult:
    """Make a result that asks one question."""
    question = t.InputRequest(method=method, params=Raw(msgspec.json.encode(params)))
    return t.InputRequiredResult(input_requests={"q": question}, request_state=state)


DONE = t.CallToolResult(content=[t.TextContent(text="done")])


@FRONTS
async def test_a_server_that_asks_without_end_is_given_up(channel: str, tmp_path: Path) -> None:
    endless = Scripted(asks("elicitation/create", FORM))
    async with fronted(
        {"s": endless.server}, tmp_path, channel, limits=Limits(rounds=4), elicitation=lambda _: {}
    ) as client:
        with pytest.raises(RequestFailed, match="rounds"):
            await client.call_tool("s__nothing")
    assert len(endless.calls) <= 5


@FRONTS
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(asks("sampling/createMessage", {"messages": [], "maxTokens": 1}), id="undeclared"),
        pytest.param(asks("tools/call", {"name": "x"}), id="no question at all"),
        pytest.param(asks("acme/secret", {}), id="unknown"),
        pytest.param(asks("elicitation/create", {"message": 7}), id="unreadable"),
        pytest.param(asks("elicitation/create", {"mode": "url", "message": "x", "url": "https://x.example"}), id="url"),
        pytest.param(t.InputRequiredResult(), id="nothing asked"),
    ],
)
async def test_a_server_that_asks_what_it_may_not_fails_its_call_unheard(
    channel: str, question: t.InputRequiredResult, tmp_path: Path
) -> None:
    hostile = Scripted(question)
    async with fronted({"s": hostile.server}, tmp_path, channel, elicitation=lambda _: pytest.fail("asked")) as client:
        with pytest.raises(RequestFailed):
            await client.call_tool("s__nothing")
    assert len(hostile.calls) == 1


@FRONTS
async def test_a_server_that_only_wants_to_be_asked_again_is(channel: str, tmp_path: Path) -> None:
    slow = Scripted(t.InputRequiredResult(request_state="one"), t.InputRequiredResult(request_state="two"), DONE)
    async with fronted({"s": slow.server}, tmp_path, channel) as client:
        assert (await client.call_tool("s__nothing")).text == "done"
    assert [each.request_state for each in slow.calls] == [None, "one", "two"]


@FRONTS
async def test_a_servers_state_comes_back_to_it_as_it_was(channel: str, tmp_path: Path) -> None:
    state = 'odd "state" \\ \x7f é 🙂 ' + "x" * 3000
    asking = Scripted(asks("elicitation/create", FORM, state=state), DONE)
    async with fronted({"s": asking.server}, tmp_path, channel, elicitation=lambda _: {}) as client:
        await client.call_tool("s__nothing")
    assert [each.request_state for each in asking.calls] == [None, state]
    assert list(asking.calls[1].input_responses or {}) == ["q"]


@FRONTS
async def test_many_questions_of_a_round_are_asked_together(channel: str, tmp_path: Path) -> None:
    questions = {
        f"q{number}": t.InputRequest(
            method="elicitation/create", params=Raw(msgspec.json.encode({**FORM, "message": f"Q{number}?"}))
        )
        for number in range(5)
    }
    asking = Scripted(t.InputRequiredResult(input_requests=questions, request_state="s"), DONE)
    heard: list[str] = []

    def answer(question: t.ElicitRequestParams) -> Any:
        heard.append(question.message)
        return {}

    async with fronted({"s": asking.server}, tmp_path, channel, elicitation=answer) as client:
        await client.call_tool("s__nothing")
    assert sorted(heard) == [f"[s] Q{number}?" for number in range(5)]
    assert sorted(asking.calls[1].input_responses or {}) == sorted(questions)


def asked_for(exchange: Any) -> list[str]:
    """Return what a server was told that it may ask for; the extensions are the host's own."""
    return sorted(set(exchange.admitted.caller.capabilities) - {"extensions"})


@pytest.mark.parametrize("share", ["auto", "shared", "session"])
async def test_how_connections_are_shared_is_the_entrys_word(share: Any, tmp_path: Path) -> None:
    seen: set[int] = set()
    made = server("s", NEW)
    made.add_tool(nothing)

    async def look(exchange: Any, params: Any) -> Any:
        seen.add(id(exchange.connection))
        return DONE

    made.table.handlers["tools/call"] = look
    entry = scripted("s", made, share=share)
    async with (
        on_stage({"s": entry}, tmp_path) as stage,
        stage.client(elicitation=lambda _: {}) as one,
        stage.client(elicitation=lambda _: {}) as two,
    ):
        await one.call_tool("s__nothing")
        await two.call_tool("s__nothing")
    assert len(seen) == {"auto": 1, "shared": 1, "session": 2}[share]


@pytest.mark.parametrize(
    ("revision", "asks", "declared"),
    [
        pytest.param(NEW, None, ["elicitation", "roots", "sampling"], id="everything"),
        pytest.param(NEW, ("elicitation",), ["elicitation"], id="one thing"),
        pytest.param(OLD, ("elicitation",), ["elicitation"], id="one thing, handshake"),
        pytest.param(OLD, (), [], id="nothing"),
    ],
)
async def test_a_server_sees_only_the_capabilities_it_may_use(
    asks: tuple[str, ...] | None, declared: list[str], revision: str, tmp_path: Path
) -> None:
    told: list[list[str]] = []
    made = server("s", revision)
    made.add_tool(nothing)

    async def look(exchange: Any, params: Any) -> Any:
        told.append(asked_for(exchange))
        return DONE

    made.table.handlers["tools/call"] = look
    entry = scripted("s", made, asks=asks)
    async with fronted(
        {"s": entry}, tmp_path, elicitation=lambda _: {}, sampling=lambda _: "x", roots=["/a"]
    ) as client:
        await client.call_tool("s__nothing")
    assert told == [declared]
