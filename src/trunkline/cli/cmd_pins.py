"""``trunkline pins``: what was pinned of servers, what changed since, and a lock file for teams.

What is shown before a question was written by a server and is not to be believed: whatever cannot be seen is written
out, and every line of it is indented, so that none looks like a line of ours.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import json_option
from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from trunkline.cli.screen import Screen
    from trunkline.host.pins.book import PinBook
    from trunkline.host.pins.records import Drift, Pin
    from trunkline.host.pins.views import PinView

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline pins list
  trunkline pins diff files/read_file
  trunkline pins accept files/read_file
  trunkline pins export pins.lock
  trunkline pins verify pins.lock

The definitions that a server lists first are pinned. One that changes later stays listed, but you are asked before
every use until you accept it; "pins": "strict" in the server's entry hides it instead, and "pins": "off" turns pins off
for that server. What the scan finds suspicious is asked about, or hidden, until you accept it.
"""
_ABSENT = "there is no terminal to ask in, so nothing is accepted; run this in a terminal, or give --yes"
_yes_option = click.option("--yes", is_flag=True, help="Do not ask; for scripts, or after you have read what differs.")


@click.group("pins", epilog=_EPILOG)
def command() -> None:
    """Show what servers offered when they were first seen and what changed since; accept changes."""


@command.command("list")
@click.argument("server", required=False)
@click.option("--pending", is_flag=True, help="Only what waits for your review.")
@json_option
def list_them(server: str | None, *, pending: bool, as_json: bool) -> int:
    """List what is pinned, of all servers or of one; nothing is started."""
    from trunkline.cli.output import complain, say, say_json, table

    found = [view for view in _views() if server in (None, view.server.name) and (view.is_pending or not pending)]
    if as_json:
        say_json({"pins": [_document(view) for view in found]})
    elif found:
        rows = [
            (view.server.name, view.pin.kind, view.pin.name, view.now[:12], _day(view.pin.since), _stated(view))
            for view in found
        ]
        say(table(("SERVER", "KIND", "NAME", "PIN", "SINCE", "STATE"), rows))
        _tell_pending([view.server.name for view in found if view.is_pending])
    else:
        complain("nothing waits for your review" if pending else "nothing is pinned yet")
    return Exit.OK


@command.command()
@click.argument("targets", nargs=-1, metavar="[SERVER[/NAME]]...")
@json_option
def diff(targets: tuple[str, ...], *, as_json: bool) -> int:
    """Show what changed and what the scan finds; without a name, for everything that waits for your review."""
    from trunkline.cli.output import complain, say, say_json

    book = _book()
    found = _meant(book, targets)
    if as_json:
        say_json({"pins": [_document(view, whole=True) for view in found]})
        return Exit.OK
    for view in found:
        say(_description(view))
        if view.pin.new and view.pin.drift is None:
            book.note_look(view.server, view.pin.kind, view.pin.name, pin=view.now)
    if not found:
        complain("nothing changed, and nothing is new")
    return Exit.OK


@command.command()
@click.argument("targets", nargs=-1, metavar="SERVER[/NAME]...")
@click.option("--all", "everything", is_flag=True, help="Everything that waits for your review.")
@click.option("--exact", is_flag=True, help="If only the order differs, accept this order alone.")
@_yes_option
@json_option
def accept(targets: tuple[str, ...], *, everything: bool, exact: bool, yes: bool, as_json: bool) -> int:
    """Accept what changed, what is new and what the scan found, after showing it.

    SERVER accepts everything of a server that waits for your review. If a definition differs from the accepted one only
    in the order of words or list elements, every order is accepted from then on, unless --exact is given.
    """
    from trunkline.cli.output import complain, say_json

    if bool(targets) is everything:
        raise click.UsageError("Give SERVER or SERVER/NAME, or --all.")
    book = _book()
    pending = [view for view in _meant(book, targets) if view.is_pending]
    _need_a_person(yes or not pending, as_json)
    accepted = asyncio.run(_accept(book, pending, exact=exact, yes=yes))
    if as_json:
        say_json({"accepted": [_document(view) for view in accepted], "left": len(pending) - len(accepted)})
    elif not pending:
        complain("there is nothing to accept")
    return Exit.OK if len(accepted) == len(pending) else Exit.DENIED


@command.command()
@click.argument("file", metavar="FILE|-")
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
def export(file: str, servers: tuple[str, ...]) -> int:
    """Write what is accepted to a lock file, of all servers or of some; what changed is in it as it was."""
    from trunkline.cli.output import complain, say_bytes
    from trunkline.host.pins.locks import lock_of, written

    records = [record for record in _book().servers() if not servers or record.name in servers]
    unknown = sorted(set(servers) - {record.name for record in records})
    if unknown:
        raise Failure(f"nothing is pinned of {', '.join(unknown)}: trunkline pins list shows what is", Exit.USAGE)
    content = written(lock_of(records))
    changed = sum(pin.drift is not None for record in records for pin in record.pins)
    if changed:
        complain(f"{changed} definitions changed and are not accepted; the file has them as they were")
    if file == "-":
        say_bytes(content)
    else:
        _write(file, content)
    return Exit.OK


