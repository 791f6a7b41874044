"""The scan of definitions for what should not be in them, offline.

Deceptive characters, instructions, markup, and other servers' tools. It reads everything of a definition that a model
may read: names, titles, descriptions, every text of its schemas (names of properties, descriptions, enum values,
defaults), and a server's instructions. A finding says where it is, as a JSON pointer, with an excerpt in which
invisible characters are escaped. A server may not tell a model how to use the tools of another one (shadowing); but
names of tools are also names of fields, options and events, and some (read_file) are common to half of all servers,
so a name counts only where a sentence treats it as a tool. The scan finds what is known and plain; no findings do not
make a server safe. Pure: no I/O, no clock, no state.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from trunkline.host.integrity.scan.characters import find_suspicious_characters, fold_text
from trunkline.host.integrity.scan.rules import (
    NAME_RULES,
    PRIVATE_FILE,
    READER_OWNED,
    RULES,
    Category,
    Severity,
    TextRule,
)
from trunkline.protocol.printable import escape_invisible

__all__ = [
    "Finding",
    "MentionKind",
    "ToolOwners",
    "classify_mention",
    "combine_findings",
    "foreign_tool_names",
    "scan_definition",
    "scan_references",
    "tool_references",
    "worst_severity",
]

#: ``steers``: the text says how the other tool should be used. ``names``: it mentions the tool.
MentionKind: TypeAlias = Literal["steers", "names"]

#: Compiles a pattern of a rule at its first use.
_compiled = cache(re.compile)

_CALLED = r"(?:call(?:ed|s)?|used?|invoked?|execut(?:ed?|es)|run|runs|triggered)"
_CALLING = rf"(?:{_CALLED}|calling|using|invoking|running|executing)"
_QUOTE = r"[`'\"*]{0,3}"
# Things that have a name and are not tools: "the NAME field", "NAME events".
_THING = (
    r"(?:fields?|parameters?|params?|arguments?|args?|propert(?:y|ies)|options?|flags?|columns?|keys?|values?"
    r"|attributes?|settings?|headers?|variables?|tables?|events?|permissions?|scopes?|actions?|modes?|types?|names?"
    r"|members?|entries|entry|enum|labels?|tags?|roles?|steps?|jobs?|methods?|endpoints?|apis?|packages?|modules?"
    r"|classe?s?|librar(?:y|ies)|files?|nodes?|operations?|objects?|errors?|codes?|formats?|switch|queries|query"
    r"|pages?|docs?|documentation)"
)
# Phrases about a value, not about a tool: "if NAME is true", "set NAME to", "NAME=3", "the NAME field".
_AS_VALUE = (
    rf"\bset(?:s|ting)? {_QUOTE}NAME|NAME{_QUOTE}\s?(?:=|:(?! (?:call|use|run)\b))"
    rf"|NAME{_QUOTE} (?:is|are) (?:not )?(?:true|false|set|given|provided|enabled|disabled|specified|omitted|required"
    rf"|null|none|present|empty|optional)\b"
    rf"|NAME{_QUOTE} {_THING}\b|\b{_THING}:? {_QUOTE}NAME|\b(?:similar to|like|unlike|same as|equivalent (?:of|to)"
    rf"|e\.g\.|such as|for example|named|titled) {_QUOTE}NAME|[/.#@\\]NAME|NAME{_QUOTE}/"
)
_AS_TOOL = (
    rf"\b{_CALLING} (?:\w+ ){{0,2}}{_QUOTE}NAME|NAME{_QUOTE} (?:tool|function|command)\b|\btool:? {_QUOTE}NAME"
    rf"|NAME{_QUOTE} (?:is|are|was|gets?|being|has been)(?: \w+)? {_CALLED}\b"
)
# An argument may be used and set, but is never called.
_AS_CALL = (
    rf"\b(?:call(?:s|ed|ing)?|invok(?:e|ed|ing)|execut(?:e|ed|ing)) (?:\w+ ){{0,2}}{_QUOTE}NAME|\btool:? {_QUOTE}NAME"
    rf"|NAME{_QUOTE} (?:tool|function|command)\b"
    rf"|NAME{_QUOTE} (?:is|are|was|gets?|being|has been)(?: \w+)? (?:called|invoked|executed|run)\b"
)
# Phrases that change how the other tool is used, or its result.
_TAMPERS = (
    r"NAME[\s\S]{0,200}?\b(?:must|always|never|change|replace|redirect|modify|bcc|append|inject|overwrite|forward"
    r"|recipient|include|send|add|secretly|silently|instead)\b"
)
_STEERS = (
    r"\b(?:when|whenever|before|after|while|if|instead of|every time|each time|once)\b[^\n]{0,60}?NAME"
    r"[\s\S]{0,200}?\b(?:must|always|never|change|replace|redirect|instead|modify|set|add|append|include|first|send|use)\b"
)
_CONDITION = (
    r"\b(?:when|whenever|before|after|while|if|(?:for|on|in|with) (?:every|each|any|all)|every time|each time|once)\b"
    r"[^\n]{0,60}?"
)


class _Patterns(NamedTuple):
    name: re.Pattern[str]
    steers: re.Pattern[str]
    tampers: re.Pattern[str]
    tool: re.Pattern[str]
    call: re.Pattern[str]
    value: re.Pattern[str]


def classify_mention(text: str, name: str, *, argument: bool, shared: bool) -> MentionKind | None:
    """Return how a folded text mentions another server's tool; None if the name stands for something else.

    ``argument``: the definition itself has an argument, or an argument value, of this name. ``shared``: several servers
    have such a tool, so that a mere mention points to none of them.
    """
    patterns = _patterns(name.lower())
    if argument and not patterns.call.search(text):
        return None
    if shared:
        return "steers" if patterns.tampers.search(text) else None
    if not patterns.tool.search(text) and _always_a_value(text, patterns):
        return None
    return "steers" if patterns.steers.search(text) else "names"


def _always_a_value(text: str, patterns: _Patterns) -> bool:
    """Return True if every occurrence of the name in a text is the name of a value."""
    values = [found.span() for found in patterns.value.finditer(text)]
    return all(
        any(start <= found.start() and found.end() <= end for start, end in values)
        for found in patterns.name.finditer(text)
    )


@lru_cache(maxsize=512)
def _patterns(name: str) -> _Patterns:
    whole = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    sources = ("NAME", _STEERS, _CONDITION + _TAMPERS, _AS_TOOL, _AS_CALL, _AS_VALUE)
    return _Patterns(*(re.compile(source.replace("NAME", whole)) for source in sources))


#: Names of tools, each with the servers that have it.
ToolOwners: TypeAlias = Mapping[str, frozenset[str]]
_Role: TypeAlias = Literal["name", "text"]

_SEVERITIES: tuple[Severity, ...] = ("info", "ask", "hide")
# These do not reach a model; they are for programs.
_SKIPPED_MEMBERS = frozenset({"_meta", "icons"})
_NAMED_BY_KEY = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LONG = 4_000  # About 1000 tokens; published descriptions are nearly all shorter.
_TOO_LONG = 20_000  # About 5000 tokens: instructions could hide in it from a person who reads it.
_MOST_TEXT = 100_000  # Scanning this much takes some tens of milliseconds.
_AROUND = 40  # Characters of context on each side of a finding.
_LONGEST_EXCERPT = 160  # Two lines of a terminal.
_MOST_FINDINGS = 50  # A person does not read more.
_WORD = re.compile(r"[a-z][a-z0-9']*")
_IDENTIFIER = re.compile(r"[A-Za-z]\w*(?:[-./]\w+)*")
_BASE64 = re.compile(r"(?<![\w+/=])[A-Za-z0-9+/_-]{24,}={0,2}(?![\w+/=])")
_HEX = re.compile(r"(?<!\w)(?:[0-9a-fA-F]{2}[ :]?){20,}(?!\w)")
_IMAGE = re.compile(r"data:[\w.+-]{1,40}/[\w.+-]{1,60};base64,\Z")
_SHORTEST_CODE = 24  # Decodes to 18 characters, too few for a sentence that instructs.
_BLOB = 200  # Hashes and keys in examples are shorter.


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
        where = escape_invisible(self.pointer) or "(all of it)"
        shown = f": {self.excerpt}" if self.excerpt else ""
        return f"{self.severity}: {where}: {self.message}{shown}"


def worst_severity(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity of some findings; None if there are none."""
    return max((each.severity for each in findings), key=_SEVERITIES.index, default=None)


