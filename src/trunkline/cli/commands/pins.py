"""``trunkline pins``: shows pinned definitions and changes to them, accepts changes, and exchanges lock files.

Definitions shown before a question were written by a server and are not trusted: invisible characters are written out,
and every line is indented, so that none can pass for output of this program.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import json_option
from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from trunkline.cli.ui.terminal import Screen
    from trunkline.host.integrity.pins.records import Drift, Pin
    from trunkline.host.integrity.pins.store import PinStore
    from trunkline.host.integrity.pins.views import PinView

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline pins list
  trunkline pins diff files/read_file
  trunkline pins accept files/read_file
  trunkline pins block files/read_file
  trunkline pins export pins.lock
  trunkline pins verify pins.lock

A server's definitions (of tools, prompts, resources, and its instructions) are pinned when it is first listed. If a
definition changes later, every use needs approval until you accept the change. In the server's entry, "pins": "strict"
hides changed definitions instead, and "pins": "off" disables pinning. A change that you block is hidden until you
accept or unblock it. Definitions that the scan flags as suspicious need approval, or are hidden, until you accept them.
"""
_ABSENT = "no terminal to confirm in, so nothing was accepted; run this in a terminal, or add --yes"
_yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group("pins", epilog=_EPILOG)
def command() -> None:
    """Review pinned definitions of servers, and accept changes to them."""


@command.command("list")
@click.argument("server", required=False)
@click.option("--pending", is_flag=True, help="Only pins that wait for review.")
@json_option
def list_them(server: str | None, *, pending: bool, as_json: bool) -> int:
    """List the pins of all servers, or of SERVER. No server is started."""
    from trunkline.cli.ui.output import print_json, print_notice, print_table

    found = [view for view in _views() if server in (None, view.server.name) and (view.is_pending or not pending)]
    if as_json:
        print_json({"pins": [_document(view) for view in found]})
    elif found:
        rows = [
            (view.server.name, view.pin.kind, view.pin.name, view.now[:12], _day(view.pin.since), _stated(view))
            for view in found
        ]
        print_table(("SERVER", "KIND", "NAME", "PIN", "SINCE", "STATE"), rows)
        _tell_pending([view.server.name for view in found if view.is_pending])
    else:
        print_notice("nothing to review" if pending else "nothing is pinned yet")
    return Exit.OK


@command.command()
@click.argument("targets", nargs=-1, metavar="[SERVER[/NAME]]...")
@json_option
def diff(targets: tuple[str, ...], *, as_json: bool) -> int:
    """Show changes and scan findings. Without arguments, show everything that waits for review."""
    from trunkline.cli.ui.output import print_json, print_notice, print_text

    pin_store = _pin_store()
    found = _meant(pin_store, targets)
    if as_json:
        print_json({"pins": [_document(view, whole=True) for view in found]})
        return Exit.OK
    for view in found:
        print_text(_description(view))
        if view.pin.new and view.pin.drift is None:
            pin_store.mark_viewed(view.server, view.pin.kind, view.pin.name, pin=view.now)
    if not found:
        print_notice("no changes and no new definitions")
    return Exit.OK


@command.command()
@click.argument("targets", nargs=-1, metavar="SERVER[/NAME]...")
@click.option("--all", "everything", is_flag=True, help="Accept everything that waits for review.")
@click.option("--exact", is_flag=True, help="If only the order differs, accept this order only.")
@_yes_option
@json_option
def accept(targets: tuple[str, ...], *, everything: bool, exact: bool, yes: bool, as_json: bool) -> int:
    """Show changed, new and flagged definitions, and accept them.

    SERVER accepts everything of that server that waits for review. If a definition differs only in the order of words
    or list elements, every order is accepted from then on, unless --exact is given.
    """
    from trunkline.cli.ui.output import print_json, print_notice

    if bool(targets) is everything:
        raise click.UsageError("Give SERVER or SERVER/NAME, or --all.")
    pin_store = _pin_store()
    pending = [view for view in _meant(pin_store, targets) if view.is_pending or view.state == "blocked"]
    _need_a_person(yes or not pending, as_json)
    accepted = asyncio.run(_accept(pin_store, pending, exact=exact, yes=yes))
    if as_json:
        print_json({"accepted": [_document(view) for view in accepted], "left": len(pending) - len(accepted)})
    elif not pending:
        print_notice("nothing to accept")
    return Exit.OK if len(accepted) == len(pending) else Exit.DENIED