@command.command("import")
@click.argument("file")
@_yes_option
@json_option
def import_lock(file: str, *, yes: bool, as_json: bool) -> int:
    """Accept the pins of a lock file, also for servers that were not seen yet."""
    from trunkline.cli.output import say, say_json
    from trunkline.host.pins.locks import read_lock

    book, lock = _book(), read_lock(file)
    mine = [record for record in book.servers() if record.name in lock.servers]
    differing = _lines_of(mine, lock)
    _need_a_person(yes or not differing, as_json)
    if differing and not yes and not asyncio.run(_agrees(differing)):
        return Exit.DENIED
    count = book.expect(lock)
    if as_json:
        say_json({"servers": sorted(lock.servers), "changed": count})
    else:
        say(f"took the pins of {len(lock.servers)} servers; {count} were others before")
    return Exit.OK


@command.command()
@click.argument("file")
@json_option
def verify(file: str, *, as_json: bool) -> int:
    """Compare what servers offered when they were last seen with a lock file; nothing is started."""
    from trunkline.cli.output import say, say_json
    from trunkline.host.pins.locks import read_lock
    from trunkline.host.pins.views import against_lock

    found = list(against_lock(_book().servers(), read_lock(file)))
    if as_json:
        say_json({"discrepancies": found})
    else:
        for each in found:
            say(f"{_inert(each.server)} {each.kind} {_inert(each.name)}: {each.what}")
        if not found:
            say("all as in the file")
    return Exit.DENIED if found else Exit.OK


@command.command()
@click.argument("server")
@json_option
def forget(server: str, *, as_json: bool) -> int:
    """Delete the pins of a server; its definitions are pinned again when it is next listed."""
    from trunkline.cli.output import complain, say, say_json

    count = _book().forget(server)
    if as_json:
        say_json({"forgotten": count})
    elif count:
        say(f"forgot {_inert(server)}")
    else:
        complain(f"nothing is pinned of {server}")
    return Exit.OK


# --- where things are ------------------------------------------------------------------------------------------------


def _book() -> PinBook:
    from trunkline.host.folders import state_folder
    from trunkline.host.pins.book import PinBook

    return PinBook(state_folder() / "pins.json")


def _views() -> list[PinView]:
    from trunkline.host.pins.views import views_of

    return views_of(_book().servers())


def _meant(book: PinBook, targets: Sequence[str]) -> list[PinView]:
    """Find what is meant: what was named, of a whole server what waits; or all that waits.

    What only another process saw is meant only if it, or its server, is named.

    Raises:
        ConfigError: nothing of that name is pinned.
    """
    from trunkline.host.pins.views import find_views, seen_elsewhere, views_of

    views = views_of(book.servers())
    if not targets:
        return [view for view in views if view.is_pending]
    found: dict[int, PinView] = {}
    for target in targets:
        named = find_views(views, target)
        if not named:
            raise ConfigError(f"Nothing is pinned as {target}: trunkline pins list shows what is.")
        named += seen_elsewhere(named, time.time())
        found |= {id(view): view for view in named if "/" in target or view.is_pending}
    return list(found.values())


def _write(file: str, content: bytes) -> None:
    from trunkline.host.state_files import stage

    try:
        os.replace(stage(os.path.abspath(file), content), file)
        # It is for others to read, unlike what the host keeps for itself.
        os.chmod(file, 0o644)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error


# --- showing ---------------------------------------------------------------------------------------------------------


def _description(view: PinView) -> str:
    """Show what there is to know of one pin."""
    pin = view.pin
    called = f"{view.server.name}/{pin.name}" if pin.name else view.server.name
    lines = [
        f"{_inert(called)} ({pin.kind}): {_HEADS[view.state]}",
        f"  reached as {_inert(view.server.shown)}",
        f"  pinned on {_day(pin.since)}: {pin.pin}",
    ]
    if pin.renamed_from is not None:
        lines.append(f"  it says the same as {_inert(pin.renamed_from)} did, which is gone: it was renamed")
    if pin.drift is not None:
        lines += [f"  {_when_seen(view, pin.drift)}: {pin.drift.pin}", *_indented(map(str, view.changes))]
        lines += [_REORDERED] if view.is_reordered else []
    else:
        lines += [f"  accepted{_in_any_order(pin)}"] if pin.orders else []
        lines += _indented([_pretty(view.definition)])
    return "\n".join([*lines, *_indented(f"! {finding}" for finding in view.findings)])


def _when_seen(view: PinView, drift: Drift) -> str:
    """Return when the definition that waits to be accepted was seen."""
    if view.elsewhere:
        return f"another process saw it at {_moment(drift.since)}"
    beside = "; another process has the accepted definition" if drift.beside else ""
    return f"there since {_day(drift.since)}{beside}"


