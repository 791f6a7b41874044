"""Parses how a server is reached.

A command with arguments, environment and working directory, or a URL with headers and login. Values whose names
suggest a secret are treated as secrets even where they are written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from trunkline.host.config.documents import UnreadableFile, parse_env_file, read_text
from trunkline.host.config.entry_reader import EntryReader
from trunkline.host.config.jsonc import JsonNode, JsonObject, JsonProperty, JsonScalar
from trunkline.host.config.spelling import hidden_space, quoted
from trunkline.host.config.variables import Expansion, mask_literal
from trunkline.protocol.secret_patterns import find_secrets, hide_secrets, names_secret, secret_path_segments

__all__ = ["TransportConfig", "parse_http", "parse_stdio", "warn_unused"]


class TransportConfig(NamedTuple):
    """How a server is reached, as far as it could be parsed."""

    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = MappingProxyType({})
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    type: str | None = None
    auth: Any = None


def warn_unused(found: Mapping[str, JsonProperty], names: tuple[str, ...], *, reader: EntryReader, why: str) -> None:
    """Warn about members that have no meaning for this kind of entry."""
    for name in names:
        if name in found:
            reader.report_warning(found[name].name, found[name].line, f"it is ignored: {why}")


_FLAG = re.compile(r"-{0,2}([A-Za-z_][\w-]*)(=.*)?", re.S)


def parse_stdio(found: Mapping[str, JsonProperty], reader: EntryReader, *, kind: str | None) -> TransportConfig:
    """Parse an entry whose server is started as a process."""
    if kind not in (None, "stdio"):
        key, line = found["type"].name, found["type"].line
        reader.report_error(key, line, f'an entry with "command" has type stdio, not {kind}', fix='remove "type"')
    warn_unused(found, ("headers", "auth", "oauth"), reader=reader, why="it is for servers with a url")
    command = _command(found, reader)
    arguments = _arguments(found["args"].value, reader, program=command or "") if "args" in found else ()
    own = _env(found, reader)
    env = {**_env_file(found, reader, taken=own), **own}
    cwd = reader.clean_text("cwd", found["cwd"].value) if "cwd" in found else None
    return TransportConfig(
        command=None if command is None else (command, *arguments),
        env=MappingProxyType(env),
        cwd=None if cwd is None else reader.context.path(cwd),
    )


def _command(found: Mapping[str, JsonProperty], reader: EntryReader) -> str | None:
    node = found["command"].value
    if not isinstance(node, JsonScalar) or not isinstance(node.value, str):
        reader.report_expected("command", node, "the name of a program", fix='the rest goes into "args"')
        return None
    command = reader.clean_text("command", node, value_context="program")
    if command == "":
        reader.report_error("command", node.line, "it is empty")
    if command and re.search(r"\s-", node.value) and "args" not in found:
        reader.report_warning(
            "command", node.line, "it is one program with spaces in its name", fix='put the arguments into "args"'
        )
    if command and command.startswith(("~/", "~\\")):
        return reader.context.path(command)
    return command


def _arguments(node: JsonNode, reader: EntryReader, *, program: str) -> tuple[str, ...]:
    """Read the arguments; the value of an option whose name suggests a secret is not shown."""
    items = reader.list_of("args", node)
    found: list[str] = []
    secret = False
    for at, item in enumerate(items):
        written = item.value if isinstance(item, JsonScalar) and isinstance(item.value, str) else ""
        flag = _FLAG.fullmatch(written)
        named = flag is not None and names_secret(flag.group(1), setting=True)
        text = reader.text(
            f"args[{at}]",
            item,
            show=_argument_mask(secret=secret, named=named),
            place=("command", at + 1),
            value_context=None if secret or named else "argument",
        )
        if secret and text is not None:
            reader.mark_secret(text)
        if named and text is not None and "=" in text:
            reader.mark_secret(text.partition("=")[2])
        # ``-pVALUE`` is a password of some programs.
        line = f"{program} {text}" if text is not None and text.startswith("-p") else ""
        for span in find_secrets(line):
            reader.mark_secret(line[span.start : span.end])
        secret = named and written.startswith("-") and "=" not in written
        if space := hidden_space(written.strip()):
            reader.report_warning(f"args[{at}]", item.line, f"the value has {space}")
        found += () if text is None else (text,)
    return tuple(found)


def _argument_mask(*, secret: bool, named: bool) -> Callable[[Expansion], str]:
    def show(expansion: Expansion) -> str:
        if secret:
            return expansion.shown(mask=mask_literal)
        shown = expansion.shown(mask=hide_secrets)
        name, equals, value = shown.partition("=")
        return f"{name}=***" if named and equals and "${" not in value else shown

    return show


def _env(found: Mapping[str, JsonProperty], reader: EntryReader) -> dict[str, str]:
    values: dict[str, str] = {}
    if "env" not in found:
        return values
    node = reader.members("env", found["env"].value)
    for name, member in {} if node is None else node.members.items():
        key = f"env.{name}" if name.isprintable() else f"env.{quoted(name)}"
        if not name or "=" in name or "\x00" in name or hidden_space(name):
            reader.report_error(
                key, member.line, "it is not a valid variable name", fix=f"write {quoted(name.strip())}"
            )
            continue
        read = reader.secret_text if names_secret(name, setting=True) else reader.text
        value = read(key, member.value, place=("env", name))
        reader.check_bare(key, member.value)
        if value is not None:
            values[name] = value
    return values


def _env_file(found: Mapping[str, JsonProperty], reader: EntryReader, *, taken: Mapping[str, str]) -> dict[str, str]:
    """Read the variables of the env file; those that the entry sets itself take precedence."""
    if "env_file" not in found:
        return {}
    member = found["env_file"]
    written = reader.clean_text(member.name, member.value)
    if written is None:
        return {}
    path = reader.context.path(written)
    try:
        lines = parse_env_file(read_text(path, plain_only=True))
    except UnreadableFile as error:
        reader.report_error(member.name, member.line, f"the file cannot be used: {error.message}", fix=error.fix)
        return {}
    values: dict[str, str] = {}
    for line in lines:
        if line.name is None or "\x00" in line.value:
            reader.report_error(member.name, member.line, f"line {line.line} of the file is no NAME=value")
            continue
        reader.mark_secret(line.value)
        if line.name not in taken:
            reader.record_value(f"env.{line.name}", line.line, "***", file=path)
            values[line.name] = line.value
    return values


_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_QUERY_VALUE = re.compile(r"(?<==)[^&#]+")
_USER = re.compile(r"(?<=://)[^/?#]*@")
_SECRET_HOST = re.compile(r"(?:[a-z]+://)?[^/?#]*\$\{secret:")


def parse_http(
    found: Mapping[str, JsonProperty], urls: list[str], *, reader: EntryReader, kind: str | None
) -> TransportConfig:
    """Parse an entry whose server is reached at a URL."""
    if len(urls) > 1:
        first, second = found[urls[0]], found[urls[1]]
        reader.report_error(
            second.name, second.line, f"{first.name} says the same thing (line {first.line})", fix="keep one of them"
        )
    if kind == "stdio":
        reader.report_error(
            found["type"].name, found["type"].line, 'an entry with "url" has type http or sse, not stdio'
        )
    warn_unused(found, ("args", "env", "env_file", "cwd"), reader=reader, why="it is for servers that are started")
    member = found[urls[0]]
    if urls[0] == "http_url" and kind is None:
        kind = "http"
    return TransportConfig(
        url=_url(member, reader),
        headers=MappingProxyType(_headers(found, reader)),
        type=kind,
        auth=_auth(found, reader),
    )


def _url(member: JsonProperty, reader: EntryReader) -> str | None:
    node = member.value
    if isinstance(node, JsonScalar) and isinstance(node.value, str) and (space := hidden_space(node.value)):
        reader.report_error(member.name, node.line, f"the value has {space}", fix="take it out")
        return None
    url = reader.text(member.name, node, show=_shown_url, place=("url",), value_context="url")
    if url is None:
        return None
    if _SECRET_HOST.match(url):
        fix = "a secret may stand after the host, as in https://example.com/${secret:name}"
        reader.report_error(member.name, node.line, "the host of a URL cannot be a secret", fix=fix)
        return None
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not _VISIBLE.fullmatch(url):
        reader.report_error(
            member.name,
            node.line,
            "it is not the URL of a server",
            fix="it begins with http:// or https:// and names a host",
        )
        return None
    if "@" in parts.netloc:
        reader.report_error(member.name, node.line, "it has a user or a password in it", fix="give them by headers")
        return None
    for name, value in parse_qsl(parts.query):
        if names_secret(name, setting=True):
            reader.mark_secret(value)
    for segment in secret_path_segments(url):
        reader.mark_secret(segment)
    reader.check_bare(member.name, node)
    return url


def _shown_url(expansion: Expansion) -> str:
    """Mask what may be secret in the literal parts of a URL: the user, and the values of the query."""
    shown = _USER.sub("***@", expansion.shown(mask=hide_secrets))
    address, mark, query = shown.partition("?")
    return address + mark + _QUERY_VALUE.sub(lambda value: value.group() if "${" in value.group() else "***", query)


def _headers(found: Mapping[str, JsonProperty], reader: EntryReader) -> dict[str, str]:
    values: dict[str, str] = {}
    if "headers" not in found:
        return values
    node = reader.members("headers", found["headers"].value)
    for name, member in {} if node is None else node.members.items():
        if not _HEADER_NAME.fullmatch(name):
            reader.report_error(
                f"headers.{quoted(name)}",
                member.line,
                "it is not a valid header name",
                fix=f"write {quoted(name.strip())}",
            )
            continue
        if any(name.lower() == other.lower() for other in values):
            reader.report_error(f"headers.{name}", member.line, "the header is given twice", fix="keep one of them")
        value = _header(f"headers.{name}", member, reader)
        if value is not None:
            values[name] = value
    return values


def _header(key: str, member: JsonProperty, reader: EntryReader) -> str | None:
    if names_secret(member.name, setting=True):
        value = reader.secret_text(key, member.value, place=("headers", member.name))
    else:
        value = reader.text(key, member.value, show=_shown_header, place=("headers", member.name))
    reader.check_bare(key, member.value)
    if value is not None and (not _HEADER_VALUE.fullmatch(value) or value != value.strip()):
        fix = "look for a line end or a space at the end of the value"
        reader.report_error(key, member.line, "the expanded value has characters that a header cannot carry", fix=fix)
        return None
    return value


def _shown_header(expansion: Expansion) -> str:
    return expansion.shown(mask=mask_literal)


def _auth(found: Mapping[str, JsonProperty], reader: EntryReader) -> Any:
    given = [found[name] for name in ("auth", "oauth") if name in found]
    if len(given) > 1:
        reader.report_error(
            "oauth", given[1].line, f"auth says the same thing (line {given[0].line})", fix="keep one of them"
        )
    if not given:
        return None
    member, node = given[0], given[0].value
    if isinstance(node, JsonObject):
        return reader.tree(member.name, node, place=("auth",))
    if isinstance(node, JsonScalar) and (node.value == "oauth" or (node.value is True and member.name == "oauth")):
        reader.record_value(member.name, node.line, "oauth")
        return "oauth"
    if isinstance(node, JsonScalar) and (node.value is False or node.value == "none"):
        reader.record_value(member.name, node.line, "none")
        return None
    fix = "a token goes into headers, as Authorization"
    reader.report_error(
        member.name, node.line, 'expected "oauth" or an object with clientId, scopes and the like', fix=fix
    )
    return None