@command.command()
@click.argument("targets", nargs=-1, required=True, metavar="SERVER[/NAME]...")
@json_option
def block(targets: tuple[str, ...], *, as_json: bool) -> int:
    """Hide changed definitions until they are accepted, unblocked, or changed again.

    SERVER blocks every changed definition of that server.
    """
    return _set_blocked(targets, blocked=True, as_json=as_json)


@command.command()
@click.argument("targets", nargs=-1, required=True, metavar="SERVER[/NAME]...")
@json_option
def unblock(targets: tuple[str, ...], *, as_json: bool) -> int:
    """Undo "block": every use of the changed definitions needs approval again."""
    return _set_blocked(targets, blocked=False, as_json=as_json)


def _set_blocked(targets: tuple[str, ...], *, blocked: bool, as_json: bool) -> int:
    """Block changed definitions, or unblock blocked ones."""
    from trunkline.cli.ui.output import print_json, print_notice, print_text
    from trunkline.host.integrity.pins.views import find_views, pin_views

    pin_store = _pin_store()
    views = pin_views(pin_store.servers())
    before = "changed" if blocked else "blocked"
    found = [view for target in targets for view in find_views(views, target) if view.state == before]
    for view in found:
        pin_store.block(view.server, view.pin.kind, view.pin.name, pin=view.now, blocked=blocked)
    if as_json:
        print_json({"blocked" if blocked else "unblocked": [view.id for view in found]})
    elif found:
        print_text("\n".join(f"{'blocked' if blocked else 'unblocked'} {_visible_line(view.id)}" for view in found))
    else:
        print_notice(f"nothing of {', '.join(targets)} is {before}; to list pins, run: trunkline pins list")
    return Exit.OK if found else Exit.USAGE


@command.command()
@click.argument("file", metavar="FILE|-")
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
def export(file: str, servers: tuple[str, ...]) -> int:
    """Write the accepted pins of all servers, or of SERVER..., to a lock file.

    Changes that are not accepted are left out: the file has the accepted definition.
    """
    from trunkline.cli.ui.output import print_bytes, print_notice
    from trunkline.host.integrity.pins.store import encode_lock, make_lock

    records = [record for record in _pin_store().servers() if not servers or record.name in servers]
    unknown = sorted(set(servers) - {record.name for record in records})
    if unknown:
        raise CommandError(f"no pins of {', '.join(unknown)}; to list pins, run: trunkline pins list", Exit.USAGE)
    content = encode_lock(make_lock(records))
    changed = sum(pin.drift is not None for record in records for pin in record.pins)
    if changed:
        print_notice(f"{changed} changed definitions are not accepted; the file has their accepted versions")
    if file == "-":
        print_bytes(content)
    else:
        _write(file, content)
    return Exit.OK


@command.command("import")
@click.argument("file")
@_yes_option
@json_option
def import_lock(file: str, *, yes: bool, as_json: bool) -> int:
    """Accept the pins of a lock file, also for servers that have not been listed yet."""
    from trunkline.cli.ui.output import print_json, print_text
    from trunkline.host.integrity.pins.store import read_lock

    pin_store, lock = _pin_store(), read_lock(file)
    mine = [record for record in pin_store.servers() if record.name in lock.servers]
    differing = _lines_of(mine, lock)
    _need_a_person(yes or not differing, as_json)
    if differing and not yes and not asyncio.run(_agrees(differing)):
        return Exit.DENIED
    count = pin_store.import_lock(lock)
    if as_json:
        print_json({"servers": sorted(lock.servers), "changed": count})
    else:
        print_text(f"imported the pins of {len(lock.servers)} servers; {count} replaced other pins")
    return Exit.OK


