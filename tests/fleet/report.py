"""The final table of a run, and the page of the documentation that is made from it."""

from __future__ import annotations

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
    waited = f" ({left.dedicated} at first, {left.seconds:.0f} s until none)" if not clients else ""
    return [
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

`make fleet` installs the packages below into `.fleet` and repeats these measurements. It needs npm, PyPI and Node; what
cannot be installed is skipped and named. `make fleet ONLY=git` runs one row, `SEED=2` draws other delays, and `DOCS=1`
writes this page. {run}

## What is measured

- **Servers.** The official Python client connects to each server directly and lists its tools, prompts, resources and
  templates, then makes some harmless calls. Trunkline's client does the same, and so does the official client through
  `trunkline serve`: over stdio in a handshake revision, over loopback HTTP in the newest revision. All definitions and
  results must be equal.
- **Flags and pins.** All servers run behind one gateway. No definition may be flagged, hidden or changed.
- **Restarts.** The gateway is started again with the same servers, each delayed by up to {delay:g} seconds, drawn from
  the seed. No tool may be lost, neither in the first list of a client nor when all servers are ready.
- **Many at once.** {count} small servers start behind one gateway. None may be restarted.
- **Processes.** Three clients that support elicitation, sampling and roots call the servers and disconnect. Two minutes
  later no process of theirs may be left.
- **Clients.** Each client lists and calls the official server `everything` directly. Where that works, it must work in
  the same way through a gateway in its default mode.

"""


def page(result: Result, *, day: str, delay: float, count: int) -> str:
    """Return the page of the documentation; ``day`` is empty if nothing was run."""
    run = f"The results are from {day}, with seed {result.seed}." if day else "No run has been written to it yet."
    parts = [_INTRODUCTION.format(run=run, delay=delay, count=count)]
    if day:
        rows = [(bar.what, bar.found, _mark(bar.passed)) for bar in bars(result)]
        parts.append(f"## Results\n\n{_markdown(('what', 'found', 'bar'), rows)}\n")
    parts.append("## Servers\n\nThe numbers are tools, prompts, resources, templates and compared calls.\n\n")
    heads = (
        "server",
        "package",
        "revision",
        "offers",
        "calls",
        "Trunkline's client",
        "gateway, stdio",
        "gateway, HTTP",
    )
    parts.append(_markdown(heads, [_server_cells(row) for row in result.servers]))
    parts.append("\n## Clients\n\n")
    parts.append(
        _markdown(
            ("client", "package", "gateway, stdio", "gateway, HTTP"), [_client_cells(row) for row in result.clients]
        )
    )
    return "".join(parts)


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
