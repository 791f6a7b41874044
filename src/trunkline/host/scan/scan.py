"""The scan of definitions for what should not be in them, offline: characters, words, markup, other servers' tools.

It reads everything of a definition that a model may read: names, titles, descriptions, every text of its schemas (names
of properties, descriptions, enum values, defaults), and a server's instructions. A finding says where it is, as a JSON
pointer, with an excerpt in which invisible characters are escaped. The scan finds what is known and plain; a server
without findings is not proven safe. Pure: no I/O, no clock, no state.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.host.scan.characters import fold, oddities, visible
from trunkline.host.scan.mentions import mention_of
from trunkline.host.scan.rules import NAME_RULES, OWN, RULES, Category, Severity, TextRule

__all__ = ["Finding", "Names", "names_of_others", "references_in", "scan", "scan_references", "weigh", "worst"]

#: Names of tools, each with the servers that have it.
Names: TypeAlias = Mapping[str, frozenset[str]]
_Role: TypeAlias = Literal["name", "text"]

_SEVERITIES: tuple[Severity, ...] = ("info", "ask", "hide")
# These do not reach a model; they are for programs.
_UNREAD = frozenset({"_meta", "icons"})
_NAMED_BY_KEY = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LONG = 4_000
_TOO_LONG = 20_000
_MOST_TEXT = 100_000
_AROUND = 40
_LONGEST_EXCERPT = 160
_MOST_FINDINGS = 50
_WORD = re.compile(r"[a-z][a-z0-9']*")
_IDENTIFIER = re.compile(r"[A-Za-z]\w*(?:[-./]\w+)*")
_BASE64 = re.compile(r"(?<![\w+/=])[A-Za-z0-9+/_-]{24,}={0,2}(?![\w+/=])")
_HEX = re.compile(r"(?<!\w)(?:[0-9a-fA-F]{2}[ :]?){20,}(?!\w)")
_IMAGE = re.compile(r"data:[\w.+-]{1,40}/[\w.+-]{1,60};base64,\Z")
_SHORTEST_CODE = 24
_BLOB = 200


class Finding(Struct, frozen=True):
    """Something suspicious in a definition."""

    rule: str
    category: Category
    severity: Severity
    #: The JSON pointer of the place in the definition.
    pointer: str
    #: The text at that place, with invisible characters escaped.
    excerpt: str
    message: str

    def __str__(self) -> str:
        """Format it as one line."""
        where = visible(self.pointer) or "(all of it)"
        shown = f": {self.excerpt}" if self.excerpt else ""
        return f"{self.severity}: {where}: {self.message}{shown}"


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity of some findings; None if there are none."""
    return max((each.severity for each in findings), key=_SEVERITIES.index, default=None)


def scan(document: Any, *, kind: str = "tool") -> tuple[Finding, ...]:
    """Scan a definition, as JSON, or a server's instructions, as a string."""
    found: list[Finding] = []
    room = _MOST_TEXT
    for pointer, role, text in _texts(document):
        room -= len(text)
        if room < 0:
            # So much text has room to hide something, and scanning it takes seconds.
            message = f"more than {_MOST_TEXT} characters, which is too much to be scanned"
            return (*found[: _MOST_FINDINGS - 1], Finding("too long", "size", "hide", pointer, "", message))
        found += _in_text(pointer, role, text, kind)
        if role == "name":
            found += _in_name(document, pointer, text)
        if len(found) >= _MOST_FINDINGS:
            break
    return tuple(found[:_MOST_FINDINGS])