def scan_definition(document: Any, *, kind: str = "tool") -> tuple[Finding, ...]:
    """Scan a definition, as JSON, or a server's instructions, as a string."""
    found: list[Finding] = []
    room = _MOST_TEXT
    for pointer, role, text in _texts(document):
        room -= len(text)
        if room < 0:
            # So much text has room to hide something, and scanning it takes seconds.
            message = f"more than {_MOST_TEXT} characters, which is too much to be scanned"
            return (*found[: _MOST_FINDINGS - 1], Finding("too long", "size", "hide", pointer, "", message))
        found += _in_text(document, pointer, role, text, kind)
        if role == "name":
            found += _in_name(document, pointer, text)
        if len(found) >= _MOST_FINDINGS:
            break
    return tuple(found[:_MOST_FINDINGS])


def combine_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Add a finding if there are suspicions of several categories: in one definition that is no accident."""
    kept = tuple(dict.fromkeys(findings))
    kinds = sorted({each.category for each in kept if each.severity != "info" and each.category != "size"})
    if len(kinds) < 2 or worst_severity(kept) == "hide":
        return kept
    message = f"suspicions of several kinds in one definition: {', '.join(kinds)}"
    return (*kept, Finding("together", "instruction", "hide", "", "", message))


# --- other servers ---------------------------------------------------------------------------------------------------


def tool_references(document: Any) -> frozenset[str]:
    """Return the words of a definition that might be names of tools; worth caching, since it is called often."""
    return frozenset(
        word for _, _, text in _texts(document) for word in _IDENTIFIER.findall(text) if _is_distinctive(word)
    )


def foreign_tool_names(server: str, words: frozenset[str], names: ToolOwners) -> ToolOwners:
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


def scan_references(document: Any, words: frozenset[str], others: ToolOwners) -> tuple[Finding, ...]:
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
    said = classify_mention(fold_text(text), name, argument=name in arguments, shared=len(servers) > 1)
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
        f"it {does} {escape_invisible(name)}, a tool of {escape_invisible(whose)}",
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
            below = [
                (f"{pointer}/{_escaped(name)}", name, each)
                for name, each in value.items()
                if name not in _SKIPPED_MEMBERS
            ]
            if key in _NAMED_BY_KEY:
                yield from ((at, "name", name) for at, name, _ in below)
            # The name of a property says nothing about its schema.
            waiting += reversed([(at, "" if key in _NAMED_BY_KEY else name, each) for at, name, each in below])


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _in_text(document: Any, pointer: str, role: _Role, text: str, kind: str) -> Iterator[Finding]:
    for odd in find_suspicious_characters(text, name=role == "name"):
        severity: Any = odd.severity
        excerpt = _excerpt(text, odd.start, odd.end)
        yield Finding(odd.rule, "characters", severity, pointer, excerpt, odd.message)
    yield from _in_words(pointer, text, kind, document)
    yield from _encoded(pointer, text, kind)
    if len(text) > _LONG:
        severity = "ask" if len(text) > _TOO_LONG else "info"
        yield Finding("too long", "size", severity, pointer, "", f"a text of {len(text)} characters")


def _in_name(document: Any, pointer: str, name: str) -> Iterator[Finding]:
    """Yield findings for the name of an argument, unless the definition is about that topic."""
    for rule in NAME_RULES:
        if _compiled(rule.pattern, rule.flags).fullmatch(name) and not (
            rule.unless_about and _is_about(document, pointer, name, rule.unless_about)
        ):
            yield _finding(rule, pointer, name, None)


def _is_about(document: Any, pointer: str, name: str, topic: str) -> bool:
    """Return True if a definition is about a topic, and the argument is not described as the reader's own data."""
    # In a list of arguments the name is a member of the argument; in a schema it is part of the pointer.
    argument = pointer.removesuffix("/name")
    own: list[str] = []
    others: list[str] = []
    for at, _, text in _texts(document):
        if text != name:
            (own if at.startswith(f"{argument}/") else others).append(fold_text(text))
    if _compiled(READER_OWNED).search(" ".join(own)):
        return False
    return _compiled(topic).search(_separate_words(" ".join(others))) is not None


