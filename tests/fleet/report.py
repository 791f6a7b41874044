"""The final table of a run, and the page of the documentation that is made from it."""

from __future__ import annotations

import os

from msgspec import Struct, field

from tests.fleet.clients import ClientRow
from tests.fleet.install import ROOT
from tests.fleet.looks import SIDES, ServerRow
from tests.fleet.together import Left, Together

__all__ = ["PAGE", "Bar", "Result", "bars", "page", "table"]

#: The page that `--write-docs` writes.
PAGE = ROOT / "docs" / "explanation" / "fleet.md"


class Result(Struct, kw_only=True):
    """Everything that one run found out."""

    seed: int
    servers: list[ServerRow] = field(default_factory=list)
    clients: list[ClientRow] = field(default_factory=list)
    together: Together | None = None
    #: How many servers were started at once, how many became ready, and those that were started more than once.
    at_once: tuple[int, int, list[str]] | None = None
    left: Left | None = None
    #: Processes that were left of servers and clients looked at one by one.
    at_end: list[str] = field(default_factory=list)
    #: How long all of it took, without the installation.
    seconds: float = 0.0


class Bar(Struct, frozen=True):
    """One number, what it has to be, and whether it is."""

    what: str
    found: str
    passed: bool


def bars(result: Result) -> list[Bar]:
    """Return every number of a run with its bar."""
    found = [*_server_bars(result.servers), *_client_bars(result.clients)]
    if result.together is not None:
        found += _together_bars(result.together)
    if result.at_once is not None:
        count, ready, again = result.at_once
        found.append(Bar(f"servers ready of {count} started at once", str(ready), ready == count))
        found.append(Bar(f"servers restarted at a start of {count}", str(len(again)), not again))
    if result.left is not None:
        found += _left_bars(result.left)
    found.append(Bar("processes left at the end", str(len(result.at_end)), not result.at_end))
    return found


def _server_bars(rows: list[ServerRow]) -> list[Bar]:
    used = [row for row in rows if not row.skipped]
    if not used:
        return []
    names = {
        "direct": "servers equal to the official client, Trunkline's client",
        "stdio": "servers equal to the official client, gateway over stdio",
        "http": "servers equal to the official client, gateway over HTTP",
    }
    found = []
    for side in SIDES:
        equal = sum(not row.sides.get(side) for row in used)
        found.append(Bar(names[side], f"{equal} of {len(used)}", equal == len(used)))
    return found


def _client_bars(rows: list[ClientRow]) -> list[Bar]:
    found = []
    for door, words in (("stdio", "over stdio"), ("http", "over HTTP")):
        tried = [row for row in rows if door in row.doors]
        passed = sum(not row.doors[door] for row in tried)
        if tried:
            what = f"clients that pass through the default gateway {words}, of those that pass directly"
            found.append(Bar(what, f"{passed} of {len(tried)}", passed == len(tried)))
    return found


def _together_bars(together: Together) -> list[Bar]:
    found = [
        Bar(f"{state} definitions of {together.definitions}", str(len(names)), not names)
        for state, names in together.wrong.items()
    ]
    restarts = [each for each in together.restarts if each.number]
    first = sum(len(each.lost_at_first) for each in restarts)
    lost = sum(len(each.lost) for each in together.restarts)
    late = sum(len(each.late) for each in together.restarts)
    count = len(restarts)
    found.append(Bar(f"servers not ready at a start of all, {count + 1} starts", str(late), not late))
    found.append(Bar(f"tools lost over {count} restarts with random delays, of {together.tools}", str(lost), not lost))
    found.append(Bar(f"tools lacking in the first list after a restart, {count} restarts", str(first), not first))
    return found


