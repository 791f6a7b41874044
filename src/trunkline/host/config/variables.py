"""Expands variables in a text (``${NAME}``, ``${NAME:-default}``, ``${env:NAME}``, ``${input:id}`` and known.

Folders), and decides which parts of an expanded value may be shown. A text is expanded once; what a variable holds is
not expanded again. A text that cannot be expanded gives no text at all, so a literal ``${NAME}`` never reaches a
server. Secrets of the vault are not looked up here: their names stay in place until the server is started. No I/O;
the environment comes in as ``VariableSources``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from trunkline.host.config.model import InputVariable, VariableUse
from trunkline.host.secrets.references import SCHEME, SecretReference, parse_secret_reference
from trunkline.protocol.secret_patterns import holds_secret, names_secret

__all__ = [
    "Expansion",
    "ExpansionProblem",
    "ValueContext",
    "VariableSources",
    "expand",
    "is_maskable",
    "mask_literal",
    "secret_parts",
]

#: Where a value is used: as the program, within an argument, or within a URL.
ValueContext: TypeAlias = Literal["program", "argument", "url"]

_PATH = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?[/\\]")
_ADDRESS = re.compile(r"https?://[^/?#@\s]+(?=[/?#]|\Z)", re.I)
_PROGRAM = re.compile(r"[A-Za-z]+(?:[-_][A-Za-z]+)*[0-9.]{0,8}(?:\.exe)?")
_HOST = re.compile(r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]{1,5})?")
_PIECE = re.compile(r"[^/\\.:\s]+")
# Tokens are longer than words, and have digits among their letters.
_LONG_WITH_DIGITS = 16
_LONG = 32  # Without digits, only a piece longer than any word counts as random.


def secret_parts(name: str, value: str, value_context: ValueContext) -> frozenset[str]:
    """Return the parts of a variable's value that must not be shown there: all of it if in doubt."""
    whole = frozenset({value})
    if names_secret(name, setting=True) or holds_secret(value) or not value.isprintable():
        return whole
    host = _ADDRESS.match(value)
    if host is not None:
        if _has_random_part(host.group().partition("://")[2]):
            return whole
        address, _, query = value.partition("?")
        address, _, fragment = address.partition("#")
        return frozenset({*filter(_looks_random, address[host.end() :].split("/")), *filter(None, (query, fragment))})
    plain = (
        _PATH.match(value) is not None
        or (value_context == "program" and _PROGRAM.fullmatch(value) is not None)
        or (value_context == "url" and _HOST.fullmatch(value) is not None)
    )
    return frozenset() if plain and not _has_random_part(value) else whole


def _has_random_part(value: str) -> bool:
    return any(_looks_random(piece) for piece in _PIECE.findall(value))


def _looks_random(piece: str) -> bool:
    """Return True if a part of a value looks randomly generated."""
    digits = any(letter.isdigit() for letter in piece) and any(letter.isalpha() for letter in piece)
    return len(piece) >= (_LONG_WITH_DIGITS if digits else _LONG) or "=" in piece or "+" in piece


_REFERENCE = re.compile(r"\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INPUT = re.compile(r"input:(.+)", re.S)
_SECRET = re.compile(r"secret:(.*)", re.S)
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.S)
#: Variables that describe the user and the system: masking their values everywhere would make texts unreadable.
_PUBLIC = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TEMP", "TMP", "TMPDIR", "USER", "USERPROFILE"})
#: Shorter values occur in any text by chance, so masking them would only garble what is shown.
_SHORTEST_SECRET = 4
_WORDS = frozenset({"true", "false", "null", "none"})
_SCHEME = re.compile(r"(?:basic|bearer|token|apikey|api-key) +", re.I)


class ExpansionProblem(Struct, frozen=True):
    """Why a text cannot be expanded, and the fix."""

    message: str
    fix: str


class VariableSources(Struct, frozen=True, kw_only=True):
    """The sources of variables: environment, known folders and inputs."""

    environ: Mapping[str, str]
    #: Predefined folders by name, such as ``workspaceFolder``.
    folders: Mapping[str, str] = MappingProxyType({})
    #: The inputs that the file declares.
    inputs: Mapping[str, InputVariable] = MappingProxyType({})
    #: Prompts a person, once for each input; None if there is no one to prompt.
    ask: Callable[[InputVariable], str | None] | None = None

    def __repr__(self) -> str:
        """Show nothing of the environment."""
        return "VariableSources()"


