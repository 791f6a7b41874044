"""A program as the one in front: its callbacks hear and answer."""

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
from trunkline.host.upstreams.routing.channels import LocalChannel
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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"sampling": lambda _: ""}, ["sampling"], id="sampling"),
        pytest.param({"elicitation": lambda _: "", "roots": []}, ["elicitation", "roots"], id="both"),
    ],
)
def test_what_has_a_callback_can_be_asked(options: dict[str, Any], expected: list[str]) -> None:
    assert sorted(front(**options).capabilities) == expected


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


async def test_what_is_done_once_is_simply_done() -> None:
    program = front()

    async def later() -> int:
        return 2

    assert [await program.once("a", lambda: 1), await program.once("a", later)] == [1, 2]
    assert not program.did("a")
    assert (program.open, program.left) == (True, False)
