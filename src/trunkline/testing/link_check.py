"""The check of a transport: what every Link must do.

Pass ``check_link`` a function that creates two connected links; it raises an ``AssertionError`` that names the
requirement that is violated. It is the first test of a new transport. ``check_link_members`` takes a function that
creates one link, and checks only what needs no other end: for transports whose ends differ, such as HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Raw

from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Batch, Incoming, Message, Notification, Outbound, Request, Response
from trunkline.protocol.revisions import REVISIONS
from trunkline.transports.link import Link
from trunkline.types import RequestId

__all__ = ["RecordingReceiver", "check_link", "check_link_members"]

MakePair = Callable[[], Awaitable[tuple[Link, Link]]]
MakeLink = Callable[[], Awaitable[Link]]

_LARGE = 2 * 1024 * 1024  # More than any pipe or socket buffers, so that a write has to wait.


class RecordingReceiver:
    """A receiver that records everything delivered to it."""

    def __init__(self) -> None:
        """Start empty."""
        self.incoming: list[Incoming] = []
        self.origins: list[Origin] = []
        self.ends: list[Exception | None] = []
        self._changed = asyncio.Event()

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Record a message."""
        self.incoming.append(incoming)
        self.origins.append(origin)
        self._changed.set()

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Record the end of the link."""
        self.ends.append(error)
        self._changed.set()

    async def until(self, enough: Callable[[RecordingReceiver], bool]) -> None:
        """Wait until the condition holds."""
        while not enough(self):
            self._changed.clear()
            await self._changed.wait()

    async def messages(self, count: int) -> list[Incoming]:
        """Wait for this many messages, or the end of the link."""
        await self.until(lambda seen: len(seen.incoming) >= count or bool(seen.ends))
        return self.incoming

    async def end(self) -> Exception | None:
        """Wait for the end of the link and return its error."""
        await self.until(lambda seen: bool(seen.ends))
        return self.ends[0]


async def check_link(make_pair: MakePair, *, seconds: float = 10.0) -> None:
    """Check the whole contract of a Link on fresh pairs; each check must finish within ``seconds``.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    for check in (
        _keeps_order_both_ways,
        _carries_a_burst,
        _ends_its_bursts,
        _carries_large_messages,
        _keeps_messages_whole,
        _survives_what_is_no_message,
        _delivers_what_was_sent_before_the_end,
        _closes_any_number_of_times,
        _takes_messages_after_the_end,
        _drains,
        _declares_what_it_can_do,
        _streams_before_a_response,
        _accepts_every_revision,
        _releases_only_a_stream_it_has,
        _waits_for_no_more_than_it_has,
    ):
        left, right = await make_pair()
        try:
            await _run(check.__name__, check(left, right), seconds)
        finally:
            await asyncio.gather(left.aclose(), right.aclose())


