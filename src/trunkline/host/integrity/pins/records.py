"""The pins of each server, and how they change when the server is seen again.

A pin is trust on first use: what a server offers when it is first seen is accepted as it is, and remembered. From then
on a definition that differs is *drift*, and is kept apart from the accepted one until a person accepts it. What is
added later under a new name is accepted, and marked as new until a person views it. Pure: no I/O, no clock.

====================  ===================================  =============================================
what the server has   what is remembered                   what follows
====================  ===================================  =============================================
the same pin          that pin                             nothing; noted drift is over, and is kept
                                                           for a day as the other definition last seen
another pin           that pin, and the other as drift     it needs approval, or is hidden, until accepted
an unknown name       its pin, marked new unless the list  it is served, and reported; a definition with
                      is seen for the first time           the text of one that is gone is a rename
nothing any more      the pin, and since when it is gone   it comes back as it was, or as drift
====================  ===================================  =============================================

Some definitions count as the same although their pin differs: the accepted one without the members that the negotiated
revision does not have, the accepted one in another order where any order was accepted, one that was accepted earlier
for a server that alternates, and the accepted one under the digest that older versions of this program wrote. The last
is updated when it is seen. A tool with its page and without counts as the same, too: servers name a page only to
clients that show pages.

Several processes may run one server in different versions, and all write to one record. So the accepted definition may
be seen while another one waits to be accepted. The first time, the other is kept apart (``Pin.other``) and can still be
accepted. If it is seen again, two processes see two definitions (``Drift.beside``): it waits as drift until it is
accepted or was not seen for a day, and ``record_for_snapshot`` returns the record as it applies to what a process sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.host.integrity.pins.definitions import (
    DefinitionChange,
    canonical,
    compare_definitions,
    exact_pin,
    is_accepted_order,
    is_renamed,
    matches_pin,
    normal_form,
    only_listings_differ,
    pin_of,
    pin_without_page,
)
from trunkline.protocol.apps import tool_visibility, without_ui
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.revisions import find_revision

__all__ = [
    "PIN_KINDS",
    "CurrentDefinition",
    "Drift",
    "FormerPin",
    "Pin",
    "PinKey",
    "PinKind",
    "PinNotice",
    "PinNoticeKind",
    "ServerPins",
    "ServerSnapshot",
    "former_pins_after",
    "pin_changes",
    "record_for_snapshot",
    "update_record",
]

#: ``extension`` is the settings that a server declares for an extension, ``item`` a definition that a method of an
#: extension listed.
PinKind: TypeAlias = Literal["tool", "prompt", "template", "instructions", "extension", "item"]
PIN_KINDS: tuple[PinKind, ...] = ("tool", "prompt", "template", "instructions", "extension", "item")
#: A kind and a name; instructions have none.
PinKey: TypeAlias = tuple[PinKind, str]
PinNoticeKind: TypeAlias = Literal["new", "renamed", "changed", "returned", "gone"]

# A larger definition is still pinned, but cannot be compared word by word.
_MOST_BYTES = 64 * 1024
_MOST_KEPT_BYTES = 8 * 1024 * 1024  # Definitions kept to show differences; catalogs of hundreds of tools have 1 MB.
# Removed definitions are remembered; otherwise removing and re-adding one would be a way to change it unnoticed.
_MOST_GONE = 2000
# Seconds: how long a definition is remembered while only the accepted one is seen, and how often that is updated.
_OTHER_SECONDS = 86_400.0
_NOTED_SECONDS = 3600.0  # A server that alternates does not have the file written with every list.


class Drift(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A definition that differs from the accepted one."""

    pin: str
    since: float
    #: As JSON; None if it is too large to keep.
    definition: Any = None
    #: When it was last seen, once the accepted definition was seen after it; 0 before that.
    last_seen: float = 0.0
    #: Both it and the accepted definition were seen again after each other: two processes see two definitions.
    beside: bool = False
    #: A person blocked it: it is hidden until it is accepted or unblocked, or another definition takes its place.
    blocked: bool = False


