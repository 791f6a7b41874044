"""What is in front of a server: a program whose callbacks hear and answer, the labels of questions, other gateways."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import trunkline.types as t
from trunkline.client.options import resolve_settings
from trunkline.client.request_handlers import RequestHandlers
from trunkline.errors import LocalProtocolError
from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.server_requests.handlers import CallbackRequestHandler
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.routing.channels import (
    GATEWAYS,
    LocalChannel,
    gateway_capability,
    label_pages,
    leads_back,
    with_server_label,
)
from trunkline.protocol.methods import embedded_requests
from trunkline.protocol.revisions import NEWEST

QUESTION = t.CreateMessageRequestParams(messages=[], max_tokens=3)


def front(**options: Any) -> LocalChannel:
    """Make a program in front, with these callbacks."""
    hearing = {name: options.pop(name) for name in ("on_progress", "on_log") if name in options}
    request_handler = CallbackRequestHandler(
        RequestHandlers(resolve_settings(options), NEWEST, embedded_requests(NEWEST))
    )
    return LocalChannel(request_handler, HostSession(now=lambda: 0.0), **hearing)


async def test_a_question_is_answered_by_its_callback() -> None:
    asked = await front(sampling=lambda params: f"max {params.max_tokens}").ask(
        "sampling/createMessage", QUESTION, key="x", entry=ServerEntry(name="s", source=Source("given"))
    )
    assert msgspec.json.decode(asked)["content"]["text"] == "max 3"


async def test_a_question_that_no_server_asks_is_a_mistake_of_ours() -> None:
    with pytest.raises(LocalProtocolError):
        await front(sampling=lambda _: "").ask("sampling/createMessage", QUESTION, key="x")


def test_progress_and_log_messages_go_to_the_callers_that_want_them() -> None:
    heard: list[object] = []
    hearing = front(on_progress=heard.append, on_log=heard.append)
    news = t.ProgressNotificationParams(progress_token=1, progress=0.5)
    message = t.LoggingMessageNotificationParams(level="info", data="x")
    hearing.progress(news)
    hearing.log(message)
    assert heard == [news, message]
    assert (hearing.wants_progress(), hearing.log_level) == (True, "info")


def test_a_program_without_callbacks_is_not_notified() -> None:
    deaf = front()
    deaf.progress(t.ProgressNotificationParams(progress_token=1, progress=0.5))
    deaf.log(t.LoggingMessageNotificationParams(level="info", data="x"))
    assert (deaf.wants_progress(), deaf.log_level) == (False, None)


# --- labels: a question names its server before any word of the server's own


@pytest.mark.parametrize("mode", ["form", "url", None])
def test_a_form_and_a_page_begin_with_the_server(mode: Any) -> None:
    asked = with_server_label(t.ElicitRequestParams(message="[bank] Name?", mode=mode, url="https://x.example"), "evil")
    assert (asked.message, asked.mode, asked.url) == ("[evil] [bank] Name?", mode, "https://x.example")


@pytest.mark.parametrize(("prompt", "rest"), [(None, ""), ("", ""), ("Short.", "\n\nShort.")])
def test_a_request_for_a_model_begins_with_the_server(prompt: str | None, rest: str) -> None:
    asked = with_server_label(t.CreateMessageRequestParams(messages=[], max_tokens=5, system_prompt=prompt), "s")
    assert asked.system_prompt == f"[s] This request is made by the MCP server s.{rest}"
    assert (asked.messages, asked.max_tokens) == ([], 5)


def test_what_no_one_reads_is_left_as_it_is() -> None:
    asked = t.RequestParams()
    assert with_server_label(asked, "s") is asked


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"elicitations": [{"message": "Pay", "url": "https://x"}], "more": 1},
            {"elicitations": [{"message": "[s] Pay", "url": "https://x"}], "more": 1},
        ),
        ({"elicitations": [{"message": 5}, "x"]}, {"elicitations": [{"message": 5}, "x"]}),
        ({"elicitations": "x"}, {"elicitations": "x"}),
        (None, None),
        ("x", "x"),
    ],
)
def test_the_pages_of_an_error_begin_with_the_server(data: Any, expected: Any) -> None:
    assert label_pages(data, "s") == expected


# --- loops: gateways are known by what they announce


def offering(experimental: Any) -> Offering:
    """Make what a server offers that declares this."""
    return Offering(revision="", capabilities={"experimental": experimental})


def test_a_gateway_names_itself_and_those_behind_it() -> None:
    behind = offering(gateway_capability("b", [offering(gateway_capability("c", []))]))
    assert gateway_capability("a", [behind, behind])[GATEWAYS] == {"ids": ["a", "b", "c"]}


@pytest.mark.parametrize(("own", "expected"), [("a", True), ("b", True), ("z", False)])
def test_a_server_leads_back_to_those_it_names(own: str, expected: bool) -> None:
    announced = gateway_capability("a", [offering(gateway_capability("b", []))])
    assert leads_back(own, offering(announced)) is expected


@pytest.mark.parametrize(
    "experimental",
    [None, 7, [], {}, {GATEWAYS: None}, {GATEWAYS: {}}, {GATEWAYS: {"ids": "a"}}, {GATEWAYS: {"ids": [1, None, []]}}],
    ids=str,
)
def test_malformed_announcements_name_no_gateway(experimental: Any) -> None:
    assert not leads_back("a", offering(experimental))
    assert gateway_capability("a", [offering(experimental)])[GATEWAYS] == {"ids": ["a"]}


def test_no_server_can_make_the_list_long() -> None:
    many = offering({GATEWAYS: {"ids": [f"g{number}" for number in range(10_000)]}})
    long = offering({GATEWAYS: {"ids": ["x" * 10_000]}})
    assert len(gateway_capability("a", [many] * 50)[GATEWAYS]["ids"]) == 64
    assert gateway_capability("a", [long])[GATEWAYS] == {"ids": ["a"]}
