"""Reads the values of one entry and collects problems, warnings, secrets and provenance.

Each method takes a JSON value with its position and returns what it means, or returns None and reports a problem with
file, line and key. No message or record ever contains a value that may be a secret: kinds are named instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.config.jsonc import JsonArray, JsonNode, JsonObject, JsonProperty, JsonScalar, kind_of
from trunkline.host.config.model import ConfigProblem, Provenance, ValueOrigin, VariableUse
from trunkline.host.config.spelling import hidden_space, quoted
from trunkline.host.config.variables import Expansion, ValueContext, VariableSources, expand, is_maskable, mask_literal
from trunkline.host.secrets.references import SecretTemplate
from trunkline.protocol.secret_patterns import find_secrets, hide_secrets, names_secret

__all__ = ["EntryContext", "EntryReader", "ValuePath"]

#: The path to a value within an entry.
ValuePath: TypeAlias = tuple[str | int, ...]

_BARE = re.compile(r"\$[A-Z_][A-Z0-9_]*|%[A-Z_][A-Z0-9_]*%")


class EntryContext(Struct, frozen=True, kw_only=True):
    """The context of an entry: its file, the folder that paths are relative to, and the sources of its variables."""

    file: str | None
    folder: str
    home: str
    sources: VariableSources

    def __repr__(self) -> str:
        """Show only the file, nothing of the environment."""
        return f"Ground({self.file!r})"

    def path(self, text: str) -> str:
        """Resolve a path that was written in the file to an absolute path."""
        import os

        if text == "~" or text.startswith(("~/", "~\\")):
            text = self.home + text[1:]
        return os.path.normpath(os.path.join(self.folder, text))


class EntryReader:
    """Reads one entry, and holds what was found so far."""

    def __init__(self, server: str, context: EntryContext) -> None:
        """Start without any findings."""
        self._server = quoted(server)[1:-1]
        self.context = context
        self.problems: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []
        self.secrets: set[str] = set()
        self.sealed: list[SecretTemplate] = []
        self._written: list[ValueOrigin] = []

    def provenance(self) -> Provenance:
        """Return what may be shown; a text that is secret in one place is not shown in another."""
        values = tuple(
            replace(each, shown=self._redact(each.shown), file=each.file and self._redact(each.file))
            for each in self._written
        )
        return Provenance(values=values, problems=tuple(self.problems))

    def _redact(self, text: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    # --- reporting ---------------------------------------------------------------------------------------------------

    def report_error(self, key: str | None, line: int, message: str, *, fix: str | None = None) -> None:
        """Report an error, which keeps the entry from running."""
        self.problems.append(self._problem(key, line, message, fix=fix))

    def report_warning(self, key: str | None, line: int, message: str, *, fix: str | None = None) -> None:
        """Report a warning."""
        self.warnings.append(self._problem(key, line, message, fix=fix, warning=True))

    def _problem(
        self, key: str | None, line: int, message: str, *, fix: str | None = None, warning: bool = False
    ) -> ConfigProblem:
        return ConfigProblem(
            message=message,
            fix=fix,
            severity="warning" if warning else "error",
            file=self.context.file,
            line=line or None,
            server=self._server,
            key=key,
        )

    def report_expected(self, key: str, node: JsonNode, what: str, *, fix: str | None = None) -> None:
        """Report that a value is of the wrong kind."""
        self.report_error(key, node.line, f"expected {what}, found {kind_of(node)}", fix=fix)

    def record_value(
        self, key: str, line: int, shown: str, *, variables: Iterable[VariableUse] = (), file: str | None = None
    ) -> None:
        """Record where a value was written."""
        at = self.context.file if file is None else file
        self._written.append(
            ValueOrigin(key=key, shown=shown, file=at, line=line or None, variables=tuple(dict.fromkeys(variables)))
        )

    def mark_secret(self, value: str) -> None:
        """Record a value that must not be shown; names of vault secrets may be shown."""
        if is_maskable(value) and not any(
            f"${{secret:{name}}}" in value for each in self.sealed for name in each.names
        ):
            self.secrets.add(value)

    # --- reading -----------------------------------------------------------------------------------------------------

    def text(
        self,
        key: str,
        node: JsonNode,
        *,
        show: Callable[[Expansion], str] | None = None,
        place: ValuePath | None = None,
        value_context: ValueContext | None = None,
    ) -> str | None:
        """Read a string and expand its variables; it may name secrets of the vault if ``place`` is given.

        Where a value decides what is run or contacted (``spot``), variables that are clearly not secret may be shown.
        """
        if not isinstance(node, JsonScalar) or not isinstance(node.value, str):
            self.report_expected(key, node, "a string", fix=_text_fix(node))
            return None
        expansion = expand(node.value, self.context.sources)
        for problem in expansion.problems:
            self.report_error(key, node.line, problem.message, fix=problem.fix)
        self.secrets.update(expansion.secrets_in(value_context))
        if expansion.sealed:
            self._seal(key, node, expansion, place)
        self._mark_secret_patterns(expansion)
        shown = expansion.shown(mask=hide_secrets) if show is None else show(expansion)
        self.record_value(key, node.line, shown, variables=expansion.variables)
        if expansion.text is not None and "\x00" in expansion.text:
            self.report_error(key, node.line, "the text holds the character U+0000, which no program can be given")
            return None
        return expansion.text

    def _mark_secret_patterns(self, expansion: Expansion) -> None:
        """Mark parts that look like a secret, such as the password of a connection string."""
        for text in (expansion.text or "", *expansion.literals):
            for span in find_secrets(text):
                self.mark_secret(text[span.start : span.end])

    def _seal(self, key: str, node: JsonScalar, expansion: Expansion, place: ValuePath | None) -> None:
        """Record which secrets are to be filled in when the server is started."""
        if place is None:
            fix = "secrets go into args, env, headers, url and oauth"
            self.report_error(key, node.line, "a secret cannot stand here", fix=fix)
            return
        self.sealed.append(SecretTemplate(place, expansion.sealed))

    def secret_text(self, key: str, node: JsonNode, *, place: ValuePath | None = None) -> str | None:
        """Read a string that is secret even where it is written out."""
        value = self.text(key, node, show=lambda expansion: expansion.shown(mask=mask_literal), place=place)
        if value is not None and isinstance(node, JsonScalar) and isinstance(node.value, str):
            self.mark_secret(value.partition(" ")[2].strip() or value)
            self.mark_secret(value)
        return value

    def clean_text(self, key: str, node: JsonNode, *, value_context: ValueContext | None = None) -> str | None:
        """Read a string in which a hidden space would be a mistake."""
        if isinstance(node, JsonScalar) and isinstance(node.value, str) and (space := hidden_space(node.value)):
            self.report_error(key, node.line, f"the value has {space}", fix="take it out")
            return None
        return self.text(key, node, value_context=value_context)

    def texts(self, key: str, node: JsonNode) -> tuple[str, ...]:
        """Read a list of strings."""
        found = [self.text(f"{key}[{at}]", item) for at, item in enumerate(self.list_of(key, node))]
        return tuple(text for text in found if text is not None)

    def list_of(self, key: str, node: JsonNode) -> tuple[JsonNode, ...]:
        """Return the items of a list, unread."""
        if not isinstance(node, JsonArray):
            self.report_expected(key, node, "a list of strings")
            return ()
        return node.items

    def members(self, key: str, node: JsonNode) -> JsonObject | None:
        """Read an object; a repeated name is a problem."""
        if not isinstance(node, JsonObject):
            self.report_expected(key, node, "an object")
            return None
        self.check_repeated(key, node)
        return node

    def check_repeated(self, key: str | None, node: JsonObject) -> None:
        """Report names that occur twice in an object."""
        for name, first, second in node.repeated:
            path = name if key is None else f"{key}.{name}"
            self.report_error(
                path, second, f"it is written twice, on lines {first} and {second}", fix="keep one of them"
            )

    def tree(self, key: str, node: JsonNode, *, place: ValuePath | None = None) -> Any:
        """Read a value of any kind, and expand the variables of all strings in it."""
        if isinstance(node, JsonArray):
            return [self.tree(f"{key}[{at}]", item, place=_in(place, at)) for at, item in enumerate(node.items)]
        if isinstance(node, JsonObject):
            self.check_repeated(key, node)
            return {name: self._leaf(f"{key}.{name}", member, place) for name, member in node.members.items()}
        if isinstance(node.value, str):
            return self.text(key, node, place=place)
        self.record_value(key, node.line, _scalar(node))
        return node.value

    def _leaf(self, key: str, member: JsonProperty, place: ValuePath | None) -> Any:
        inner = _in(place, member.name)
        if (
            names_secret(member.name, setting=True)
            and isinstance(member.value, JsonScalar)
            and isinstance(member.value.value, str)
        ):
            return self.secret_text(key, member.value, place=inner)
        return self.tree(key, member.value, place=inner)

    def check_bare(self, key: str, node: JsonNode) -> None:
        """Warn about ``$NAME`` and ``%NAME%``, which other applications expand and this one does not."""
        if isinstance(node, JsonScalar) and isinstance(node.value, str) and (found := _BARE.fullmatch(node.value)):
            name = found.group().strip("$%")
            self.report_warning(
                key, node.line, f"{found.group()} is passed on as it is written", fix=f"write ${{{name}}}"
            )


def _in(place: ValuePath | None, step: str | int) -> ValuePath | None:
    return None if place is None else (*place, step)


def _text_fix(node: JsonNode) -> str | None:
    numeric = isinstance(node, JsonScalar) and node.value is not None
    return "write it in double quotes" if numeric else None


def _scalar(node: JsonScalar) -> str:
    if isinstance(node.value, bool) or node.value is None:
        return kind_of(node)
    return str(node.value)
