"""Loads the configuration for a command: the files given, or those found in the current directory and the user's own.

Values that the files leave open (``${input:id}``) are prompted for in the terminal, each once, and only for the servers
that are needed. Nothing is started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from trunkline.cli.output import one_line
from trunkline.cli.secrecy import book_here
from trunkline.cli.terminal import InputEnded, Terminal, is_there, unseen
from trunkline.host.config.loading import find_config, load
from trunkline.host.config.records import Configuration, Input

if TYPE_CHECKING:
    from trunkline.host.entries import ServerEntry

__all__ = ["Ask", "answers_for", "check_approved", "name_hint", "read_configuration", "typed"]

#: Returns the value of an input; None if there is no answer.
Ask: TypeAlias = Callable[[Input], str | None]


def read_configuration(files: Sequence[str] = (), *, inputs: Ask | None = None) -> Configuration:
    """Load the given files, or those that are found; managed settings of the administrator apply in both cases.

    Raises:
        ConfigError: a given file cannot be used.
    """
    found = find_config(Path.cwd())
    if files:
        loaded = load(given=files, managed=found.managed, environ=os.environ, inputs=inputs)
    else:
        loaded = load(project=found.project, user=found.user, managed=found.managed, environ=os.environ, inputs=inputs)
    # From here on, no message or error of the command shows one of these.
    book_here().add(secret for entry in loaded.entries.values() for secret in entry.secrets)
    return loaded


def name_hint(name: str, entries: Collection[str]) -> str:
    """Return a hint with the name that was probably meant, or with all known names."""
    from trunkline.host.config.spelling import nearest

    near = nearest(name, entries)
    return f"did you mean {near}?" if near else f"known names: {', '.join(entries) or 'none'}"


def check_approved(entry: ServerEntry) -> None:
    """Reject a server of a project's file that the user has not approved.

    Raises:
        PolicyDenied: it is not approved; the message has the command that approves it.
    """
    if entry.source.scope != "project":
        return
    from trunkline.errors import PolicyDenied
    from trunkline.host.assembly import trust_file
    from trunkline.host.folders import state_folder
    from trunkline.host.trust.book import TrustBook

    allowed, reason = asyncio.run(TrustBook(trust_file(state_folder())).check(entry))
    if not allowed:
        raise PolicyDenied(f"{entry.name}: {reason}")


# --- inputs ----------------------------------------------------------------------------------------------------------


def answers_for(files: Sequence[str], names: Collection[str] | None, *, no_input: bool = False) -> Ask | None:
    """Prompt for the open inputs of the named servers (None: all); return a function that has the answers.

    Returns None without a terminal: defaults and environment variables are used then.

    Raises:
        ConfigError: a given file cannot be used.
    """
    if no_input or not is_there():
        return None
    open_ones = set(_open(read_configuration(files), names))
    if not open_ones:
        return None
    answers: dict[tuple[str | None, str], str | None] = {}

    def ask(declared: Input) -> str | None:
        key = (declared.file, declared.id)
        if declared.id not in open_ones:
            return declared.default
        if key not in answers:
            answers[key] = typed(declared)
        return answers[key]

    read_configuration(files, inputs=ask)
    return lambda declared: answers.get((declared.file, declared.id), declared.default)


def _open(configuration: Configuration, names: Collection[str] | None) -> Iterator[str]:
    """Yield the IDs of the inputs that need an answer."""
    for name, entry in configuration.entries.items():
        if entry.disabled or (names is not None and name not in names):
            continue
        for value in configuration.provenance(name).values:
            for each in value.variables:
                if each.kind == "input" and each.state in ("unanswered", "default"):
                    yield each.name


def typed(declared: Input) -> str | None:
    """Prompt for a value that a file leaves open."""
    from trunkline.cli.screen import Screen

    about = f" ({one_line(declared.description)})" if declared.description else ""
    choices = f" [{', '.join(map(one_line, declared.options))}]" if declared.options else ""
    usual = f" [{one_line(declared.default)}]" if declared.default and not declared.password else ""
    try:
        with unseen() if declared.password else nullcontext():
            said = asyncio.run(Terminal(Screen(verbose=False)).ask(f"{one_line(declared.id)}{about}{choices}{usual}: "))
    except InputEnded:
        said = ""
    return said or declared.default