def _left_bars(left: Left) -> list[Bar]:
    clients, gateway = len(left.after_clients), len(left.after_gateway)
    waited = f" (the last ended after {left.seconds:.0f} s)" if not clients else ""
    return [
        # Without any the next bar would hold for nothing.
        Bar("processes that three clients had for themselves", str(left.dedicated), left.dedicated > 0),
        Bar("processes left two minutes after the last client", f"{clients}{waited}", not clients),
        Bar("processes left after the gateway", str(gateway), not gateway),
    ]


def table(result: Result) -> list[str]:
    """Return the final table as lines of text."""
    lines = ["", "servers"]
    for row in result.servers:
        if row.skipped:
            lines.append(f"  skip  {row.name:20} {row.skipped}")
            continue
        words = ", ".join(f"{side} {'equal' if not row.sides.get(side) else 'DIFFERS'}" for side in SIDES)
        counts = "/".join(str(count) for count in row.counts.values())
        lines.append(f"  {_mark(row.passed)}  {row.name:20} {row.revision} {counts:12} {row.calls} calls: {words}")
    lines += ["", "clients"]
    for client in result.clients:
        words = ", ".join(f"{door} {'passes' if not why else 'FAILS'}" for door, why in client.doors.items())
        left_out = ", ".join(f"{door} not directly" for door in client.not_directly)
        said = client.skipped or ", ".join(each for each in (words, left_out) if each)
        lines.append(f"  {'skip' if client.skipped else _mark(client.passed)}  {client.name:28} {said}")
    lines += ["", "bars"]
    lines += [f"  {_mark(bar.passed)}  {bar.what}: {bar.found}" for bar in bars(result)]
    return lines


def _mark(passed: bool) -> str:
    return "pass" if passed else "MISS"


# --- the page --------------------------------------------------------------------------------------------------------

_INTRODUCTION = """\
# The fleet: public servers and third-party clients

This page shows what public MCP servers and clients that others wrote do behind Trunkline, compared with a direct
connection. {run}

## What is measured

- **Servers.** The official Python client connects to each server directly and lists its tools, prompts, resources and
  templates, then makes some harmless calls. Trunkline's client does the same, and so does the official client through
  `trunkline serve`: over stdio in a handshake revision, over loopback HTTP in the newest revision. All definitions and
  results must be equal. The gateway is given time to start a server (`--wait 90`) and lists every tool by its name
  (`--search off`); nothing else differs from its defaults.
- **Clients.** Each client lists and calls the official server `everything` directly, over stdio and over HTTP. Where
  that works, it must see the same tools and results through a gateway without any option: `trunkline serve -c mcp.json`
  for stdio, with `--http 0` for HTTP. Each client has the timeouts it comes with; some give up after five seconds.
- **Flags and pins.** All servers run behind one gateway. No definition may be flagged, hidden or changed.
- **Restarts.** The gateway is started again with the same servers, each delayed by up to {delay:g} seconds, drawn from
  the seed. No tool may be lost, neither in the first list of a client nor when all servers are ready.
- **Many at once.** {count} small servers start behind one gateway, with delays as above. None may be restarted.
- **Processes.** Three clients that support elicitation, sampling and roots call the servers and disconnect. Two minutes
  later no process of their own may be left, and none at all after the gateway.

"""

_ORDER = """\
Some Python servers (mcp-shell-server and mcp-atlassian here) write a set into a description or a default value, in an
order that Python draws at each start, so that two direct connections differ already. For the comparison these servers
are started with a fixed `PYTHONHASHSEED`. Behind one gateway, where pins are counted, they are started without it.

Servers that need a browser, a network or an account that the machine does not have are called in a way that fails, and
the error is compared.

"""

_AGAIN = """\

## Repeat it

    make fleet                 # install the packages into .fleet (5 GB), measure, print the tables
    make fleet ONLY=git        # one server or client
    make fleet SEED=2          # other delays
    make fleet DOCS=1          # write this page
    python -m tests.fleet --part clients --skip-install

It needs npm, PyPI and Node. What cannot be installed, or does not work with a direct connection either, is named with
the reason and left out of the counts. The command ends with status 1 if a bar is missed. The versions are in
`tests/fleet/packages.py`, the commands and calls in `tests/fleet/servers.py`.
"""

