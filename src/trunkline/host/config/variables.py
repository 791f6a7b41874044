"""Expands variables in a text: ``${NAME}``, ``${NAME:-default}``, ``${env:NAME}``, ``${input:id}`` and known folders.

A text is expanded once: the value of a variable is not expanded again. A text that cannot be expanded gives no text at
all, so that a literal ``${NAME}`` never reaches a server. What came from outside the file counts as secret. A secret of
the user's vault (``secret://name``, ``${secret:name}``) is not looked up here: its name stays in place until the server
is started. No I/O; the environment comes in as ``VariableSources``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.config.openness import Spot, hidden_parts
from trunkline.host.config.records import Input, Variable
from trunkline.host.secrecy.names import SCHEME, SecretName, read_secret_name

__all__ = ["Expansion", "Fault", "Surroundings", "expand", "is_secret", "masked"]

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


class Fault(Struct, frozen=True):
    """Why a text cannot be expanded, and the fix."""

    message: str
    fix: str


class Surroundings(Struct, frozen=True, kw_only=True):
    """The sources of variables: environment, known folders and inputs."""

    environ: Mapping[str, str]
    #: Predefined folders by name, such as ``workspaceFolder``.
    folders: Mapping[str, str] = MappingProxyType({})
    #: The inputs that the file declares.
    inputs: Mapping[str, Input] = MappingProxyType({})
    #: Prompts a person, once for each input; None if there is no one to prompt.
    ask: Callable[[Input], str | None] | None = None

    def __repr__(self) -> str:
        """Show nothing of the environment."""
        return "Surroundings()"


class Expansion(Struct, frozen=True, kw_only=True):
    """The result of expanding a text."""

    #: None if it could not be expanded.
    text: str | None
    #: The literal parts and, between them, the references as they were written.
    literals: tuple[str, ...]
    references: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    secrets: frozenset[str] = frozenset()
    #: The environment variables that ``secrets`` came from, with their values.
    came: tuple[tuple[str, str], ...] = ()
    faults: tuple[Fault, ...] = ()
    #: If it names secrets of the vault: the text in parts, with their names; ``text`` has ``${secret:name}`` for
    #: each.
    sealed: tuple[str | SecretName, ...] = ()

    def __repr__(self) -> str:
        """Show nothing of the values."""
        return "Expansion()"

    def secrets_at(self, spot: Spot | None) -> frozenset[str]:
        """Return what must not be shown where the text determines what is run or contacted."""
        if spot is None:
            return self.secrets
        parts = [part for name, value in self.came for part in hidden_parts(name, value, spot)]
        others = self.secrets - {value for _, value in self.came}
        return others | frozenset(part for part in parts if is_secret(part))

    def shown(self, *, mask: Callable[[str], str] = str) -> str:
        """Return the text as it was written, with a function applied to its literal parts."""
        parts = [mask(self.literals[0])]
        for reference, literal in zip(self.references, self.literals[1:], strict=True):
            parts += (reference, mask(literal))
        return "".join(parts)


class _Filled(Struct, frozen=True):
    """The result of one reference."""

    text: str | None
    variable: Variable | None = None
    secret: bool = False
    fault: Fault | None = None
    #: The name of the vault secret it refers to.
    name: SecretName | None = None


def expand(text: str, around: Surroundings) -> Expansion:
    """Expand all variables of a text."""
    if text.startswith(SCHEME):
        return _expansion(["", ""], [text], [_secret(text.removeprefix(SCHEME))])
    literals, references, filled = [], [], []
    at = 0
    for found in _REFERENCE.finditer(text):
        literals.append(text[at : found.start()])
        references.append(found.group())
        filled.append(_fill(found.group(1), around) if found.group(2) else _unclosed())
        at = found.end()
    literals.append(text[at:])
    return _expansion(literals, references, filled)


def _expansion(literals: list[str], references: list[str], filled: list[_Filled]) -> Expansion:
    inside = [_inside()] if any(SCHEME in literal for literal in literals) else []
    return Expansion(
        text=_joined(literals, filled),
        literals=tuple(literals),
        references=tuple(references),
        variables=tuple(each.variable for each in filled if each.variable is not None),
        secrets=frozenset(each.text for each in filled if each.secret and each.text and is_secret(each.text)),
        came=tuple(
            (each.variable.name, each.text)
            for each in filled
            if each.secret and each.text and each.variable is not None and each.variable.kind == "variable"
        ),
        faults=(*inside, *(each.fault for each in filled if each.fault is not None)),
        sealed=_sealed(literals, filled),
    )


def _sealed(literals: list[str], filled: list[_Filled]) -> tuple[str | SecretName, ...]:
    """Return the parts of a text that names secrets of the vault."""
    if not any(each.name for each in filled):
        return ()
    parts: list[str | SecretName] = [literals[0]]
    for each, literal in zip(filled, literals[1:], strict=True):
        parts += (each.name or each.text or "", literal)
    return tuple(part for part in parts if part != "")


def is_secret(value: str) -> bool:
    """Return True if a value can be masked without garbling every text; very short values and plain words cannot."""
    return len(value) >= _SHORTEST_SECRET and value.lower() not in _WORDS


def masked(literal: str) -> str:
    """Mask a literal part of a secret, except its scheme (``Bearer``) and the spaces around it."""
    scheme = _SCHEME.match(literal)
    kept = "" if scheme is None else scheme.group()
    return kept + ("***" if literal[len(kept) :].strip() else literal[len(kept) :])


def _joined(literals: list[str], filled: list[_Filled]) -> str | None:
    parts = [literals[0]]
    for each, literal in zip(filled, literals[1:], strict=True):
        if each.text is None:
            return None
        parts += (each.text, literal)
    return "".join(parts)


def _fill(inside: str, around: Surroundings) -> _Filled:
    if inside in around.folders:
        return _Filled(around.folders[inside], Variable(inside, "folder", "known"))
    asked = _INPUT.fullmatch(inside)
    if asked is not None:
        return _input(asked.group(1), around)
    named = _SECRET.fullmatch(inside)
    if named is not None:
        return _secret(named.group(1))
    found = _VARIABLE.fullmatch(inside)
    if found is None:
        return _Filled(None, fault=_unknown(inside))
    return _variable(found.group(1), found.group(2), around=around)


def _variable(name: str, default: str | None, *, around: Surroundings) -> _Filled:
    value = around.environ.get(name)
    if default is not None and ("${" in default or SCHEME in default):
        fault = Fault(f"the default of ${{{name}}} holds a variable or a secret", "write a plain default")
        return _Filled(None, Variable(name, "variable", "unset"), fault=fault)
    if default is not None and not value:
        return _Filled(default, Variable(name, "variable", "default"))
    if value is None:
        fault = Fault(f"the variable {name} is not set", f"set {name}, or write ${{{name}:-default}}")
        return _Filled(None, Variable(name, "variable", "unset"), fault=fault)
    return _Filled(value, Variable(name, "variable", "set"), secret=name.upper() not in _PUBLIC)


def _input(name: str, around: Surroundings) -> _Filled:
    declared = around.inputs.get(name)
    if declared is None:
        known = ", ".join(sorted(around.inputs)) or "none"
        fault = Fault(f"no input {name[:60]!r} is declared in this file (declared: {known})", 'declare it in "inputs"')
        return _Filled(None, Variable(name, "input", "unanswered"), fault=fault)
    answer = around.environ.get(declared.variable)
    if answer is None and around.ask is not None:
        answer = around.ask(declared)
    elif answer is None and declared.default is not None:
        return _Filled(declared.default, Variable(name, "input", "default"))
    if answer is None:
        fault = Fault(f"the input {name!r} has no answer", f"run in a terminal, or set {declared.variable}")
        return _Filled(None, Variable(name, "input", "unanswered"), fault=fault)
    if declared.options and answer not in declared.options:
        fault = Fault(f"the answer to the input {name!r} is none of its options", "choose one of them")
        return _Filled(None, Variable(name, "input", "unanswered"), fault=fault)
    return _Filled(answer, Variable(name, "input", "set"), secret=True)


def _secret(written: str) -> _Filled:
    name = read_secret_name(written)
    if name is None:
        fix = "names have letters, digits, '.', '_' and '-', optionally after keyring/, file/, env/ or cmd/"
        return _Filled(None, fault=Fault("secret: is not followed by the name of a secret", fix))
    return _Filled(f"${{secret:{name}}}", Variable(str(name), "secret", "sealed"), name=name)


def _inside() -> Fault:
    return Fault(f"{SCHEME} is used inside a text", "within a text, write ${secret:name}")


def _unknown(inside: str) -> Fault:
    kind, colon, _ = inside.partition(":")
    if colon and _NAME.fullmatch(kind):
        return Fault(f"${{{kind}:...}} is an unknown kind of variable", "use ${NAME} or ${input:id}")
    return Fault("there is no variable name between ${ and }", "use ${NAME} or ${NAME:-default}")


def _unclosed() -> _Filled:
    return _Filled(None, fault=Fault("${ has no closing }", "write ${NAME}"))
