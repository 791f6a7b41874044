"""The headers of a client's requests, and edge cases of its link."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from tests.support import run_async
from tests.transports.http.scripted_http import Got, HttpScript, Status, Writer, stateless_script
from trunkline.errors import ConnectionLost, HttpError, LocalProtocolError
from trunkline.protocol.jsonrpc import Notification, Outbound, Request, Response
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.transports.http.client.headers import HeaderBuilder
from trunkline.transports.http.client.http_client import HttpClientOptions
from trunkline.transports.http.client.link import HttpLink
from trunkline.types import GetPromptRequestParams


class Taken:
    """A receiver that keeps what it is told."""

    def __init__(self, *, fails: bool = False) -> None:
        self.messages: list[Any] = []
        self.ends: list[tuple[Any, Any]] = []
        self._fails = fails

    def message_received(self, incoming: Any, origin: Any) -> None:
        self.messages.append(incoming)
        assert not self._fails

    def eof_received(self, error: Exception | None = None, *, about: Any = None) -> None:
        self.ends.append((type(error), about))


def heads() -> HeaderBuilder:
    made = HeaderBuilder({}, user_agent="x")
    made.set_revision(NEWEST)
    return made


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (GetPromptRequestParams(name="a"), "a"),
        ({"name": "a"}, "a"),
        (Raw(b'{"name":"a"}'), "a"),
        (Raw(b"{"), None),
        (Raw(b'{"name":3}'), None),
        ({}, None),
        (None, None),
    ],
    ids=["struct", "dict", "raw", "broken", "number", "empty", "none"],
)
def test_a_name_is_found_in_params_of_any_form(params: Any, name: str | None) -> None:
    assert heads().for_message(Request(1, "prompts/get", params)).get("Mcp-Name") == name


def test_headers_are_cached_by_name_until_revision_or_session_change() -> None:
    made = heads()
    requests = [Request(number, "prompts/get", {"name": str(number % 300)}) for number in range(601)]
    said = [made.for_message(request)["Mcp-Name"] for request in requests]
    assert said == [str(number % 300) for number in range(601)]
    assert made.for_message(requests[0]) is made.for_message(requests[300])
    made.session = "s"
    assert made.for_message(requests[0])["Mcp-Session-Id"] == "s"


def test_other_messages_have_at_most_a_method_header() -> None:
    assert heads().for_message(Notification("a/b"))["Mcp-Method"] == "a/b"
    assert "Mcp-Method" not in heads().for_message(Response(1, {}))


def exchanged(table: dict[str, Any], *batch: Outbound, receiver: Taken | None = None) -> tuple[Taken, HttpScript]:
    """Send a batch over a bare link and wait until nothing is in flight."""
    taken = receiver or Taken()

    async def main() -> None:
        async with script:
            link = HttpLink(HttpClientOptions(url=script.url), Limits())
            link.attach(taken)
            link.set_revision(NEWEST_HANDSHAKE)
            link.send(batch)
            await link.wait_ready()
            await link.drain()
            await link.wait_idle()
            await link.aclose()
            link.send(batch)
            await link.aclose()

    script = stateless_script(table)
    run_async(main())
    return taken, script


def test_a_receiver_that_fails_ends_its_request_alone() -> None:
    taken, _ = exchanged({}, Outbound(Request(1, "tools/list")), receiver=Taken(fails=True))
    assert taken.ends == [(ConnectionLost, 1)]


def test_an_error_status_with_a_truncated_body_is_still_reported() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.raw(b"HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nx")
        await writer.flush()
        writer.break_off()

    taken, _ = exchanged({"tools/list": reply}, Outbound(Request(1, "tools/list")))
    assert taken.ends == [(HttpError, 1)]


def test_messages_that_cannot_be_encoded_are_reported_and_the_rest_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = object(), Outbound(Request(3, "tools/list"))
    taken, script = exchanged({}, Outbound(Request(1, "x", bad)), Outbound(Notification("y", bad)), good)
    assert taken.ends == [(LocalProtocolError, 1)]
    assert "a Notification cannot be sent" in caplog.text
    assert script.names == ["tools/list"]


def test_answers_to_an_array_are_sent_as_an_array() -> None:
    _, script = exchanged({}, Outbound((Response(1, {}), Response(2, {}))))
    assert [got.body for got in script.requests] == [
        b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]'
    ]


def test_a_refused_notification_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    exchanged({"POST": Status(400, b"why not")}, Outbound(Notification("y")))
    assert "why not" in caplog.text