def _separate_words(text: str) -> str:
    return re.sub(r"[_\W]+", " ", text)


def _has_topic(document: Any, topic: str) -> bool:
    """Return True if the texts of a definition are about a topic; paths of private files do not count as words."""
    texts = (_compiled(PRIVATE_FILE).sub(" ", fold_text(text)) for _, _, text in _texts(document))
    return _compiled(topic).search(_separate_words(" ".join(texts))) is not None


def _in_words(pointer: str, text: str, kind: str, document: Any = None) -> Iterator[Finding]:
    """Yield findings for a text; ``document`` is the definition that it is a part of."""
    text = text.rstrip()
    folded, lowered = fold_text(text), text.lower()
    words = set(_WORD.findall(folded))
    for rule in RULES:
        looked_at, signs_in = (folded, folded) if rule.folded else (text, lowered)
        if words.isdisjoint(rule.words) and not any(sign in signs_in for sign in rule.signs):
            continue
        found = None if rule.advice and kind == "instructions" else _first(rule, looked_at)
        if found is not None and not (rule.unless_about and _has_topic(document, rule.unless_about)):
            yield _finding(rule, pointer, looked_at, found)


def _first(rule: TextRule, text: str) -> re.Match[str] | None:
    """Return the first match of a rule that is not negated."""
    pattern = _compiled(rule.pattern, rule.flags)
    if rule.unless_after is None:
        return pattern.search(text)
    negation = _compiled(rule.unless_after)
    matches = pattern.finditer(text)
    return next(
        (match for match in matches if not negation.search(text, max(0, match.start() - 120), match.start())), None
    )


def _finding(rule: TextRule, pointer: str, text: str, found: re.Match[str] | None) -> Finding:
    start, end = (0, len(text)) if found is None else found.span()
    return Finding(rule.name, rule.category, rule.severity, pointer, _excerpt(text, start, end), rule.message)


def _excerpt(text: str, start: int, end: int) -> str:
    """Return a part of a text on one line, with a little context."""
    end = min(end, start + _LONGEST_EXCERPT)
    left, right = max(0, start - _AROUND), min(len(text), end + _AROUND)
    shown = escape_invisible(" ".join(text[left:right].split(" "))).replace("\n", " ").replace("\t", " ")
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
            bad = worst_severity(_in_words(pointer, said, kind)) in ("ask", "hide")
            message = f"an encoded text says {escape_invisible(said[:120])!r}"
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