_REORDERED = """\
  Only the order of words in a text, or of elements in a list, differs; some servers list them in another order at every
  start. Accepting this accepts every order from now on; with --exact, this order only."""


def _in_any_order(pin: Pin) -> str:
    """Return where any order is accepted, as the end of a sentence; empty if it is nowhere."""
    places = ", ".join(_inert(pointer) or "the whole text" for pointer in pin.orders)
    return f", in any order of the words or elements at {places}" if places else ""


_HEADS: Mapping[str, str] = MappingProxyType(
    {
        "changed": "changed since it was accepted, and waits for you to accept it",
        "elsewhere": "another process saw a definition that is not accepted; accepting it accepts both",
        "gone": "is gone",
        "hidden": "hidden because of what the scan finds in it",
        "flagged": "asked about because of what the scan finds in it",
        "new": "new since the server was first seen",
        "pinned": "as it was pinned",
    }
)


def _tell_pending(servers: Sequence[str]) -> None:
    """Print how many definitions wait for a review, and the commands for that."""
    import shlex

    from trunkline.cli.output import complain, one_line

    if servers:
        called = " ".join(shlex.quote(name) for name in dict.fromkeys(servers))
        count = "1 definition waits" if len(servers) == 1 else f"{len(servers)} definitions wait"
        fix = f"to see the changes, run: trunkline pins diff {called}; to accept them: trunkline pins accept {called}"
        complain(one_line(f"{count} for your review; {fix}"))


def _stated(view: PinView) -> str:
    return (
        f"{view.state} (was {view.pin.renamed_from})" if view.state == "new" and view.pin.renamed_from else view.state
    )


def _pretty(definition: Any) -> str:
    import msgspec

    from trunkline.host.scan.characters import visible

    if definition is None:
        return "(too large to be kept)"
    if isinstance(definition, str):
        return visible(definition)
    return visible(msgspec.json.format(msgspec.json.encode(definition)).decode())


def _indented(texts: Iterable[str]) -> list[str]:
    return [f"    {line}" for text in texts for line in text.splitlines() or [""]]


def _inert(text: str) -> str:
    from trunkline.cli.output import one_line
    from trunkline.host.scan.characters import visible

    return one_line(visible(text))


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _document(view: PinView, *, whole: bool = False) -> dict[str, Any]:
    pin = view.pin
    document: dict[str, Any] = {
        "server": view.server.name,
        "reached": view.server.shown,
        "kind": pin.kind,
        "name": pin.name,
        "pin": pin.pin,
        "now": view.now,
        "since": pin.since,
        "state": view.state,
        "findings": [{name: getattr(each, name) for name in each.__struct_fields__} for each in view.findings],
    }
    if whole:
        document["reordered"] = view.is_reordered
        document["changes"] = [{"pointer": each.pointer, "what": each.what, "text": each.text} for each in view.changes]
        document["definition"] = view.definition
    return document


# --- asking ----------------------------------------------------------------------------------------------------------


def _need_a_person(settled: bool, as_json: bool) -> None:
    """Check that there is a terminal, unless there is nothing to ask.

    Raises:
        Failure: there is none.
    """
    from trunkline.cli.output import say_json
    from trunkline.cli.terminal import is_there

    if not settled and not is_there():
        if as_json:
            say_json({"error": {"message": _ABSENT}})
        raise Failure(_ABSENT, Exit.DENIED)


async def _accept(book: PinBook, pending: Sequence[PinView], *, exact: bool, yes: bool) -> list[PinView]:
    """Show and ask about each pin that waits, one by one; return those that were accepted."""
    from trunkline.cli.screen import Screen

    screen, accepted = Screen(verbose=False), []
    for view in pending:
        screen.line(_description(view))
        if yes or await _ask(screen, f"Accept {_inert(view.id)} ({view.pin.kind})? [y/N] "):
            pin = book.accept(view.server, view.pin.kind, view.pin.name, pin=view.now, exact=exact)
            accepted.append(view)
            screen.line(f"accepted {_inert(view.id)}{_in_any_order(pin)}")
    return accepted


def _lines_of(records: Sequence[Any], lock: Any) -> list[str]:
    from trunkline.host.pins.views import against_lock

    return [
        f"{_inert(each.server)} {each.kind} {_inert(each.name)}: another one than here"
        for each in against_lock(records, lock)
        if each.what == "differs"
    ]


async def _agrees(differing: Sequence[str]) -> bool:
    from trunkline.cli.screen import Screen

    screen = Screen(verbose=False)
    screen.line("\n".join(["The file has other pins than are kept here:", *_indented(differing)]))
    return await _ask(screen, "Take those of the file? [y/N] ")


async def _ask(screen: Screen, question: str) -> bool:
    """Ask for a yes; what was typed before the question is no answer to it."""
    from trunkline.cli.terminal import InputEnded, Terminal, forget_typed

    forget_typed()
    try:
        return await Terminal(screen).choose(question, {"yes": "yes", "no": "no"}, default="no") == "yes"
    except InputEnded:
        return False
