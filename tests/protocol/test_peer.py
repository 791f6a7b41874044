"""The JSON-RPC peer: each row of its two tables, every transition in neither, and two peers that walk at random."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import LocalProtocolError
from trunkline.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
    decode,
    encode,
)
from trunkline.protocol.peer import (
    NotificationReceived,
    Peer,
    PeerEvent,
    ProgressReceived,
    RequestCancelled,
    RequestLost,
    RequestReceived,
    ResponseReceived,
    ResponseUnreadable,
)
from trunkline.types import ErrorObject, RequestId


def received(message: Message) -> Message:
    """Return a message as the other side reads it."""
    incoming = decode(encode(message))
    assert not isinstance(incoming, InvalidMessage | Batch)
    return incoming


def told(method: str, **params: Any) -> Message:
    """Create a notification as the other side reads it."""
    return received(Notification(method, params))


def sent(peer: Peer) -> list[Any]:
    """Return what a peer has queued."""
    return [outbound.message for outbound in peer.messages_to_send()]


def error_sent(peer: Peer) -> tuple[RequestId | None, int]:
    """Return the id and the code of the one error that a peer has queued."""
    (message,) = sent(peer)
    assert isinstance(message, ErrorResponse)
    return message.id, message.error.code


def serving(id: RequestId = 7, method: str = "m") -> Peer:
    """Create a peer that serves one request."""
    peer = Peer()
    peer.receive_message(Request(id, method))
    return peer


def waiting(method: str = "m") -> tuple[Peer, RequestId]:
    """Create a peer that waits for one answer."""
    peer = Peer()
    id = peer.new_id()
    peer.send_request(id, method)
    peer.messages_to_send()
    return peer, id


# --- what ends a request --------------------------------------------------------------------------------------------

ENDS_SERVING: dict[str, Callable[[Peer], Any]] = {
    "send_result": lambda peer: peer.send_result(7, {}),
    "send_error": lambda peer: peer.send_error(7, -32603, message="no"),
    "notifications/cancelled": lambda peer: peer.receive_message(told("notifications/cancelled", requestId=7)),
    "receive_hangup": lambda peer: peer.receive_hangup(),
}
ENDS_WAITING: dict[str, Callable[[Peer], Any]] = {
    "result or error": lambda peer: peer.receive_message(Response(1, msgspec.Raw(b"{}"))),
    "send_cancel": lambda peer: peer.send_cancel(1),
    "receive_eof": lambda peer: peer.receive_eof(),
}


@pytest.mark.parametrize("move", ENDS_SERVING)
def test_a_move_ends_a_request_being_served_which_cannot_be_answered_any_more(move: str) -> None:
    peer = serving()
    ENDS_SERVING[move](peer)
    assert not peer.serves(7)
    peer.messages_to_send()
    for answer in ("send_result", "send_error"):
        with pytest.raises(LocalProtocolError, match="request 7 is not being served"):
            ENDS_SERVING[answer](peer)
    assert isinstance(peer.receive_message(told("notifications/cancelled", requestId=7)), NotificationReceived)
    assert sent(peer) == []


@pytest.mark.parametrize("move", ENDS_WAITING)
def test_a_move_ends_a_request_that_waits_and_what_comes_later_is_dropped_and_counted(move: str) -> None:
    peer, id = waiting()
    ENDS_WAITING[move](peer)
    assert not peer.waits(id)
    peer.messages_to_send()
    with pytest.raises(LocalProtocolError, match="request 1 is not waiting"):
        peer.send_cancel(1)
    assert peer.receive_message(Response(id, msgspec.Raw(b"{}"))) is None
    assert peer.receive_message(progress(id, 1)) is None
    assert (sent(peer), peer.dropped) == ([], 2)


def test_an_unknown_request_can_neither_be_answered_nor_cancelled() -> None:
    with pytest.raises(LocalProtocolError, match="request 7 is not being served"):
        Peer().send_result(7, {})
    with pytest.raises(LocalProtocolError, match="'x' is not waiting"):
        Peer().send_cancel("x")


def test_an_id_cannot_be_used_again_while_it_waits() -> None:
    peer, id = waiting()
    with pytest.raises(LocalProtocolError, match="request 1 is already waiting"):
        peer.send_request(id, "n")
    assert sent(peer) == []


def test_a_value_that_is_not_a_message_is_rejected_by_the_peer() -> None:
    with pytest.raises(LocalProtocolError, match="not a message: Batch"):
        Peer().receive_message(Batch(()))  # type: ignore[arg-type]


# --- serving ---------------------------------------------------------------------------------------------------------


def test_a_request_is_an_event_with_its_raw_params() -> None:
    peer = Peer()
    event = peer.receive_message(received(Request("a", "m", {"b": 1})))
    assert isinstance(event, RequestReceived)
    assert (event.id, event.method, bytes(event.params or b"")) == ("a", "m", b'{"b":1}')


def test_an_answer_is_about_its_request() -> None:
    peer = serving()
    peer.send_result(7, {"a": 1})
    assert peer.messages_to_send() == [Outbound(Response(7, {"a": 1}), about=7)]


def test_an_error_answer_carries_its_data_only_if_given() -> None:
    peer = serving()
    peer.receive_message(Request(8, "m"))
    peer.send_error(7, -1, message="no")
    peer.send_error(8, -1, message="no", data=None)
    assert [encode(message) for message in sent(peer)] == [
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":8,"error":{"code":-1,"message":"no","data":null}}',
    ]


def test_a_second_request_with_an_id_in_flight_is_rejected_and_the_first_is_still_answered() -> None:
    peer = serving()
    assert peer.receive_message(Request(7, "n")) is None
    assert error_sent(peer) == (7, -32600)
    peer.send_result(7, {})
    assert sent(peer) == [Response(7, {})]


def test_an_id_may_come_again_once_it_was_answered() -> None:
    peer = serving()
    peer.send_result(7, {})
    assert peer.receive_message(Request(7, "m")) == RequestReceived(7, "m", None)


def test_the_number_1_and_the_text_1_are_served_side_by_side() -> None:
    peer = serving(1)
    assert peer.receive_message(Request("1", "m")) == RequestReceived("1", "m", None)
    peer.send_result("1", {})
    assert (peer.serves(1), peer.serves("1")) == (True, False)


def test_a_request_beyond_the_limit_is_rejected_until_another_is_answered() -> None:
    peer = Peer(max_in_flight=1)
    peer.receive_message(Request(1, "m"))
    assert peer.receive_message(Request(2, "m")) is None
    assert error_sent(peer) == (2, -32603)
    peer.send_result(1, {})
    assert peer.receive_message(Request(2, "m")) == RequestReceived(2, "m", None)


def test_a_malformed_request_is_answered_with_its_error() -> None:
    peer = Peer()
    assert peer.receive_message(InvalidMessage(-32700, "Parse error")) is None
    assert error_sent(peer) == (None, -32700)


def test_a_notification_is_an_event_and_is_never_answered() -> None:
    peer = Peer()
    assert peer.receive_message(Notification("notifications/x")) == NotificationReceived("notifications/x", None)
    assert sent(peer) == []


def test_a_notification_about_a_request_no_longer_served_is_not_sent() -> None:
    peer = serving()
    assert peer.send_notification("notifications/progress", about=7)
    peer.send_result(7, {})
    assert not peer.send_notification("notifications/progress", about=7)
    assert sent(peer) == [Notification("notifications/progress"), Response(7, {})]


def test_messages_leave_in_the_order_they_were_made() -> None:
    peer = serving()
    peer.send_notification("a")
    peer.send_request(peer.new_id(), "b", params=[1], about=7)
    peer.send_result(7, {})
    peer.send_notification("c", params={})
    assert peer.messages_to_send() == [
        Outbound(Notification("a")),
        Outbound(Request(1, "b", [1]), about=7),
        Outbound(Response(7, {}), about=7),
        Outbound(Notification("c", {})),
    ]
    assert peer.messages_to_send() == []


# --- being cancelled -------------------------------------------------------------------------------------------------


def test_a_cancelled_request_is_an_event_with_the_reason() -> None:
    peer = serving()
    assert peer.receive_message(told("notifications/cancelled", requestId=7, reason="bored")) == RequestCancelled(
        7, "bored"
    )


@pytest.mark.parametrize(
    "id", [pytest.param(8, id="unknown"), pytest.param("7", id="text for a number"), pytest.param(None, id="none")]
)
def test_a_cancellation_of_another_id_is_a_notification_like_any_other(id: RequestId | None) -> None:
    peer = serving()
    assert isinstance(peer.receive_message(told("notifications/cancelled", requestId=id)), NotificationReceived)
    assert peer.serves(7)


def test_initialize_cannot_be_cancelled() -> None:
    peer = serving(method="initialize")
    assert peer.receive_message(told("notifications/cancelled", requestId=7)) is None
    assert peer.serves(7)


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/progress"])
@pytest.mark.parametrize(
    "params",
    [
        pytest.param(None, id="absent"),
        pytest.param([7], id="list"),
        pytest.param({"requestId": 1.5, "progressToken": 1.5, "progress": 1}, id="fraction"),
        pytest.param({"requestId": True, "progressToken": True, "progress": 1}, id="true"),
        pytest.param({"requestId": [1], "progressToken": 1, "progress": "much"}, id="wrong types"),
    ],
)
def test_an_unreadable_notice_about_a_request_is_dropped_and_counted(method: str, params: Any) -> None:
    peer, _ = waiting()
    assert peer.receive_message(received(Notification(method, params))) is None
    assert (peer.dropped, sent(peer)) == (1, [])


def test_a_hangup_about_one_request_ends_that_one_only() -> None:
    peer = serving(1)
    peer.receive_message(Request(2, "m"))
    assert peer.receive_hangup(1) == [RequestCancelled(1, "the other side is gone")]
    assert peer.receive_hangup(1) == []
    assert [event.id for event in peer.receive_hangup()] == [2]


# --- asking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "ids"), [pytest.param("", [1, 2, 3], id="numbers"), pytest.param("x.", ["x.1", "x.2", "x.3"], id="text")]
)
def test_ids_count_up(prefix: str, ids: list[RequestId]) -> None:
    peer = Peer(prefix=prefix)
    assert [peer.new_id(), peer.new_id(), peer.new_id()] == ids


def test_a_result_or_an_error_ends_the_wait() -> None:
    peer, id = waiting()
    raw = msgspec.Raw(b"{}")
    assert peer.receive_message(Response(id, raw)) == ResponseReceived(id, raw, None)
    peer, id = waiting()
    error = ErrorObject(code=-1, message="no")
    assert peer.receive_message(ErrorResponse(id, error)) == ResponseReceived(id, None, error)


@pytest.mark.parametrize("id", [pytest.param("1", id="text for a number"), pytest.param(2, id="unknown")])
def test_an_answer_with_another_id_is_dropped_and_counted(id: RequestId) -> None:
    peer, own = waiting()
    assert peer.receive_message(Response(id, msgspec.Raw(b"{}"))) is None
    assert (peer.dropped, peer.waits(own)) == (1, True)


def test_an_error_about_no_request_is_dropped_and_counted() -> None:
    peer, own = waiting()
    assert peer.receive_message(ErrorResponse(None, ErrorObject(code=-32700, message="no"))) is None
    assert (peer.dropped, peer.waits(own), sent(peer)) == (1, True, [])


def test_a_malformed_answer_ends_the_wait() -> None:
    peer, id = waiting()
    assert peer.receive_message(InvalidMessage(-32600, "both", id, response=True)) == ResponseUnreadable(id, "both")
    assert not peer.waits(id)


@pytest.mark.parametrize("id", [None, 2, "1"])
def test_a_malformed_answer_to_nothing_is_dropped_and_never_answered(id: RequestId | None) -> None:
    peer, own = waiting()
    assert peer.receive_message(InvalidMessage(-32600, "both", id, response=True)) is None
    assert (peer.dropped, peer.waits(own), sent(peer)) == (1, True, [])


def test_a_withdrawn_request_is_cancelled_on_the_wire_with_its_id_for_the_link() -> None:
    peer, id = waiting()
    peer.send_cancel(id, reason="bored")
    (outbound,) = peer.messages_to_send()
    assert outbound.cancels == id
    assert encode(outbound.message) == (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"bored"}}'
    )


def test_a_request_can_be_withdrawn_without_a_word() -> None:
    peer, id = waiting("initialize")
    peer.send_cancel(id, notify=False)
    assert (sent(peer), peer.waits(id)) == ([], False)


def test_eof_about_one_request_loses_that_one_only() -> None:
    peer, first = waiting()
    second = peer.new_id()
    peer.send_request(second, "n")
    assert peer.receive_eof(first) == [RequestLost(first)]
    assert peer.receive_eof(first) == []
    assert peer.receive_eof() == [RequestLost(second)]


# --- progress --------------------------------------------------------------------------------------------------------


def progress(token: RequestId, amount: float) -> Message:
    """Create a progress notification as it is read."""
    return told("notifications/progress", progressToken=token, progress=amount)


def test_progress_of_a_waiting_request_is_an_event() -> None:
    peer, id = waiting()
    event = peer.receive_message(progress(id, 0.5))
    assert isinstance(event, ProgressReceived)
    assert (event.id, event.params.progress) == (id, 0.5)


@pytest.mark.parametrize("next", [0.5, 0.25, -1])
def test_progress_must_increase(next: float) -> None:
    peer, id = waiting()
    assert isinstance(peer.receive_message(progress(id, -5)), ProgressReceived)
    peer.receive_message(progress(id, 0.5))
    assert peer.receive_message(progress(id, next)) is None
    assert peer.dropped == 1
    assert isinstance(peer.receive_message(progress(id, 0.75)), ProgressReceived)


@pytest.mark.parametrize("token", [pytest.param("1", id="text for a number"), pytest.param(2, id="unknown")])
def test_progress_of_another_token_is_dropped(token: RequestId) -> None:
    peer, _ = waiting()
    assert peer.receive_message(progress(token, 1)) is None
    assert peer.dropped == 1


# --- two peers -------------------------------------------------------------------------------------------------------

SIDES = ("left", "right")
walks = st.lists(
    st.tuples(
        st.sampled_from(SIDES),
        st.sampled_from(["ask", "answer", "fail", "notify", "report", "cancel", "deliver", "deliver", "forge", "eof"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


class Walk:
    """Two peers with a pipe each way, and a record of the outcome of each request."""

    def __init__(self) -> None:
        """Start with nothing in flight."""
        self.peers = {side: Peer(max_in_flight=4) for side in SIDES}
        self.pipes: dict[str, list[bytes]] = {side: [] for side in SIDES}
        self.asked: dict[str, list[RequestId]] = {side: [] for side in SIDES}
        self.outcomes: Counter[tuple[str, RequestId]] = Counter()
        self.late: list[PeerEvent] = []
        self.counter = itertools.count(1)

    def run(self, walk: list[tuple[str, str, int]]) -> None:
        """Make all the transitions, deliver what is in flight, and end both sides."""
        for side, move, choice in walk:
            self.step(side, move, choice)
        for side in SIDES * 3:
            while self.pipes[side]:
                self.step(side, "deliver", 0)
        for side in SIDES:
            self.step(side, "eof", 0)

    def step(self, side: str, move: str, choice: int) -> None:
        """Make one transition of one side, if it is possible now, and send what it queued."""
        getattr(self, f"_{move}")(side, choice)
        other = SIDES[side == "left"]
        self.pipes[other] += [encode(outbound.message) for outbound in self.peers[side].messages_to_send()]

    def _ask(self, side: str, _: int) -> None:
        peer = self.peers[side]
        id = peer.new_id()
        peer.send_request(id, "m")
        self.asked[side].append(id)

    def _served(self, side: str, choice: int) -> RequestId | None:
        ids = [id for id in self.asked[SIDES[side == "left"]] if self.peers[side].serves(id)]
        return ids[choice % len(ids)] if ids else None

    def _answer(self, side: str, choice: int) -> None:
        if (id := self._served(side, choice)) is not None:
            self.peers[side].send_result(id, {})

    def _fail(self, side: str, choice: int) -> None:
        if (id := self._served(side, choice)) is not None:
            self.peers[side].send_error(id, -1, message="no")

    def _notify(self, side: str, choice: int) -> None:
        self.peers[side].send_notification("n", about=None if choice else 1)

    def _report(self, side: str, choice: int) -> None:
        id = choice + 1
        params = {"progressToken": id, "progress": next(self.counter)}
        self.peers[side].send_notification("notifications/progress", params=params, about=id)

    def _cancel(self, side: str, choice: int) -> None:
        ids = [id for id in self.asked[side] if self.peers[side].waits(id)]
        if ids:
            self.outcomes[side, ids[choice % len(ids)]] += 1
            self.peers[side].send_cancel(ids[choice % len(ids)])

    def _forge(self, side: str, choice: int) -> None:
        forged = [
            b'{"jsonrpc":"2.0","id":%d,"result":{}}' % (choice + 90),
            b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
            b'{"jsonrpc":"2.0","id":1,"method":"again"}',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}',
            b"nonsense",
        ]
        self.pipes[side].append(forged[choice])

    def _eof(self, side: str, _: int) -> None:
        lost = self.peers[side].receive_eof()
        self.outcomes.update((side, event.id) for event in lost)
        self.peers[side].receive_hangup()

    def _deliver(self, side: str, _: int) -> None:
        if not self.pipes[side]:
            return
        incoming = decode(self.pipes[side].pop(0))
        assert not isinstance(incoming, Batch)
        event = self.peers[side].receive_message(incoming)
        if isinstance(event, ResponseReceived | ResponseUnreadable):
            assert event.id is not None
            self.outcomes[side, event.id] += 1
        if isinstance(event, ProgressReceived) and self.outcomes[side, event.id]:
            self.late.append(event)


@given(walk=walks)
def test_two_peers_never_disagree_about_a_request_and_keep_nothing(walk: list[tuple[str, str, int]]) -> None:
    pair = Walk()
    pair.run(walk)
    every = [(side, id) for side in SIDES for id in pair.asked[side]]
    assert {key: pair.outcomes[key] for key in every} == dict.fromkeys(every, 1)
    assert len(every) == len(set(every))
    assert pair.late == []
    assert [pair.peers[side].receive_eof() for side in SIDES] == [[], []]
    assert [pair.peers[side].receive_hangup() for side in SIDES] == [[], []]
    assert [pair.peers[side].messages_to_send() for side in SIDES] == [[], []]