async def check_link_members(make_link: MakeLink, *, seconds: float = 10.0) -> None:
    """Check the promises of a Link that need no far end; each check must finish in the time given.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    for check in (_declares_members, _keeps_its_members_after_the_end):
        link = await make_link()
        try:
            await _run(check.__name__, check(link), seconds)
        finally:
            await link.aclose()


async def _run(name: str, check: Awaitable[None], seconds: float) -> None:
    name = name.strip("_").replace("_", " ")
    try:
        async with asyncio.timeout(seconds):
            await check
    except TimeoutError as error:
        raise AssertionError(f"a link {name}: not within {seconds} seconds") from error
    except AssertionError as error:
        raise AssertionError(f"a link {name}: {error}") from error


async def _keeps_order_both_ways(left: Link, right: Link) -> None:
    at_left, at_right = _attach(left, right)
    for number in range(50):
        left.send(_outbound(_note(number)))
        right.send(_outbound(_note(-number)))
    _expect(_numbers(await at_right.messages(50)) == list(range(50)), "messages were lost or reordered")
    _expect(_numbers(await at_left.messages(50)) == [-n for n in range(50)], "messages on the way back were reordered")


async def _carries_a_burst(left: Link, right: Link) -> None:
    _, at_right = _attach(left, right)
    left.send([Outbound(_note(number)) for number in range(1000)])
    for number in range(1000, 2000):
        left.send(_outbound(_note(number)))
    _expect(_numbers(await at_right.messages(2000)) == list(range(2000)), "a burst lost or reordered messages")


async def _ends_its_bursts(left: Link, right: Link) -> None:
    received, complete = RecordingReceiver(), asyncio.Event()
    tasks: set[asyncio.Task[object] | None] = set()

    def burst_ended() -> None:
        tasks.add(asyncio.current_task())
        if len(received.incoming) == 100:
            complete.set()

    if not right.deliver_in_bursts(burst_ended):
        return
    left.attach(RecordingReceiver())
    right.attach(received)
    left.send([Outbound(_note(number)) for number in range(100)])
    await complete.wait()
    _expect(tasks == {None}, "the end of a burst was reported inside a task")


async def _carries_large_messages(left: Link, right: Link) -> None:
    at_left, at_right = _attach(left, right)
    payload = Raw(b'"' + b"x" * _LARGE + b'"')
    left.send(_outbound(Request(1, "large", payload), _note(2)))
    right.send(_outbound(Response(1, payload), _note(3)))
    (large, *rest), (answer, *others) = await at_right.messages(2), await at_left.messages(2)
    _expect(isinstance(large, Request) and bytes(large.params) == bytes(payload), "a large request was changed")
    _expect(isinstance(answer, Response) and bytes(answer.result) == bytes(payload), "a large answer was changed")
    _expect(_numbers(rest) == [2] and _numbers(others) == [3], "the message after a large message was lost")


async def _keeps_messages_whole(left: Link, right: Link) -> None:
    at_left, at_right = _attach(left, right)
    left.send(_outbound(Request("a", "spread", Raw(b'{\n"text":\r\n"\xc3\xa9"}'))))
    right.send([Outbound((Response(1, Raw(b"1")), Response(2, Raw(b"2"))))])
    (spread,) = await at_right.messages(1)
    _expect(isinstance(spread, Request) and spread.id == "a", "a message with line breaks in it was split")
    (batch,) = await at_left.messages(1)
    _expect(isinstance(batch, Batch) and len(batch.items) == 2, "answers sent together did not arrive as one batch")


async def _survives_what_is_no_message(left: Link, right: Link) -> None:
    _, at_right = _attach(left, right)
    left.send(_outbound(Notification("broken", Raw(b"{oops")), _note(1)))
    await at_right.until(lambda seen: bool(seen.ends) or any(isinstance(one, Notification) for one in seen.incoming))
    _expect(not at_right.ends, "an invalid message ended the link")


async def _delivers_what_was_sent_before_the_end(left: Link, right: Link) -> None:
    at_left, at_right = _attach(left, right)
    left.send([Outbound(_note(number)) for number in range(100)])
    await left.aclose()
    await at_right.end()
    _expect(_numbers(at_right.incoming) == list(range(100)), "messages sent before the close were lost")
    await right.aclose()
    await asyncio.sleep(0)
    _expect(len(at_right.ends) == 1, "the other side was notified of the end more than once")
    _expect(len(at_left.ends) == 1, "the closing side was not notified of the end exactly once")


async def _closes_any_number_of_times(left: Link, right: Link) -> None:
    at_left, _ = _attach(left, right)
    async with asyncio.TaskGroup() as tasks:
        for link in (left, right, left, right):
            tasks.create_task(link.aclose())
    await left.aclose()
    _expect(len(at_left.ends) == 1, "closing several times reported several ends")


async def _takes_messages_after_the_end(left: Link, right: Link) -> None:
    _, at_right = _attach(left, right)
    await left.aclose()
    left.send(_outbound(_note(1)))
    await left.drain()
    await at_right.end()
    right.send(_outbound(_note(2)))
    await right.drain()
    _expect(not at_right.incoming, "a message sent after the close arrived")


async def _drains(left: Link, right: Link) -> None:
    _, at_right = _attach(left, right)
    payload = Raw(b'"' + b"x" * 10_000 + b'"')
    for number in range(500):
        left.send(_outbound(Request(number, "filler", payload)))
        await left.drain()
    _expect(len(await at_right.messages(500)) == 500, "messages were lost while draining")


async def _declares_what_it_can_do(left: Link, right: Link) -> None:
    _attach(left, right)
    await _declares_members(left)
    await _declares_members(right)


async def _streams_before_a_response(left: Link, right: Link) -> None:
    at_left, at_right = _attach(left, right)
    left.send(_outbound(Request(1, "work")))
    await at_right.messages(1)
    right.send([Outbound(_note(1), about=1), Outbound(Response(1, Raw(b"{}")), about=1)])
    # A link that cannot stream drops what comes before the response.
    received = await at_left.messages(2 if right.can_stream else 1)
    _expect(isinstance(received[-1], Response), "a response did not come, or not last")
    _expect(len(received) == 1 + right.can_stream, "can_stream does not say what the link does")


async def _accepts_every_revision(left: Link, right: Link) -> None:
    _, at_right = _attach(left, right)
    for number, revision in enumerate(REVISIONS):
        left.set_revision(revision)
        right.set_revision(revision)
        left.send(_outbound(_note(number)))
    _expect(
        _numbers(await at_right.messages(len(REVISIONS))) == list(range(len(REVISIONS))),
        "a message was lost when the revision was set",
    )


async def _releases_only_a_stream_it_has(left: Link, right: Link) -> None:
    at_left, at_right = _attach(left, right)
    left.send(_outbound(Request(1, "work")))
    await at_right.messages(1)
    released = right.release_stream()
    right.send([Outbound(Response(1, Raw(b"{}")), about=1)])
    if not released:
        _expect(isinstance((await at_left.messages(1))[0], Response), "release_stream was False and yet ended a stream")
    await right.aclose()
    _expect(not right.release_stream(), "release_stream was True after the end")


async def _waits_for_no_more_than_it_has(left: Link, right: Link) -> None:
    at_left, at_right = _attach(left, right)
    await asyncio.gather(left.wait_ready(), right.wait_ready(), left.wait_idle(), right.wait_idle())
    left.send(_outbound(Request(1, "work")))
    await at_right.messages(1)
    right.send([Outbound(Response(1, Raw(b"{}")), about=1)])
    await at_left.messages(1)
    await asyncio.gather(left.wait_idle(), right.wait_idle())
    await asyncio.gather(left.aclose(), right.aclose())
    await asyncio.gather(left.wait_ready(), right.wait_ready(), left.wait_idle(), right.wait_idle())


async def _declares_members(link: Link) -> None:
    _expect(isinstance(link, Link), "it does not inherit from Link")
    flags = (link.can_stream, link.can_receive_requests, link.independent_requests, link.ends_with_response)
    _expect(all(isinstance(flag, bool) for flag in flags), "what it can do is not said with True or False")
    _expect(link.pid is None or isinstance(link.pid, int), "pid is neither None nor a number")


async def _keeps_its_members_after_the_end(link: Link) -> None:
    recorder = RecordingReceiver()
    link.attach(recorder)
    for revision in REVISIONS:
        link.set_revision(revision)
    _expect(isinstance(link.release_stream(), bool), "release_stream does not return a bool")
    await link.wait_ready()
    await link.wait_idle()
    await link.aclose()
    await link.aclose()
    link.send(_outbound(_note(1), Response(1, Raw(b"{}"))))
    await link.drain()
    link.set_revision(REVISIONS[-1])
    await link.wait_ready()
    await link.wait_idle()
    _expect(not link.release_stream(), "release_stream was True after the end")
    await _declares_members(link)
    _expect(not recorder.incoming, "a link that got nothing delivered something")
    _expect(len(recorder.ends) <= 1, "closing several times reported several ends")


def _attach(left: Link, right: Link) -> tuple[RecordingReceiver, RecordingReceiver]:
    at_left, at_right = RecordingReceiver(), RecordingReceiver()
    left.attach(at_left)
    right.attach(at_right)
    return at_left, at_right


def _note(number: int) -> Notification:
    return Notification("note", {"number": number})


def _outbound(*messages: Message) -> list[Outbound]:
    return [Outbound(message) for message in messages]


def _numbers(incoming: Sequence[Incoming]) -> list[int]:
    """Return the numbers in the notifications; anything else becomes -1."""
    import msgspec

    return [
        msgspec.json.decode(one.params)["number"] if isinstance(one, Notification) and one.params is not None else -1
        for one in incoming
    ]


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
