"""Parses an entry with a command: program, arguments, environment and working directory.

Values of arguments and variables whose names suggest a secret are treated as secrets even where they are written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from trunkline.host.config.collecting import Collector
from trunkline.host.config.env_files import read_env_file
from trunkline.host.config.files import Unreadable, read_text
from trunkline.host.config.positions import Leaf, Member, Node
from trunkline.host.config.reaching import Reach, say_unused
from trunkline.host.config.spelling import hidden_space, quoted
from trunkline.host.config.variables import Expansion, masked
from trunkline.protocol.secret_looks import hide_secrets, names_secret

__all__ = ["by_command"]

_FLAG = re.compile(r"-{0,2}([A-Za-z_][\w-]*)(=.*)?", re.S)


def by_command(found: Mapping[str, Member], into: Collector, *, kind: str | None) -> Reach:
    """Parse an entry whose server is started as a process."""
    if kind not in (None, "stdio"):
        key, line = found["type"].name, found["type"].line
        into.fail(key, line, f"an entry with a command is of type stdio, not {kind}", fix="take the type out")
    say_unused(found, ("headers", "auth", "oauth"), into=into, why="it is for servers with a url")
    command = _command(found, into)
    arguments = _arguments(found["args"].value, into) if "args" in found else ()
    own = _env(found, into)
    env = {**_env_file(found, into, taken=own), **own}
    cwd = into.clean_text("cwd", found["cwd"].value) if "cwd" in found else None
    return Reach(
        command=None if command is None else (command, *arguments),
        env=MappingProxyType(env),
        cwd=None if cwd is None else into.ground.path(cwd),
    )


def _command(found: Mapping[str, Member], into: Collector) -> str | None:
    node = found["command"].value
    if not isinstance(node, Leaf) or not isinstance(node.value, str):
        into.expected("command", node, "the name of a program", fix='the rest goes into "args"')
        return None
    command = into.clean_text("command", node, spot="program")
    if command == "":
        into.fail("command", node.line, "it is empty")
    if command and re.search(r"\s-", node.value) and "args" not in found:
        into.warn(
            "command", node.line, "it is one program with spaces in its name", fix='put the arguments into "args"'
        )
    if command and command.startswith(("~/", "~\\")):
        return into.ground.path(command)
    return command


def _arguments(node: Node, into: Collector) -> tuple[str, ...]:
    """Read the arguments; the value of an option whose name suggests a secret is not shown."""
    items = into.list_of("args", node)
    found: list[str] = []
    secret = False
    for at, item in enumerate(items):
        written = item.value if isinstance(item, Leaf) and isinstance(item.value, str) else ""
        flag = _FLAG.fullmatch(written)
        named = flag is not None and names_secret(flag.group(1), setting=True)
        text = into.text(
            f"args[{at}]",
            item,
            show=_argument_mask(secret=secret, named=named),
            place=("command", at + 1),
            spot=None if secret or named else "argument",
        )
        if secret and text is not None:
            into.hide(text)
        if named and text is not None and "=" in text:
            into.hide(text.partition("=")[2])
        secret = named and written.startswith("-") and "=" not in written
        if space := hidden_space(written.strip()):
            into.warn(f"args[{at}]", item.line, f"the value has {space}")
        found += () if text is None else (text,)
    return tuple(found)


def _argument_mask(*, secret: bool, named: bool) -> Callable[[Expansion], str]:
    def show(expansion: Expansion) -> str:
        if secret:
            return expansion.shown(mask=masked)
        shown = expansion.shown(mask=hide_secrets)
        name, equals, value = shown.partition("=")
        return f"{name}=***" if named and equals and "${" not in value else shown

    return show


def _env(found: Mapping[str, Member], into: Collector) -> dict[str, str]:
    values: dict[str, str] = {}
    if "env" not in found:
        return values
    node = into.members("env", found["env"].value)
    for name, member in {} if node is None else node.members.items():
        key = f"env.{name}" if name.isprintable() else f"env.{quoted(name)}"
        if not name or "=" in name or "\x00" in name or hidden_space(name):
            into.fail(key, member.line, "it is not a valid variable name", fix=f"write {quoted(name.strip())}")
            continue
        read = into.secret_text if names_secret(name, setting=True) else into.text
        value = read(key, member.value, place=("env", name))
        into.check_bare(key, member.value)
        if value is not None:
            values[name] = value
    return values


def _env_file(found: Mapping[str, Member], into: Collector, *, taken: Mapping[str, str]) -> dict[str, str]:
    """Read the variables of the env file; those that the entry sets itself take precedence."""
    if "env_file" not in found:
        return {}
    member = found["env_file"]
    written = into.clean_text(member.name, member.value)
    if written is None:
        return {}
    path = into.ground.path(written)
    try:
        lines = read_env_file(read_text(path, plain_only=True))
    except Unreadable as error:
        into.fail(member.name, member.line, f"the file cannot be used: {error.message}", fix=error.fix)
        return {}
    values: dict[str, str] = {}
    for line in lines:
        if line.name is None or "\x00" in line.value:
            into.fail(member.name, member.line, f"line {line.line} of the file is no NAME=value")
            continue
        into.hide(line.value)
        if line.name not in taken:
            into.note(f"env.{line.name}", line.line, "***", file=path)
            values[line.name] = line.value
    return values