def weigh(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Add a finding if there are suspicions of several categories: in one definition that is no accident."""
    kept = tuple(dict.fromkeys(findings))
    kinds = sorted({each.category for each in kept if each.severity != "info" and each.category != "size"})
    if len(kinds) < 2 or worst(kept) == "hide":
        return kept
    message = f"suspicions of several kinds in one definition: {', '.join(kinds)}"
    return (*kept, Finding("together", "instruction", "hide", "", "", message))


# --- other servers ---------------------------------------------------------------------------------------------------


def references_in(document: Any) -> frozenset[str]:
    """Return the words of a definition that might be names of tools; worth caching, since it is called often."""
    return frozenset(
        word for _, _, text in _texts(document) for word in _IDENTIFIER.findall(text) if _is_distinctive(word)
    )


def names_of_others(server: str, words: frozenset[str], names: Names) -> Names:
    """Return those of these words that are names of tools of other servers.

    A server with ``jira_get_issue`` that mentions ``get_issue`` means its own: it counts among those that have it.
    """
    foreign = {name: names[name] for name in words & names.keys() if server not in names[name]}
    if not foreign:
        return foreign
    own = [name for name, servers in names.items() if server in servers]
    return {
        name: servers | {server} if any(_is_short_for(name, each) for each in own) else servers
        for name, servers in foreign.items()
    }


def _is_short_for(name: str, whole: str) -> bool:
    return whole.endswith(name) and whole[: -len(name)][-1:] in ("_", "-", ".", "/")


def scan_references(document: Any, words: frozenset[str], others: Names) -> tuple[Finding, ...]:
    """Return findings for mentions of other servers' tools; ``words`` are those of ``tool_references``."""
    named = sorted(words & others.keys())
    if not named:
        return ()
    texts = list(_texts(document))
    arguments = {text for _, _, text in texts if " " not in text}
    found = []
    for pointer, _, text in texts:
        # A bare name, of a property or in an enum, is not an instruction.
        there = set(_IDENTIFIER.findall(text)) if " " in text.strip() else ()
        found += [
            finding
            for name in named
            if name in there and (finding := _reference(pointer, text, name, others[name], arguments)) is not None
        ]
    return tuple(found[:_MOST_FINDINGS])


def _is_distinctive(word: str) -> bool:
    """Return True if a word can only be an identifier: no English word is written like this."""
    return len(word) >= 5 and not (word.isalpha() and (word.islower() or word.istitle() or word.isupper()))


def _reference(
    pointer: str, text: str, name: str, servers: frozenset[str], arguments: Container[str]
) -> Finding | None:
    said = mention_of(fold(text), name, argument=name in arguments, shared=len(servers) > 1)
    if said is None:
        return None
    at = text.index(name)
    whose = ", ".join(sorted(servers))
    does = "tells how to use" if said == "steers" else "mentions"
    return Finding(
        "another server's tool",
        "other server",
        "hide" if said == "steers" else "ask",
        pointer,
        _excerpt(text, at, at + len(name)),
        f"it {does} {visible(name)}, a tool of {visible(whose)}",
    )


# --- one text --------------------------------------------------------------------------------------------------------


def _texts(document: Any) -> Iterator[tuple[str, _Role, str]]:
    """Yield every text of a definition with its pointer; names of properties are texts too."""
    waiting: list[tuple[str, str, Any]] = [("", "", document)]
    while waiting:
        pointer, key, value = waiting.pop()
        if isinstance(value, str):
            yield pointer, "name" if key == "name" else "text", value
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{at}", key, each) for at, each in reversed(list(enumerate(value)))]
        elif isinstance(value, dict):
            below = [(f"{pointer}/{_escaped(name)}", name, each) for name, each in value.items() if name not in _UNREAD]
            if key in _NAMED_BY_KEY:
                yield from ((at, "name", name) for at, name, _ in below)
            # The name of a property says nothing about its schema.
            waiting += reversed([(at, "" if key in _NAMED_BY_KEY else name, each) for at, name, each in below])


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _in_text(pointer: str, role: _Role, text: str, kind: str) -> Iterator[Finding]:
    for odd in oddities(text, name=role == "name"):
        severity: Any = odd.severity
        excerpt = _excerpt(text, odd.start, odd.end)
        yield Finding(odd.rule, "characters", severity, pointer, excerpt, odd.message)
    yield from _in_words(pointer, text, kind)
    yield from _encoded(pointer, text, kind)
    if len(text) > _LONG:
        severity = "ask" if len(text) > _TOO_LONG else "info"
        yield Finding("too long", "size", severity, pointer, "", f"a text of {len(text)} characters")


def _in_name(document: Any, pointer: str, name: str) -> Iterator[Finding]:
    """Yield findings for the name of an argument, unless the definition is about that topic."""
    for rule in NAME_RULES:
        if rule.pattern.fullmatch(name) and not (
            rule.unless_about and _is_about(document, pointer, name, rule.unless_about)
        ):
            yield _finding(rule, pointer, name, None)


def _is_about(document: Any, pointer: str, name: str, topic: re.Pattern[str]) -> bool:
    """Return True if a definition is about a topic, and the argument is not described as the reader's own data."""
    # In a list of arguments the name is a member of the argument; in a schema it is part of the pointer.
    argument = pointer.removesuffix("/name")
    own: list[str] = []
    others: list[str] = []
    for at, _, text in _texts(document):
        if text != name:
            (own if at.startswith(f"{argument}/") else others).append(fold(text))
    if OWN.search(" ".join(own)):
        return False
    return topic.search(_apart(" ".join(others))) is not None


def _apart(text: str) -> str:
    return re.sub(r"[_\W]+", " ", text)


def _in_words(pointer: str, text: str, kind: str) -> Iterator[Finding]:
    text = text.rstrip()
    folded, lowered = fold(text), text.lower()
    words = set(_WORD.findall(folded))
    for rule in RULES:
        looked_at, signs_in = (folded, folded) if rule.folded else (text, lowered)
        if words.isdisjoint(rule.words) and not any(sign in signs_in for sign in rule.signs):
            continue
        found = None if rule.advice and kind == "instructions" else _first(rule, looked_at)
        if found is not None:
            yield _finding(rule, pointer, looked_at, found)


def _first(rule: TextRule, text: str) -> re.Match[str] | None:
    """Return the first match of a rule that is not negated."""
    if rule.unless_after is None:
        return rule.pattern.search(text)
    found = rule.pattern.finditer(text)
    return next(
        (each for each in found if not rule.unless_after.search(text, max(0, each.start() - 120), each.start())), None
    )


def _finding(rule: TextRule, pointer: str, text: str, found: re.Match[str] | None) -> Finding:
    start, end = (0, len(text)) if found is None else found.span()
    return Finding(rule.name, rule.category, rule.severity, pointer, _excerpt(text, start, end), rule.message)


def _excerpt(text: str, start: int, end: int) -> str:
    """Return a part of a text on one line, with a little context."""
    end = min(end, start + _LONGEST_EXCERPT)
    left, right = max(0, start - _AROUND), min(len(text), end + _AROUND)
    shown = visible(" ".join(text[left:right].split(" "))).replace("\n", " ").replace("\t", " ")
    return f"{'...' if left else ''}{shown}{'...' if right < len(text) else ''}"


# --- encoded texts --------------------------------------------------------------------------------------------------


def _encoded(pointer: str, text: str, kind: str) -> Iterator[Finding]:
    """Decode base64 and hexadecimal texts, and scan the result."""
    if len(text) < _SHORTEST_CODE:
        return
    in_one_piece = max(map(len, text.split()), default=0) >= _SHORTEST_CODE
    pieces = _BASE64.finditer(text) if in_one_piece else iter(())
    for found in (*pieces, *_HEX.finditer(text)):
        said = _decoded(found.group())
        excerpt = _excerpt(text, found.start(), min(found.end(), found.start() + _AROUND))
        if said is not None:
            bad = worst(_in_words(pointer, said, kind)) in ("ask", "hide")
            message = f"an encoded text says {visible(said[:120])!r}"
            yield Finding("encoded text", "markup", "hide" if bad else "ask", pointer, excerpt, message)
        elif found.re is _BASE64 and len(found.group()) >= _BLOB and not _IMAGE.search(text[: found.start()][-120:]):
            message = f"{len(found.group())} characters of unreadable data"
            yield Finding("encoded text", "markup", "ask", pointer, excerpt, message)


def _decoded(text: str) -> str | None:
    """Decode a base64 or hexadecimal text; None if it is not one, or not a sentence."""
    digits = re.sub("[ :]", "", text)
    try:
        if _HEX.fullmatch(text):
            data = bytes.fromhex(digits)
        else:
            plain = text.rstrip("=").replace("-", "+").replace("_", "/")
            data = binascii.a2b_base64(plain + "=" * (-len(plain) % 4))
        said = data.decode()
    except ValueError:
        return None
    printable = sum(each.isprintable() or each.isspace() for each in said)
    return said if printable == len(said) and " " in said.strip() and re.search("[A-Za-z]{3}", said) else None