@command.command()
@click.argument("file")
@json_option
def verify(file: str, *, as_json: bool) -> int:
    """Compare the last known definitions of servers with a lock file. No server is started."""
    from trunkline.cli.ui.output import print_json, print_text
    from trunkline.host.integrity.pins.store import read_lock
    from trunkline.host.integrity.pins.views import compare_with_lock

    found = list(compare_with_lock(_pin_store().servers(), read_lock(file)))
    if as_json:
        print_json({"discrepancies": found})
    else:
        for each in found:
            print_text(f"{_visible_line(each.server)} {each.kind} {_visible_line(each.name)}: {each.what}")
        if not found:
            print_text("everything matches the file")
    return Exit.DENIED if found else Exit.OK


@command.command()
@click.argument("server")
@json_option
def forget(server: str, *, as_json: bool) -> int:
    """Delete the pins of a server. Its definitions are pinned again when it is next listed."""
    from trunkline.cli.ui.output import print_json, print_notice, print_text

    count = _pin_store().forget(server)
    if as_json:
        print_json({"forgotten": count})
    elif count:
        print_text(f"deleted the pins of {_visible_line(server)}")
    else:
        print_notice(f"no pins of {server}")
    return Exit.OK


# --- the pin registry ------------------------------------------------------------------------------------------------


def _pin_store() -> PinStore:
    from trunkline.host.integrity.pins.store import PinStore
    from trunkline.host.state_files import state_folder

    return PinStore(state_folder() / "pins.json")


def _views() -> list[PinView]:
    from trunkline.host.integrity.pins.views import pin_views

    return pin_views(_pin_store().servers())


def _meant(pin_store: PinStore, targets: Sequence[str]) -> list[PinView]:
    """Return the pins for the targets: a named pin, or those of a server that wait for review; by default all waiting.

    A definition that only another process has seen is included only if it, or its server, is named.

    Raises:
        ConfigError: there is no pin of that name.
    """
    from trunkline.host.integrity.pins.views import find_views, pin_views, views_seen_elsewhere

    views = pin_views(pin_store.servers())
    if not targets:
        return [view for view in views if view.is_pending]
    found: dict[int, PinView] = {}
    for target in targets:
        named = find_views(views, target)
        if not named:
            raise ConfigError(f"No pin {target}; to list pins, run: trunkline pins list")
        named += views_seen_elsewhere(named, time.time())
        found |= {id(view): view for view in named if "/" in target or view.is_pending}
    return list(found.values())


def _write(file: str, content: bytes) -> None:
    from trunkline.host.state_files import write_staged

    try:
        os.replace(write_staged(os.path.abspath(file), content), file)
        # Unlike state files of the host, it is meant for others to read.
        os.chmod(file, 0o644)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error


# --- showing ---------------------------------------------------------------------------------------------------------


def _description(view: PinView) -> str:
    """Describe one pin in full."""
    pin = view.pin
    called = f"{view.server.name}/{pin.name}" if pin.name else view.server.name
    lines = [
        f"{_visible_line(called)} ({pin.kind}): {_HEADS[view.state]}",
        f"  reached as {_visible_line(view.server.shown)}",
        f"  pinned on {_day(pin.since)}: {pin.pin}",
    ]
    if pin.renamed_from is not None:
        lines.append(f"  renamed from {_visible_line(pin.renamed_from)}, which is gone and had the same definition")
    if pin.drift is not None:
        lines += [f"  {_when_seen(view, pin.drift)}: {pin.drift.pin}", *_indented(map(str, view.changes))]
        lines += [_REORDERED] if view.is_reordered else []
    else:
        lines += [f"  accepted{_in_any_order(pin)}"] if pin.orders else []
        lines += _indented([_pretty(view.definition)])
    return "\n".join([*lines, *_indented(f"! {finding}" for finding in view.findings)])


def _when_seen(view: PinView, drift: Drift) -> str:
    """Describe when the definition that waits for review was seen."""
    if view.elsewhere:
        return f"another process saw it at {_moment(drift.since)}"
    beside = "; another process has the accepted definition" if drift.beside else ""
    return f"there since {_day(drift.since)}{beside}"


_REORDERED = """\
  Only the order of words in a text, or of elements in a list, differs; some servers list them in another order at every
  start. Accepting this accepts every order from now on; with --exact, this order only."""