class FormerPin(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A definition that was accepted before the current one."""

    pin: str
    #: The findings of the scan in it were reviewed and accepted.
    vetted: bool = False
    #: It is still accepted: the server alternates between it and others.
    stands: bool = False


class Pin(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The accepted definition of one name."""

    kind: PinKind
    name: str
    pin: str
    #: When it was accepted, in seconds since the epoch.
    since: float
    #: As JSON, or the text of instructions; None if it is too large to keep, or came from a lock file.
    definition: Any = None
    #: It was added after the server was first seen, and no person has viewed it yet.
    new: bool = False
    renamed_from: str | None = None
    #: A person has accepted the scan's findings in it.
    vetted: bool = False
    gone_since: float | None = None
    drift: Drift | None = None
    #: A definition that was drift until the accepted one was seen again; another process may still see it.
    other: Drift | None = None
    #: The definitions accepted before, the latest first.
    former: list[FormerPin] = []
    #: The places where any order is accepted.
    orders: dict[str, tuple[int, int]] = {}
    #: A person accepted this order only (``pins accept --exact``); otherwise listings may have any order.
    exact: bool = False
    #: The MCP Apps members of ``_meta`` of the accepted tool, if they were first seen after it was accepted.
    page: Any = None

    @property
    def key(self) -> PinKey:
        """The kind and the name."""
        return self.kind, self.name

    @property
    def standing(self) -> dict[str, bool]:
        """The other accepted pins, each with True if the scan's findings in it are accepted too."""
        return {each.pin: each.vetted for each in self.former if each.stands}

    def recent_other(self, now: float) -> Drift | None:
        """Return the definition that was seen before the accepted one came back, unless that is too long ago."""
        return None if self.other is None or _is_outdated(self.other, now) else self.other

    @property
    def state(self) -> str:
        """The state: ``changed``, ``blocked``, ``gone``, ``new`` or ``pinned``."""
        if self.drift is not None:
            return "blocked" if self.drift.blocked else "changed"
        if self.gone_since is not None:
            return "gone"
        return "new" if self.new else "pinned"


class ServerPins(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The pins of one server with one identity."""

    name: str
    #: How it is reached, as a digest, and as a text for display.
    key: str
    shown: str
    since: float
    #: The kinds that were listed completely.
    listed: list[PinKind] = []
    pins: list[Pin] = []

    def find(self, kind: str, name: str) -> Pin | None:
        """Return the pin of a name; None if there is none."""
        return next((pin for pin in self.pins if pin.kind == kind and pin.name == name), None)


class CurrentDefinition(Struct, frozen=True):
    """The definition that a server offers now under one name."""

    pin: str
    #: The definition, or the text of instructions.
    definition: Any

    def has_pin(self, pin: str) -> bool:
        """Return True if this definition has the given pin."""
        return matches_pin(pin, self.pin, self.definition)


class ServerSnapshot(Struct, frozen=True, kw_only=True):
    """What a server offers at one moment."""

    server: str
    key: str
    shown: str
    items: Mapping[PinKey, CurrentDefinition]
    #: The kinds that could not be listed: missing items may still exist.
    unlisted: frozenset[str] = frozenset()
    #: Items that exist, but are not served for other reasons.
    aside: frozenset[tuple[str, str]] = frozenset()
    #: The revision in which it was listed.
    revision: str = ""
    #: It is from an earlier run (a cached catalog); the server itself was not asked yet.
    recalled: bool = False


class PinNotice(Struct, frozen=True):
    """A change that was noticed in a snapshot."""

    server: str
    kind: PinKind
    name: str
    what: PinNoticeKind
    #: The name it had before, for a rename.
    before: str | None = None


_NOTHING: Mapping[PinKey, str] = MappingProxyType({})
_TYPES: Mapping[PinKind, Any] = MappingProxyType({"tool": t.Tool, "prompt": t.Prompt, "template": t.ResourceTemplate})


def pin_changes(pin: Pin) -> tuple[DefinitionChange, ...]:
    """Return the differences between the accepted and the current definition; never empty if there is drift.

    What is not part of a pin, such as the order of an enum, is not a difference.
    """
    if pin.drift is None:
        return ()
    before, after = _with_members(pin.definition, pin.page), pin.drift.definition
    text = "the definitions are too large to be kept, or one came from a lock file: only their pins are known"
    if before is not None and after is not None:
        found = compare_definitions(normal_form(before), normal_form(after))
        if found:
            return found
        text = "the difference is in a secret that the definition holds, and secrets are not kept"
    return (DefinitionChange("", "changed", f"{pin.pin[:12]} -> {pin.drift.pin[:12]}; {text}"),)


def update_record(
    record: ServerPins | None,
    snapshot: ServerSnapshot,
    *,
    now: float,
    siblings: Iterable[ServerPins] = (),
    expected: Mapping[PinKey, str] = _NOTHING,
    accepts: Callable[[PinKey, CurrentDefinition], bool] | None = None,
    hide: Callable[[str], str] = str,
) -> tuple[ServerPins, tuple[PinNotice, ...]]:
    """Update the record of a server from a snapshot; unchanged objects are reused.

    ``siblings`` are records of servers with the same name and another identity, ``expected`` are pins that were
    imported for it, ``accepts`` returns True if a changed definition was accepted elsewhere, and ``hide`` removes
    secrets from what is stored for display; pins are taken of the original definitions.
    """
    return _RecordUpdate(
        record, snapshot, now=now, siblings=siblings, expected=expected, accepts=accepts, hide=hide
    ).result()


def record_for_snapshot(record: ServerPins, snapshot: ServerSnapshot) -> ServerPins:
    """Return a record, updated from this snapshot, without the drift that only other processes see."""

    def elsewhere(pin: Pin) -> bool:
        seen = snapshot.items.get(pin.key)
        return pin.drift is not None and seen is not None and seen.pin != pin.drift.pin

    if not any(map(elsewhere, record.pins)):
        return record
    return replace(record, pins=[replace(pin, drift=None) if elsewhere(pin) else pin for pin in record.pins])


class _RecordUpdate:
    """The update of one record from one snapshot."""

    def __init__(
        self,
        record: ServerPins | None,
        snapshot: ServerSnapshot,
        *,
        now: float,
        siblings: Iterable[ServerPins],
        expected: Mapping[PinKey, str],
        accepts: Callable[[PinKey, CurrentDefinition], bool] | None,
        hide: Callable[[str], str],
    ) -> None:
        self._first = record is None
        self._record = record or ServerPins(name=snapshot.server, key=snapshot.key, shown=snapshot.shown, since=now)
        self._snapshot = snapshot
        self._now = now
        self._expected = expected
        self._accepts = accepts
        self._hide = hide
        self._known: dict[PinKey, Pin] = {pin.key: pin for pin in self._record.pins}
        self._elsewhere = {(pin.key, pin.pin) for sibling in siblings for pin in sibling.pins}
        self._named_before = any(True for _ in self._elsewhere)
        self._notices: list[PinNotice] = []

    def result(self) -> tuple[ServerPins, tuple[PinNotice, ...]]:
        """Return the updated record, and what was noticed."""
        changed: dict[PinKey, Pin] = {}
        for key, pin in self._known.items():
            seen = self._snapshot.items.get(key)
            after = self._missing(pin) if seen is None else self._again(pin, seen)
            if after is not pin:
                changed[key] = after
        for key, seen in self._snapshot.items.items():
            if key not in self._known:
                changed[key] = self._new(key, seen)
        listed = [kind for kind in PIN_KINDS if kind in self._record.listed or kind not in self._snapshot.unlisted]
        if not changed and not self._first and listed == list(self._record.listed):
            return self._record, ()
        pins = sorted({**self._known, **changed}.values(), key=lambda pin: (PIN_KINDS.index(pin.kind), pin.name))
        return replace(self._record, listed=listed, pins=_limit_pins(pins)), tuple(self._notices)

    def _again(self, pin: Pin, seen: CurrentDefinition) -> Pin:
        """Return a pin after its name was seen again."""
        if seen.has_pin(pin.pin) or _digest_now(pin) == seen.pin:
            back = self._returned(pin)
            if back is pin and seen.pin == pin.pin:
                return pin
            kept = self._kept(seen) if pin.definition is None else pin.definition
            return replace(back, pin=seen.pin, definition=kept)
        if self._accepts is not None and self._accepts(pin.key, seen):
            return replace(
                pin,
                pin=seen.pin,
                since=self._now,
                definition=self._kept(seen),
                vetted=False,
                gone_since=None,
                drift=None,
                other=None,
                former=[],
                orders={},
                exact=False,
                page=None,
            )
        if self._is_accepted(pin, seen):
            return self._returned(pin)
        paged = self._with_page(pin, seen)
        return self._drifted(pin, seen) if paged is None else self._returned(paged)

    def _with_page(self, pin: Pin, seen: CurrentDefinition) -> Pin | None:
        """Return a pin after its tool was seen with its known page, with a first page, or without one.

        Servers name pages only to clients that show them, which depends on the host. So the first page is recorded,
        and a missing page is not a change. Another page is a change, and so is another visibility to models. Returns
        None if the definition has changed.
        """
        if pin.kind != "tool":
            return None
        known, now = _page(pin.definition) or pin.page, _page(self._kept(seen))
        if (known is None and now is None) or (known is not None and now is not None and known != now):
            return None
        if ("model" in tool_visibility(known)) is not ("model" in tool_visibility(now)):
            return None
        bare = seen.pin if now is None else pin_without_page(seen.definition)
        if bare is None or bare != (_bare_pin(pin) if _page(pin.definition) else pin.pin):
            return None
        return pin if known is not None else replace(pin, page=now)

    def _drifted(self, pin: Pin, seen: CurrentDefinition) -> Pin:
        """Return a pin after a definition that is not accepted was seen."""
        drift, other = pin.drift, pin.recent_other(self._now)
        if drift is not None and drift.pin == seen.pin and pin.gone_since is None:
            if not drift.beside or self._now - drift.last_seen < _NOTED_SECONDS:
                return pin
            return replace(pin, drift=replace(drift, last_seen=self._now))
        self._note(pin.key, "changed")
        if other is not None and other.pin == seen.pin:
            drift = replace(other, last_seen=self._now, beside=True)
        else:
            # A definition that was blocked, and removed and added again meanwhile, stays blocked.
            blocked = drift is not None and drift.blocked and drift.pin == seen.pin
            drift = Drift(seen.pin, self._now, self._kept(seen), blocked=blocked)
        return replace(pin, drift=drift, other=None, gone_since=None)

    def _returned(self, pin: Pin) -> Pin:
        """Return a pin after its accepted definition was seen; former drift is kept apart for a time."""
        drift, other = pin.drift, pin.recent_other(self._now)
        if drift is not None and (not drift.beside or _is_outdated(drift, self._now)):
            self._note(pin.key, "returned")
            other = None if drift.beside else replace(drift, last_seen=self._now)
            drift = None
        if drift is pin.drift and other is pin.other and pin.gone_since is None:
            return pin
        return replace(pin, drift=drift, other=other, gone_since=None)

    def _is_accepted(self, pin: Pin, seen: CurrentDefinition) -> bool:
        """Return True if a definition counts as the accepted one although its pin differs."""
        if seen.pin in pin.standing:
            return True
        if pin.definition is None:
            return False
        if _reduced_pin(pin, self._snapshot.revision) == seen.pin:
            return True
        if is_accepted_order(pin.orders, pin.definition, self._kept(seen)):
            return True
        # Compared with its secrets: without them, another secret would look like no change.
        return not pin.exact and only_listings_differ(pin.definition, msgspec.to_builtins(seen.definition))

    def _missing(self, pin: Pin) -> Pin:
        """Return a pin after its name was missing."""
        unsure = pin.kind in self._snapshot.unlisted or pin.key in self._snapshot.aside
        if unsure or pin.gone_since is not None:
            return pin
        self._note(pin.key, "gone")
        return replace(pin, gone_since=self._now)

    def _new(self, key: PinKey, seen: CurrentDefinition) -> Pin:
        """Return the pin of a name that was never seen."""
        kind, name = key
        document = self._kept(seen)
        wanted = self._expected.get(key, seen.pin)
        if not seen.has_pin(wanted):
            self._note(key, "changed")
            drift = Drift(seen.pin, self._now, document)
            return Pin(kind=kind, name=name, pin=wanted, since=self._now, drift=drift)
        unheard = key not in self._expected and (key, seen.pin) not in self._elsewhere
        later = kind in self._record.listed or self._named_before or bool(self._expected)
        if not (unheard and later):
            return Pin(kind=kind, name=name, pin=seen.pin, since=self._now, definition=document)
        before = self._renamed_from(kind, document)
        self._note(key, "new" if before is None else "renamed", before)
        return Pin(
            kind=kind, name=name, pin=seen.pin, since=self._now, definition=document, new=True, renamed_from=before
        )

    def _renamed_from(self, kind: PinKind, document: Any) -> str | None:
        went = (pin for pin in self._known.values() if pin.kind == kind and pin.key not in self._snapshot.items)
        return next((pin.name for pin in went if is_renamed(pin.definition, document)), None)

    def _kept(self, seen: CurrentDefinition) -> Any:
        """Return a definition as JSON to store; None if it is too large, or not valid JSON without its secrets."""
        written = canonical(seen.definition)
        if len(written) > _MOST_BYTES:
            return None
        try:
            return msgspec.json.decode(self._hide(written.decode()))
        except msgspec.DecodeError:
            return None

    def _note(self, key: PinKey, what: PinNoticeKind, before: str | None = None) -> None:
        self._notices.append(PinNotice(self._snapshot.server, key[0], key[1], what, before))


def _page(document: Any) -> dict[str, Any] | None:
    """Return the MCP Apps members of a definition in JSON; None if it has none."""
    meta = document.get("_meta") if isinstance(document, dict) else None
    bare = without_ui(meta) if isinstance(meta, dict) else None
    return None if not isinstance(meta, dict) else {name: meta[name] for name in meta.keys() - (bare or {})} or None


def _with_members(document: Any, page: dict[str, Any] | None) -> Any:
    """Return a definition in JSON with the known MCP Apps members."""
    if page is None or not isinstance(document, dict):
        return document
    return {**document, "_meta": {**(document.get("_meta") or {}), **page}}


def _bare_pin(pin: Pin) -> str | None:
    """Return the pin of the accepted tool without its page."""
    try:
        return pin_without_page(msgspec.convert(pin.definition, t.Tool))
    except (msgspec.ValidationError, RecursionError):
        return None


def _reduced_pin(pin: Pin, revision: str) -> str | None:
    """Return the pin of the accepted definition without members that a revision lacks; None if it has them all.

    The other way round, members that were missing when the definition was accepted are a change like any other: a
    server chooses the revision, so it could add a title or a hint unseen by choosing a newer one.
    """
    known = find_revision(revision)
    if known is None or pin.kind not in _TYPES:
        return None
    try:
        whole = msgspec.convert(pin.definition, _TYPES[pin.kind])
        reduced = adapt_params(whole, known)
    except (msgspec.ValidationError, RecursionError):
        return None
    return None if reduced is whole else pin_of(reduced)


def _digest_now(pin: Pin) -> str | None:
    """Return the pin of a stored definition whose digest was written by an older version; otherwise None.

    A definition stored without its secrets does not match its digest, and is recognised only if it is seen unchanged.
    """
    if pin.kind not in _TYPES or pin.definition is None or exact_pin(pin.definition) != pin.pin:
        return None
    try:
        return pin_of(msgspec.convert(pin.definition, _TYPES[pin.kind]))
    except (msgspec.ValidationError, RecursionError):
        return None


def _is_outdated(drift: Drift, now: float) -> bool:
    # abs(): a clock that was set back must not make anything wait longer than it should.
    return abs(now - drift.last_seen) >= _OTHER_SECONDS


def former_pins_after(known: Pin, pin: str) -> list[FormerPin]:
    """Return the formerly accepted definitions after a pin is accepted in place of the current one.

    If that pin was accepted before, the server alternates: all that was accepted since then stays accepted. If the
    current one was seen after the other, another process has it: it stays accepted, too.
    """
    seen_since = known.drift is None or known.drift.beside
    history = [FormerPin(known.pin, known.vetted, seen_since), *known.former]
    pins = [each.pin for each in history]
    since = pins.index(pin) if pin in pins else 0
    return [
        replace(each, stands=each.stands or number < since) for number, each in enumerate(history) if each.pin != pin
    ]


def _limit_pins(pins: list[Pin]) -> list[Pin]:
    """Bound the size of the file: drop the pins gone longest, and the definitions beyond a total size."""
    gone = sorted((pin.gone_since, pin.key) for pin in pins if pin.gone_since is not None)
    forgotten = {key for _, key in gone[: max(0, len(gone) - _MOST_GONE)]}
    kept, room = [], _MOST_KEPT_BYTES
    for pin in pins:
        if pin.key in forgotten:
            continue
        size = 0 if pin.definition is None else len(msgspec.json.encode(pin.definition))
        room -= size
        kept.append(pin if room >= 0 or size == 0 else replace(pin, definition=None))
    return kept
