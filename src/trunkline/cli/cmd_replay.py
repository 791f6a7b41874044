"""``trunkline replay``: play a recording as a fake server, or as a fake client that compares the answers."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exits import Exit
from trunkline.cli.options import json_option, reach_options, reached, seconds_option, told

if TYPE_CHECKING:
    from trunkline.cli.record_targets import Reach
    from trunkline.host.record.diff import Comparison
    from trunkline.host.record.recording import Recording
    from trunkline.testing.replays import Replay

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline replay weather.jsonl --as server
  trunkline list tools "trunkline replay weather.jsonl --as server"
  trunkline replay weather.jsonl --as client weather.py
  trunkline replay weather.jsonl --as client https://mcp.example.com/mcp --ignore /result/content/*/text

As a client it exits with 0 if all answers are as they were, else with 5. Ids, cursors, sealed states and times are
masked, and credentials hidden on both sides.
"""
_SPEED_HELP = "1: take the time that it took; 2: half of it; 0, the usual: no time at all."
_IGNORE_HELP = "As a client: a JSON pointer that is not compared, such as /result/tools/*/description; may be repeated."
_TIMEOUT_HELP = "As a client: seconds to wait for what the recording shows, else 10."
_USUAL_PATIENCE = 10.0


@click.command(epilog=_EPILOG)
@click.argument("file")
@click.argument("target", required=False)
@click.option("--as", "role", type=click.Choice(["server", "client"]), required=True, help="Which side is played.")
@click.option("--speed", type=click.FloatRange(min=0), default=0.0, metavar="X", help=_SPEED_HELP)
@click.option("--ignore", multiple=True, metavar="POINTER", help=_IGNORE_HELP)
@seconds_option(_TIMEOUT_HELP)
@json_option
@reach_options
def command(file: str, target: str | None, *, role: str, speed: float, **given: Any) -> int:
    """Play the recording FILE: as a server on standard input and output, or as a client of TARGET.

    As a server it answers what was asked then as it was answered then, and refuses all else. As a client it sends what
    the client sent, and prints where the answers of TARGET differ from the recorded ones.
    """
    from trunkline.host.record.recording import Recording

    as_json: bool = given.pop("as_json")
    ignore, timeout = given.pop("ignore"), given.pop("timeout")
    if role == "server":
        _check_server(target, {**given, "ignore": ignore, "timeout": timeout, "json": as_json})
        return _play_server(Recording.load(file), speed)
    from trunkline.cli.differences import check_pointers, show

    check_pointers(ignore)
    if target is None and not given["config"]:
        raise click.UsageError("Missing argument 'TARGET': whom should the client call?")
    recording, reach = told(lambda: (Recording.load(file), _reach(target, given)), as_json)
    outcome = told(lambda: _play_client(recording, reach, speed, timeout or _USUAL_PATIENCE), as_json)
    return show(_compared(outcome, ignore), names=(file, reach.shown), as_json=as_json)


# --- as a server ------------------------------------------------------------------------------------------------------


def _check_server(target: str | None, given: dict[str, Any]) -> None:
    """Refuse what would do nothing."""
    if target is not None:
        raise click.UsageError("A recording that is the server needs no TARGET.")
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --as client.")


def _play_server(recording: Recording, speed: float) -> int:
    from trunkline.host.record.playing import PlayedServer
    from trunkline.server.run import run_loop
    from trunkline.transports.stdio import StdioLink

    async def serve() -> None:
        serving = asyncio.ensure_future(PlayedServer(recording, speed=speed).serve(StdioLink.claim()))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])

    run_loop(serve())
    return Exit.OK


# --- as a client ------------------------------------------------------------------------------------------------------


def _reach(target: str | None, given: dict[str, Any]) -> Reach:
    from trunkline.cli.record_targets import find_reach
    from trunkline.protocol.limits import Limits

    return find_reach(reached(target, given), Limits(), typed=target)


def _play_client(recording: Recording, reach: Reach, speed: float, patience: float) -> Replay:
    from trunkline.cli.output import complain
    from trunkline.host.record.links import WireServer
    from trunkline.host.record.pairs import with_unique_ids
    from trunkline.host.secrecy.redaction import HIDDEN
    from trunkline.testing.replays import replay

    hidden = sum(HIDDEN in str(entry.json) for entry in recording.sent_by("client"))
    if hidden:
        complain(f"{hidden} of the recorded messages have hidden credentials in them, which are sent as {HIDDEN}")

    async def play() -> Replay:
        server = WireServer(await reach.open(None, complain))
        outcome = await replay(with_unique_ids(recording), server, seconds=None, patience=patience, speed=speed)
        if server.error is not None:
            raise server.error
        return outcome

    return asyncio.run(play())


def _compared(outcome: Replay, ignore: tuple[str, ...]) -> Comparison:
    """Put the answers of now beside those of then; what was hidden then is hidden now."""
    from trunkline.host.record.diff import Comparison, Difference, compare_answers
    from trunkline.host.record.pairs import label
    from trunkline.host.record.writing import MessageRedaction

    redaction, numbers = MessageRedaction(), defaultdict[str, int](int)
    found: list[Difference] = []
    compared = differing = 0
    for answer in outcome.answers:
        numbers[label(answer.request)] += 1
        if answer.recorded is None:
            continue
        compared += 1
        between = compare_answers(
            answer.request,
            answer.recorded,
            redaction.apply(answer.actual),
            number=numbers[label(answer.request)],
            ignore=ignore,
        )
        differing += bool(between)
        found += between
    for question in outcome.unasked:
        found.append(Difference(request=f"{label(question)}, asked by the server", number=1, kind="only in the first"))
    return Comparison(tuple(found), compared, differing)