def _in_any_order(pin: Pin) -> str:
    """Return the end of a sentence that says where any order is accepted; empty if nowhere."""
    places = ", ".join(_visible_line(pointer) or "the whole text" for pointer in pin.orders)
    return f", in any order of the words or elements at {places}" if places else ""


_HEADS: Mapping[str, str] = MappingProxyType(
    {
        "changed": "changed since it was accepted; waits for review",
        "blocked": "changed since it was accepted; you blocked it, so it is hidden",
        "elsewhere": "another process saw a different definition; accepting it accepts both",
        "gone": "is gone",
        "hidden": "hidden because of scan findings",
        "flagged": "needs approval because of scan findings",
        "new": "new since the server was first listed",
        "pinned": "as pinned",
    }
)


def _tell_pending(servers: Sequence[str]) -> None:
    """Print how many definitions wait for review, and the commands to review them."""
    import shlex

    from trunkline.cli.ui.output import one_line, print_notice

    if servers:
        called = " ".join(shlex.quote(name) for name in dict.fromkeys(servers))
        count = "1 definition waits" if len(servers) == 1 else f"{len(servers)} definitions wait"
        fix = f"to see the changes, run: trunkline pins diff {called}; to accept them: trunkline pins accept {called}"
        print_notice(one_line(f"{count} for review; {fix}"))


def _stated(view: PinView) -> str:
    return (
        f"{view.state} (was {view.pin.renamed_from})" if view.state == "new" and view.pin.renamed_from else view.state
    )


def _pretty(definition: Any) -> str:
    import msgspec

    from trunkline.protocol.printable import escape_invisible

    if definition is None:
        return "(too large to store)"
    if isinstance(definition, str):
        return escape_invisible(definition)
    return escape_invisible(msgspec.json.format(msgspec.json.encode(definition)).decode())


def _indented(texts: Iterable[str]) -> list[str]:
    return [f"    {line}" for text in texts for line in text.splitlines() or [""]]


def _visible_line(text: str) -> str:
    from trunkline.cli.ui.output import one_line
    from trunkline.protocol.printable import escape_invisible

    return one_line(escape_invisible(text))


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
        CommandError: there is no terminal.
    """
    from trunkline.cli.ui.output import print_json
    from trunkline.cli.ui.terminal import is_interactive

    if not settled and not is_interactive():
        if as_json:
            print_json({"error": {"message": _ABSENT}})
        raise CommandError(_ABSENT, Exit.DENIED)


async def _accept(pin_store: PinStore, pending: Sequence[PinView], *, exact: bool, yes: bool) -> list[PinView]:
    """Show each pin and ask whether to accept it; return the accepted ones."""
    from trunkline.cli.ui.terminal import Screen

    screen, accepted = Screen(verbose=False), []
    for view in pending:
        screen.line(_description(view))
        if yes or await _ask(screen, f"Accept {_visible_line(view.id)} ({view.pin.kind})? [y/N] "):
            pin = pin_store.accept(view.server, view.pin.kind, view.pin.name, pin=view.now, exact=exact)
            accepted.append(view)
            screen.line(f"accepted {_visible_line(view.id)}{_in_any_order(pin)}")
    return accepted


def _lines_of(records: Sequence[Any], lock: Any) -> list[str]:
    from trunkline.host.integrity.pins.views import compare_with_lock

    return [
        f"{_visible_line(each.server)} {each.kind} {_visible_line(each.name)}: differs from the pin here"
        for each in compare_with_lock(records, lock)
        if each.what == "differs"
    ]


async def _agrees(differing: Sequence[str]) -> bool:
    from trunkline.cli.ui.terminal import Screen

    screen = Screen(verbose=False)
    screen.line("\n".join(["The file has different pins:", *_indented(differing)]))
    return await _ask(screen, "Use the pins of the file? [y/N] ")


async def _ask(screen: Screen, question: str) -> bool:
    """Ask a yes/no question; input typed before the question was shown is discarded."""
    from trunkline.cli.ui.terminal import EndOfInput, Terminal, discard_typeahead

    discard_typeahead()
    try:
        return await Terminal(screen).choose(question, {"yes": "yes", "no": "no"}, default="no") == "yes"
    except EndOfInput:
        return False
