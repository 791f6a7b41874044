"""The result of loading a configuration: active and inactive entries, with their problems and provenance.

Nothing in these records is secret: values are stored in the form in which they may be shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from trunkline.host.config.rules import Rules
from trunkline.host.entries import Scope, ServerEntry, Source

__all__ = [
    "Configuration",
    "Hidden",
    "Input",
    "LoadedFile",
    "Problem",
    "Provenance",
    "Variable",
    "VariableState",
    "Written",
]

#: ``set``: its value is used; ``unset``; ``default``: the default in the file is used; ``unanswered``: an input without
#: an answer; ``known``: a predefined folder; ``sealed``: a secret that is looked up right before the server is started.
VariableState: TypeAlias = Literal["set", "unset", "default", "unanswered", "known", "sealed"]


class Problem(Struct, frozen=True, kw_only=True):
    """What is wrong, where, and how to fix it."""

    message: str
    fix: str | None = None
    #: An error disables a server or a file; a warning does not.
    severity: Literal["error", "warning"] = "error"
    file: str | None = None
    line: int | None = None
    column: int | None = None
    server: str | None = None
    #: The member, as a path within the entry, or within the file where no server is named.
    key: str | None = None

    def __str__(self) -> str:
        """Return all of it on one line."""
        path = ".".join(part for part in (self.server, self.key) if part)
        return ": ".join(part for part in (self.place, path, self.sentence) if part)

    @property
    def place(self) -> str:
        """The file with the line, as editors and terminals link it."""
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join((self.file or "", *numbers)) if self.file else ""

    @property
    def sentence(self) -> str:
        """What is wrong and the fix, without the place."""
        return self.message if self.fix is None else f"{self.message}; {self.fix}"


class Input(Struct, frozen=True, kw_only=True):
    """A value that a person is prompted for."""

    id: str
    description: str = ""
    #: Whether it is masked while it is typed.
    password: bool = False
    default: str | None = None
    #: The values to choose from; empty for any value.
    options: tuple[str, ...] = ()
    #: The file that declares it.
    file: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable that can provide the answer."""
        word = "".join(each if each.isascii() and each.isalnum() else "_" for each in self.id)
        return f"TRUNKLINE_INPUT_{word.upper()}"


class Variable(Struct, frozen=True):
    """A variable that a value uses, without its content."""

    name: str
    kind: Literal["variable", "input", "folder", "secret"]
    state: VariableState


class Written(Struct, frozen=True, kw_only=True):
    """Where one value of an entry was written, and how it may be shown."""

    key: str
    shown: str
    file: str | None = None
    line: int | None = None
    variables: tuple[Variable, ...] = ()


class Provenance(Struct, frozen=True, kw_only=True):
    """Where the values of one entry came from, and what is wrong with it."""

    values: tuple[Written, ...] = ()
    problems: tuple[Problem, ...] = ()


class Hidden(Struct, frozen=True, kw_only=True):
    """An entry that is not active: overridden by another, or denied by a rule."""

    entry: ServerEntry
    why: str
    #: The entry or the rule that makes it inactive.
    by: Source | None = None


class LoadedFile(Struct, frozen=True, kw_only=True):
    """A file that was read, or could not be."""

    path: str
    scope: Scope
    #: The names of its entries, including inactive ones.
    servers: tuple[str, ...] = ()
    problem: Problem | None = None


class Configuration(Struct, frozen=True, kw_only=True):
    """The effective configuration after all files were loaded."""

    #: The active entries by name, including those that cannot run.
    entries: Mapping[str, ServerEntry] = MappingProxyType({})
    hidden: tuple[Hidden, ...] = ()
    #: Problems of whole files, and warnings; errors of one entry are in its ``problem`` and its provenance.
    problems: tuple[Problem, ...] = ()
    files: tuple[LoadedFile, ...] = ()
    #: The administrator's rules for servers that are not managed; they also apply to servers that are added later.
    rules: Rules = Rules()
    written: Mapping[str, Provenance] = MappingProxyType({})

    def provenance(self, name: str) -> Provenance:
        """Return where the values of an active entry came from."""
        return self.written.get(name, Provenance())