class Expansion(Struct, frozen=True, kw_only=True):
    """The result of expanding a text."""

    #: None if it could not be expanded.
    text: str | None
    #: The literal parts and, between them, the references as they were written.
    literals: tuple[str, ...]
    references: tuple[str, ...] = ()
    variables: tuple[VariableUse, ...] = ()
    secrets: frozenset[str] = frozenset()
    #: The environment variables that ``secrets`` came from, with their values.
    from_environment: tuple[tuple[str, str], ...] = ()
    problems: tuple[ExpansionProblem, ...] = ()
    #: If it names secrets of the vault: the text in parts, with their names; ``text`` has ``${secret:name}`` for
    #: each.
    sealed: tuple[str | SecretReference, ...] = ()

    def __repr__(self) -> str:
        """Show nothing of the values."""
        return "Expansion()"

    def secrets_in(self, value_context: ValueContext | None) -> frozenset[str]:
        """Return what must not be shown where the text determines what is run or contacted."""
        if value_context is None:
            return self.secrets
        parts = [part for name, value in self.from_environment for part in secret_parts(name, value, value_context)]
        others = self.secrets - {value for _, value in self.from_environment}
        return others | frozenset(part for part in parts if is_maskable(part))

    def shown(self, *, mask: Callable[[str], str] = str) -> str:
        """Return the text as it was written, with a function applied to its literal parts."""
        parts = [mask(self.literals[0])]
        for reference, literal in zip(self.references, self.literals[1:], strict=True):
            parts += (reference, mask(literal))
        return "".join(parts)


class _Resolved(Struct, frozen=True):
    """The result of one reference."""

    text: str | None
    variable: VariableUse | None = None
    secret: bool = False
    problem: ExpansionProblem | None = None
    #: The name of the vault secret it refers to.
    name: SecretReference | None = None


def expand(text: str, sources: VariableSources) -> Expansion:
    """Expand all variables of a text."""
    if text.startswith(SCHEME):
        return _expansion(["", ""], [text], [_secret(text.removeprefix(SCHEME))])
    literals, references, filled = [], [], []
    at = 0
    for found in _REFERENCE.finditer(text):
        literals.append(text[at : found.start()])
        references.append(found.group())
        filled.append(_resolve(found.group(1), sources) if found.group(2) else _unclosed())
        at = found.end()
    literals.append(text[at:])
    return _expansion(literals, references, filled)


def _expansion(literals: list[str], references: list[str], filled: list[_Resolved]) -> Expansion:
    inside = [_inside()] if any(SCHEME in literal for literal in literals) else []
    return Expansion(
        text=_joined(literals, filled),
        literals=tuple(literals),
        references=tuple(references),
        variables=tuple(each.variable for each in filled if each.variable is not None),
        secrets=frozenset(each.text for each in filled if each.secret and each.text and is_maskable(each.text)),
        from_environment=tuple(
            (each.variable.name, each.text)
            for each in filled
            if each.secret and each.text and each.variable is not None and each.variable.kind == "variable"
        ),
        problems=(*inside, *(each.problem for each in filled if each.problem is not None)),
        sealed=_sealed(literals, filled),
    )


def _sealed(literals: list[str], filled: list[_Resolved]) -> tuple[str | SecretReference, ...]:
    """Return the parts of a text that names secrets of the vault."""
    if not any(each.name for each in filled):
        return ()
    parts: list[str | SecretReference] = [literals[0]]
    for each, literal in zip(filled, literals[1:], strict=True):
        parts += (each.name or each.text or "", literal)
    return tuple(part for part in parts if part != "")


def is_maskable(value: str) -> bool:
    """Return True if a value can be masked without garbling every text; very short values and plain words cannot."""
    return len(value) >= _SHORTEST_SECRET and value.lower() not in _WORDS


