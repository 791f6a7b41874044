"""``trunkline replay``: replays a recording as a server, or as a client that compares the responses."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import json_option, read_target_options, target_options, timeout_option, with_json_errors

if TYPE_CHECKING:
    from trunkline.cli.recording_endpoints import RecordingEndpoint
    from trunkline.devtools.recording.diff import Comparison
    from trunkline.devtools.recording.format import Recording
    from trunkline.testing.recordings import Replay

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline replay weather.jsonl --as server
  trunkline list tools "trunkline replay weather.jsonl --as server"
  trunkline replay weather.jsonl --as client weather.py
  trunkline replay weather.jsonl --as client https://mcp.example.com/mcp --ignore /result/content/*/text

As a client, the exit code is 0 if all responses match the recording, otherwise 5. IDs, cursors, sealed states and times
are ignored, and credentials are redacted on both sides.
"""
_SPEED_HELP = "Speed factor: 1 keeps the recorded timing, 2 is twice as fast. Default: 0, no delays."
_IGNORE_HELP = "As a client: JSON pointer to ignore, such as /result/tools/*/description; repeatable."
_TIMEOUT_HELP = "As a client: seconds to wait for each recorded message. Default: 10."
_DEFAULT_TIMEOUT = 10.0  # A replayed client repeats fast calls; a server that takes longer is stuck.


@click.command(epilog=_EPILOG)
@click.argument("file")
@click.argument("target", required=False)
@click.option("--as", "role", type=click.Choice(["server", "client"]), required=True, help="Which side to replay.")
@click.option("--speed", type=click.FloatRange(min=0), default=0.0, metavar="X", help=_SPEED_HELP)
@click.option("--ignore", multiple=True, metavar="POINTER", help=_IGNORE_HELP)
@timeout_option(_TIMEOUT_HELP)
@json_option
@target_options
def command(file: str, target: str | None, *, role: str, speed: float, **given: Any) -> int:
    """Replay the recording FILE as a server on standard input and output, or as a client of TARGET.

    As a server, it gives the recorded response to each recorded request, and rejects all others. As a client, it sends
    the recorded requests, and prints where the responses of TARGET differ from the recorded ones.
    """
    from trunkline.devtools.recording.format import Recording

    as_json: bool = given.pop("as_json")
    ignore, timeout = given.pop("ignore"), given.pop("timeout")
    if role == "server":
        _check_server(target, {**given, "ignore": ignore, "timeout": timeout, "json": as_json})
        return _play_server(Recording.load(file), speed)
    from trunkline.cli.commands.diff import check_pointers, print_comparison

    check_pointers(ignore)
    if target is None and not given["config"]:
        raise click.UsageError("Missing argument 'TARGET': the server to replay the client against.")
    recording, endpoint = with_json_errors(lambda: (Recording.load(file), _find_endpoint(target, given)), as_json)
    outcome = with_json_errors(lambda: _play_client(recording, endpoint, speed, timeout or _DEFAULT_TIMEOUT), as_json)
    return print_comparison(_compared(outcome, ignore), names=(file, endpoint.shown), as_json=as_json)


# --- as a server ------------------------------------------------------------------------------------------------------


def _check_server(target: str | None, given: dict[str, Any]) -> None:
    """Reject options that would have no effect."""
    if target is not None:
        raise click.UsageError("--as server takes no TARGET: the recording is the server.")
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --as client.")


def _play_server(recording: Recording, speed: float) -> int:
    from trunkline.devtools.recording.replay import ReplayServer
    from trunkline.server.run import run_loop
    from trunkline.transports.stdio import StdioLink

    async def serve() -> None:
        serving = asyncio.ensure_future(ReplayServer(recording, speed=speed).serve(StdioLink.claim()))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])

    run_loop(serve())
    return Exit.OK


# --- as a client ------------------------------------------------------------------------------------------------------


def _find_endpoint(target: str | None, given: dict[str, Any]) -> RecordingEndpoint:
    from trunkline.cli.recording_endpoints import find_endpoint
    from trunkline.protocol.limits import Limits

    return find_endpoint(read_target_options(target, given), Limits(), typed=target)


def _play_client(recording: Recording, endpoint: RecordingEndpoint, speed: float, max_wait: float) -> Replay:
    from trunkline.cli.ui.output import print_notice
    from trunkline.devtools.recording.exchanges import with_unique_ids
    from trunkline.devtools.recording.replay import LineStreamServer
    from trunkline.host.secrets.registry import HIDDEN
    from trunkline.testing.recordings import replay

    hidden = sum(HIDDEN in str(entry.json) for entry in recording.sent_by("client"))
    if hidden:
        print_notice(f"{hidden} of the recorded messages contain redacted credentials, which are sent as {HIDDEN}")

    async def play() -> Replay:
        server = LineStreamServer(await endpoint.open(None, print_notice))
        outcome = await replay(with_unique_ids(recording), server, seconds=None, max_wait=max_wait, speed=speed)
        if server.error is not None:
            raise server.error
        return outcome

    return asyncio.run(play())


def _compared(outcome: Replay, ignore: tuple[str, ...]) -> Comparison:
    """Compare the new responses with the recorded ones; what was redacted in the recording is redacted in both."""
    from trunkline.devtools.recording.diff import Comparison, Difference, compare_answers
    from trunkline.devtools.recording.exchanges import label
    from trunkline.devtools.recording.format import MessageRedaction

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
