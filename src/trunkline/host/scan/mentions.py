"""How a text mentions the tool of another server: not at all, by name, or with instructions on its use.

A server may not tell a model how to use the tools of another one: that is how a harmless server takes over a dangerous
one (shadowing). But names of tools are also names of fields, options and events, and some of them (``read_file``) are
common to half of all servers. So a name counts only where a sentence treats it as a tool. Pure functions over folded
texts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Mention", "mention_of"]

#: ``steers``: the text says how the other tool should be used. ``names``: it mentions the tool.
Mention: TypeAlias = Literal["steers", "names"]

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


def mention_of(text: str, name: str, *, argument: bool, shared: bool) -> Mention | None:
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