def mask_literal(literal: str) -> str:
    """Mask a literal part of a secret, except its scheme (``Bearer``) and the spaces around it."""
    scheme = _SCHEME.match(literal)
    kept = "" if scheme is None else scheme.group()
    return kept + ("***" if literal[len(kept) :].strip() else literal[len(kept) :])


def _joined(literals: list[str], filled: list[_Resolved]) -> str | None:
    parts = [literals[0]]
    for each, literal in zip(filled, literals[1:], strict=True):
        if each.text is None:
            return None
        parts += (each.text, literal)
    return "".join(parts)


def _resolve(inside: str, sources: VariableSources) -> _Resolved:
    if inside in sources.folders:
        return _Resolved(sources.folders[inside], VariableUse(inside, "folder", "known"))
    asked = _INPUT.fullmatch(inside)
    if asked is not None:
        return _input(asked.group(1), sources)
    named = _SECRET.fullmatch(inside)
    if named is not None:
        return _secret(named.group(1))
    found = _VARIABLE.fullmatch(inside)
    if found is None:
        return _Resolved(None, problem=_unknown(inside))
    return _variable(found.group(1), found.group(2), sources=sources)


def _variable(name: str, default: str | None, *, sources: VariableSources) -> _Resolved:
    value = sources.environ.get(name)
    if default is not None and ("${" in default or SCHEME in default):
        problem = ExpansionProblem(f"the default of ${{{name}}} holds a variable or a secret", "write a plain default")
        return _Resolved(None, VariableUse(name, "variable", "unset"), problem=problem)
    if default is not None and not value:
        return _Resolved(default, VariableUse(name, "variable", "default"))
    if value is None:
        problem = ExpansionProblem(f"the variable {name} is not set", f"set {name}, or write ${{{name}:-default}}")
        return _Resolved(None, VariableUse(name, "variable", "unset"), problem=problem)
    return _Resolved(value, VariableUse(name, "variable", "set"), secret=name.upper() not in _PUBLIC)


def _input(name: str, sources: VariableSources) -> _Resolved:
    declared = sources.inputs.get(name)
    if declared is None:
        known = ", ".join(sorted(sources.inputs)) or "none"
        problem = ExpansionProblem(
            f"no input {name[:60]!r} is declared in this file (declared: {known})", 'declare it in "inputs"'
        )
        return _Resolved(None, VariableUse(name, "input", "unanswered"), problem=problem)
    answer = sources.environ.get(declared.variable)
    if answer is None and sources.ask is not None:
        answer = sources.ask(declared)
    elif answer is None and declared.default is not None:
        return _Resolved(declared.default, VariableUse(name, "input", "default"))
    if answer is None:
        problem = ExpansionProblem(
            f"the input {name!r} has no answer", f"run in a terminal, or set {declared.variable}"
        )
        return _Resolved(None, VariableUse(name, "input", "unanswered"), problem=problem)
    if declared.options and answer not in declared.options:
        problem = ExpansionProblem(f"the answer to the input {name!r} is none of its options", "choose one of them")
        return _Resolved(None, VariableUse(name, "input", "unanswered"), problem=problem)
    return _Resolved(answer, VariableUse(name, "input", "set"), secret=True)


def _secret(written: str) -> _Resolved:
    name = parse_secret_reference(written)
    if name is None:
        fix = "names have letters, digits, '.', '_' and '-', optionally after keyring/, file/, env/ or cmd/"
        return _Resolved(None, problem=ExpansionProblem("secret: is not followed by the name of a secret", fix))
    return _Resolved(f"${{secret:{name}}}", VariableUse(str(name), "secret", "sealed"), name=name)


def _inside() -> ExpansionProblem:
    return ExpansionProblem(f"{SCHEME} is used inside a text", "within a text, write ${secret:name}")


def _unknown(inside: str) -> ExpansionProblem:
    kind, colon, _ = inside.partition(":")
    if colon and _NAME.fullmatch(kind):
        return ExpansionProblem(f"${{{kind}:...}} is an unknown kind of variable", "use ${NAME} or ${input:id}")
    return ExpansionProblem("there is no variable name between ${ and }", "use ${NAME} or ${NAME:-default}")


def _unclosed() -> _Resolved:
    return _Resolved(None, problem=ExpansionProblem("${ has no closing }", "write ${NAME}"))
