"""Parses an entry with a URL: address, headers and login.

Parts of a URL or header that may be secret are never shown, even where they are written out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from trunkline.host.config.collecting import Collector
from trunkline.host.config.positions import Leaf, Member, Members
from trunkline.host.config.reaching import Reach, say_unused
from trunkline.host.config.spelling import hidden_space, quoted
from trunkline.host.config.variables import Expansion, masked
from trunkline.protocol.secret_looks import hide_secrets, names_secret

__all__ = ["by_url"]

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_QUERY_VALUE = re.compile(r"(?<==)[^&#]+")
_USER = re.compile(r"(?<=://)[^/?#]*@")
_SECRET_HOST = re.compile(r"(?:[a-z]+://)?[^/?#]*\$\{secret:")


def by_url(found: Mapping[str, Member], urls: list[str], *, into: Collector, kind: str | None) -> Reach:
    """Parse an entry whose server is reached at a URL."""
    if len(urls) > 1:
        first, second = found[urls[0]], found[urls[1]]
        into.fail(
            second.name, second.line, f"{first.name} says the same thing (line {first.line})", fix="keep one of them"
        )
    if kind == "stdio":
        into.fail(found["type"].name, found["type"].line, "an entry with a url is of type http or sse, not stdio")
    say_unused(found, ("args", "env", "env_file", "cwd"), into=into, why="it is for servers that are started")
    member = found[urls[0]]
    if urls[0] == "http_url" and kind is None:
        kind = "http"
    return Reach(
        url=_url(member, into), headers=MappingProxyType(_headers(found, into)), type=kind, auth=_auth(found, into)
    )


def _url(member: Member, into: Collector) -> str | None:
    node = member.value
    if isinstance(node, Leaf) and isinstance(node.value, str) and (space := hidden_space(node.value)):
        into.fail(member.name, node.line, f"the value has {space}", fix="take it out")
        return None
    url = into.text(member.name, node, show=_shown_url, place=("url",), spot="url")
    if url is None:
        return None
    if _SECRET_HOST.match(url):
        fix = "a secret may stand after the host, as in https://example.com/${secret:name}"
        into.fail(member.name, node.line, "the host of a URL cannot be a secret", fix=fix)
        return None
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not _VISIBLE.fullmatch(url):
        into.fail(
            member.name,
            node.line,
            "it is not the URL of a server",
            fix="it begins with http:// or https:// and names a host",
        )
        return None
    if "@" in parts.netloc:
        into.fail(member.name, node.line, "it has a user or a password in it", fix="give them by headers")
        return None
    for name, value in parse_qsl(parts.query):
        if names_secret(name, setting=True):
            into.hide(value)
    into.check_bare(member.name, node)
    return url


def _shown_url(expansion: Expansion) -> str:
    """Mask what may be secret in the literal parts of a URL: the user, and the values of the query."""
    shown = _USER.sub("***@", expansion.shown(mask=hide_secrets))
    address, mark, query = shown.partition("?")
    return address + mark + _QUERY_VALUE.sub(lambda value: value.group() if "${" in value.group() else "***", query)


def _headers(found: Mapping[str, Member], into: Collector) -> dict[str, str]:
    values: dict[str, str] = {}
    if "headers" not in found:
        return values
    node = into.members("headers", found["headers"].value)
    for name, member in {} if node is None else node.members.items():
        if not _HEADER_NAME.fullmatch(name):
            into.fail(
                f"headers.{quoted(name)}",
                member.line,
                "it is not a valid header name",
                fix=f"write {quoted(name.strip())}",
            )
            continue
        if any(name.lower() == other.lower() for other in values):
            into.fail(f"headers.{name}", member.line, "the header is given twice", fix="keep one of them")
        value = _header(f"headers.{name}", member, into)
        if value is not None:
            values[name] = value
    return values


def _header(key: str, member: Member, into: Collector) -> str | None:
    if names_secret(member.name, setting=True):
        value = into.secret_text(key, member.value, place=("headers", member.name))
    else:
        value = into.text(key, member.value, show=_shown_header, place=("headers", member.name))
    into.check_bare(key, member.value)
    if value is not None and (not _HEADER_VALUE.fullmatch(value) or value != value.strip()):
        fix = "look for a line end or a space at the end of the value"
        into.fail(key, member.line, "the expanded value has characters that a header cannot carry", fix=fix)
        return None
    return value


def _shown_header(expansion: Expansion) -> str:
    return expansion.shown(mask=masked)


def _auth(found: Mapping[str, Member], into: Collector) -> Any:
    given = [found[name] for name in ("auth", "oauth") if name in found]
    if len(given) > 1:
        into.fail("oauth", given[1].line, f"auth says the same thing (line {given[0].line})", fix="keep one of them")
    if not given:
        return None
    member, node = given[0], given[0].value
    if isinstance(node, Members):
        return into.tree(member.name, node, place=("auth",))
    if isinstance(node, Leaf) and (node.value == "oauth" or (node.value is True and member.name == "oauth")):
        into.note(member.name, node.line, "oauth")
        return "oauth"
    if isinstance(node, Leaf) and (node.value is False or node.value == "none"):
        into.note(member.name, node.line, "none")
        return None
    fix = "a token goes into headers, as Authorization"
    into.fail(member.name, node.line, 'expected "oauth" or an object with clientId, scopes and the like', fix=fix)
    return None