_SERVER_HEADS = (
    "server",
    "package",
    "revision",
    "offers",
    "calls",
    "Trunkline's client",
    "gateway, stdio",
    "gateway, HTTP",
)


def page(result: Result, *, day: str, delay: float, count: int) -> str:
    """Return the page of the documentation; ``day`` is empty if nothing was run."""
    parts = [_INTRODUCTION.format(run=_told(result, day), delay=delay, count=count)]
    if day:
        rows: list[tuple[str, ...]] = [(bar.what, bar.found, _mark(bar.passed)) for bar in bars(result)]
        parts.append(f"## Results\n\n{_markdown(('what', 'found', 'bar'), rows)}\n")
        parts.append(_first_start(result.together))
    parts.append("## Servers\n\nThe numbers are tools, prompts, resources and templates, and the calls compared.\n\n")
    parts += [_markdown(_SERVER_HEADS, [_server_cells(row) for row in result.servers]), "\n", _ORDER]
    if skipped := [f"- {row.name}: {row.skipped}\n" for row in result.servers if row.skipped]:
        parts += ["Not counted:\n\n", *skipped, "\n"]
    parts.append("## Clients\n\n")
    heads = ("client", "package", "gateway, stdio", "gateway, HTTP")
    parts.append(_markdown(heads, [_client_cells(row) for row in result.clients]))
    if reasons := [line for row in result.clients for line in _left_out(row)]:
        parts.append("\nNot counted:\n\n")
        parts += [f"- {line}\n" for line in reasons]
    parts.append(_AGAIN)
    return "".join(parts)


def _told(result: Result, day: str) -> str:
    """Return what is said about the run."""
    if not day:
        return "No run has been written to it yet."
    minutes = max(1, round(result.seconds / 60))
    servers = sum(not row.skipped for row in result.servers)
    clients = sum(bool(row.doors) for row in result.clients)
    return (
        f"The results are from {day}, with seed {result.seed}: {servers} servers and {clients} clients in {minutes}"
        f" minutes on {os.cpu_count()} cores, without the installation. The load average of the last 15 minutes was"
        f" {os.getloadavg()[2]:.0f}."
    )


def _first_start(together: Together | None) -> str:
    """Return what is said about the start of which nothing was kept; no bar is on it."""
    if together is None:
        return ""
    first = together.restarts[0].at_first
    return (
        f"At the very first start, of which nothing is kept, the first list had {first} of {together.tools} tools after"
        " the\nfour seconds of `--wait`. The client is told when the list changes; from the second start on the first"
        " list is whole.\n\n"
    )


def _left_out(row: ClientRow) -> list[str]:
    if row.skipped:
        return [f"{row.name}: {row.skipped}"]
    return [f"{row.name}, {door}: {reason}" for door, reason in row.not_directly.items()]


def _server_cells(row: ServerRow) -> tuple[str, ...]:
    if row.skipped:
        return (row.name, f"`{row.package}`", "skipped", "", "", "", "", "")
    counts = " / ".join(str(count) for count in row.counts.values())
    sides = (_equal(row.sides.get(side)) for side in SIDES)
    return (row.name, f"`{row.package}`", row.revision, counts, str(row.calls), *sides)


def _equal(found: list[str] | None) -> str:
    return "not run" if found is None else "differs" if found else "equal"


def _client_cells(row: ClientRow) -> tuple[str, ...]:
    if row.skipped:
        return (row.name, f"`{row.package}`", "skipped", "skipped")
    return (row.name, f"`{row.package}`", *(_door(row, door) for door in ("stdio", "http")))


def _door(row: ClientRow, door: str) -> str:
    if door in row.not_directly:
        return "does not work directly"
    return "not run" if door not in row.doors else "fails" if row.doors[door] else "passes"


def _markdown(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
