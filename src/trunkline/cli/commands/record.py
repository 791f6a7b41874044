"""``trunkline record``: sits between a client and a server, and records every message."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import http_option, read_target_options, target_options
from trunkline.net.addresses import ListenAddress

if TYPE_CHECKING:
    from trunkline.cli.recording_endpoints import RecordingEndpoint
    from trunkline.devtools.recording.format import RecordingWriter
    from trunkline.protocol.limits import Limits

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline record weather.py -o weather.jsonl
  trunkline record "npx -y @modelcontextprotocol/server-everything" -o everything.jsonl
  trunkline record https://mcp.example.com/mcp -o remote.jsonl --http 8000
  trunkline record files -c mcp.json -o files.jsonl
  trunkline call "trunkline record weather.py -o weather.jsonl" forecast city=Oslo

Use it in place of the server's command in a client's configuration. Credentials that can be recognized by name or
format are redacted before anything is written; still, review a recording before you share it.
"""
_OUTPUT_HELP = "File to write; an existing recording is overwritten."
_BYTES_HELP = "Stop recording after N bytes; traffic continues. Default: 64 MiB."


@click.command(epilog=_EPILOG)
@click.argument("target")
@click.option("-o", "--output", required=True, metavar="FILE", help=_OUTPUT_HELP)
@http_option
@click.option("--max-bytes", type=click.IntRange(min=1), metavar="N", help=_BYTES_HELP)
@target_options
def command(target: str, *, output: str, address: ListenAddress | None, max_bytes: int | None, **given: Any) -> int:
    """Relay messages between a client and the server TARGET, and write each to FILE with time and direction.

    The client is on standard input and output. With --http, TARGET must be a URL, and clients connect to a local
    address instead. Messages are passed on unchanged, and nothing is negotiated in between.
    """
    from trunkline.cli.recording_endpoints import find_endpoint
    from trunkline.protocol.limits import Limits
    from trunkline.server.run import run_loop

    # A line is forwarded once it is complete, and one that is too long not at all.
    limits = Limits(message_bytes=256 * 1024 * 1024)
    endpoint = find_endpoint(read_target_options(target, given), limits, typed=target, whole_environment=True)
    if address is not None:
        _check_http(endpoint, address)
    file = _begin(endpoint, output, max_bytes, "stdio" if address is None else "http")
    outcome: list[int] = []
    if address is None:
        run_loop(_stdio(endpoint, file, limits, outcome))
    else:
        run_loop(_http(endpoint, file, limits, address))
    return outcome[0] if outcome else Exit.OK


def _check_http(endpoint: RecordingEndpoint, address: ListenAddress) -> None:
    from trunkline.net.addresses import is_loopback

    if endpoint.open_http is None:
        raise click.UsageError(
            "--http needs a TARGET that is a URL, and this one is started with a command: record it over stdio, or "
            "serve it over HTTP (trunkline run FILE --http) and record that URL."
        )
    if address.host is not None and not is_loopback(address.host, below=False):
        raise click.UsageError(
            f"{address.host} is reachable from other machines, and the recorder does not authenticate clients."
        )


def _begin(endpoint: RecordingEndpoint, output: str, max_bytes: int | None, transport: str) -> RecordingWriter:
    from trunkline.cli.ui.output import print_notice
    from trunkline.devtools.recording.format import MAX_BYTES, RecordingWriter

    return RecordingWriter(
        output,
        target=endpoint.shown,
        transport=transport,
        max_bytes=MAX_BYTES if max_bytes is None else max_bytes,
        secrets=endpoint.secrets,
        on_stop=print_notice,
    )


# --- stdio ------------------------------------------------------------------------------------------------------------


async def _stdio(endpoint: RecordingEndpoint, file: RecordingWriter, limits: Limits, outcome: list[int]) -> None:
    from trunkline.cli.ui.output import print_notice
    from trunkline.devtools.recording.relay import Relay, StdioLineStream

    if sys.stdin is not None and sys.stdin.isatty():
        print_notice("recording: waiting for a client on standard input; start this from the configuration of a client")
    server = await endpoint.open(_pass_stderr, lambda text: file.note("recorder", text))
    relay = Relay(StdioLineStream.claim(limits), server, file)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, relay.stop)
    error = await relay.run()
    if error is not None:
        print_notice(str(error))
        outcome.append(Exit.UNREACHABLE)


def _pass_stderr(data: bytes) -> None:
    """Pass the server's stderr on to the client."""
    if sys.stderr is not None:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


# --- HTTP -------------------------------------------------------------------------------------------------------------


async def _http(endpoint: RecordingEndpoint, file: RecordingWriter, limits: Limits, address: ListenAddress) -> None:
    from trunkline.devtools.recording.http_proxy import RecordingProxy
    from trunkline.transports.http.server.serve import serve

    assert endpoint.open_http is not None
    link = await endpoint.open_http()
    try:
        proxy = RecordingProxy(link.http, file, limits=limits, headers=endpoint.headers)
        await serve(
            proxy,
            limits=limits,
            host=address.host or "127.0.0.1",
            port=8000 if address.port is None else address.port,
            started=lambda origin: _tell(origin, proxy.path, endpoint.shown),
        )
    finally:
        await link.aclose()
        file.close()


def _tell(origin: str, path: str, shown: str) -> None:
    from trunkline.cli.ui.output import one_line, print_notice
    from trunkline.net.addresses import reachable_url

    url, _ = reachable_url(origin, path)
    print_notice(f"{one_line(shown)} is served at {url}; all messages are recorded")
