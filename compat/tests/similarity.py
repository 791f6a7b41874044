"""How much of ours reads like the frameworks' sources: ``python -m compat.tests.similarity FOLDER``.

Every function and method of a folder is compared with the frameworks' functions of the same name, in all generations,
token by token: names and literals count, comments, docstrings, signatures and annotations do not. Literals of forty or
more characters that both have are listed too. The frameworks' sources come from the package index into
``.compat/sources`` and are never kept in the repository.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from compat.tests.environments import COMPAT, ROOT

__all__ = ["Function", "Match", "functions_of", "literals_of", "main", "nearest", "shared_literals", "similarity"]

#: The newest release of each generation, with the distributions it is split into.
SOURCES = (
    "mcp==1.30.0",
    "mcp==2.3.0",
    "mcp-types==2.3.0",
    "fastmcp==2.14.7",
    "fastmcp==3.4.11",
    "fastmcp-slim==3.4.11",
    "fastmcp==4.1.4",
    "fastmcp-slim==4.1.4",
    "fastmcp-tasks==4.1.4",
)
#: No function may be more similar than this.
BAR = 0.60
#: Shorter functions have few ways to be written.
MIN_TOKENS = 25
MIN_LITERAL = 40
#: Literals that both must have, because peers read them: one on each line.
WIRE_TEXTS = Path(__file__).with_name("wire_texts.txt")
_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


class Function(NamedTuple):
    """A function or method, and the tokens of its body."""

    name: str
    place: str
    tokens: tuple[str, ...]


class Match(NamedTuple):
    """A function of ours and the nearest function of the frameworks with its name."""

    ratio: float
    ours: Function
    theirs: Function


class _WithoutNotes(ast.NodeTransformer):
    """Removes docstrings and annotations."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        return None if node.value is None else ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node, False):
            node.body = node.body[1:]
        return super().generic_visit(node)


def _body_tokens(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """Return the tokens of a function's body; two ways to lay out or to quote the same code give the same tokens."""
    body = [node for node in _WithoutNotes().visit(function).body if node is not None]
    source = "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in body)
    return tuple(
        token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in _LAYOUT
    )


def functions_of(source: str, place: str) -> Iterator[Function]:
    """Yield the functions and methods of a module; a nested function is a part of the one around it."""

    def walk(body: Iterable[ast.stmt], prefix: str) -> Iterator[Function]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                line = f"{place}:{node.lineno} {prefix}{node.name}"
                yield Function(node.name, line, _body_tokens(node))
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.If | ast.Try):
                yield from walk([*node.body, *node.orelse], prefix)

    yield from walk(ast.parse(source).body, "")


def literals_of(source: str) -> set[str]:
    """Return the long string literals of a module, the texts inside f-strings included, without docstrings.

    A run of blanks or line ends counts as one blank.
    """
    tree = ast.parse(source)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (
        " ".join(node.value.split())
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    )
    return {text for text in texts if len(text) >= MIN_LITERAL}


def shared_literals(ours: Iterable[str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return our literals that share forty characters in a row with one of theirs, and the place of theirs.

    What has no blank in it is an identifier (a URN, an address, a media type) and nobody's text.
    """
    literals_by_run: dict[str, list[str]] = {}
    for literal in ours:
        for run in _runs(literal):
            if " " in run:
                literals_by_run.setdefault(run, []).append(literal)
    shared: dict[str, str] = {}
    for text, place in theirs.items():
        for run in _runs(text):
            for literal in literals_by_run.get(run, ()):
                shared.setdefault(literal, place)
    return shared


def _runs(text: str) -> Iterator[str]:
    return (text[start : start + MIN_LITERAL] for start in range(len(text) - MIN_LITERAL + 1))


def similarity(left: Sequence[str], right: Sequence[str]) -> float:
    """Return twice the number of matching tokens divided by the number of all tokens."""
    return SequenceMatcher(None, left, right, autojunk=False).ratio()


def nearest(function: Function, candidates: Iterable[Function], floor: float = 0.0) -> Match | None:
    """Return the most similar candidate, if one is more similar than the floor."""
    best: Match | None = None
    least = floor
    counts = Counter(function.tokens)
    for candidate in candidates:
        total = len(function.tokens) + len(candidate.tokens)
        # Two bounds that cost little: the lengths, and the tokens regardless of their order.
        if not total or 2 * min(len(function.tokens), len(candidate.tokens)) / total <= least:
            continue
        if 2 * (counts & Counter(candidate.tokens)).total() / total <= least:
            continue
        ratio = similarity(function.tokens, candidate.tokens)
        if ratio > least:
            best, least = Match(ratio, function, candidate), ratio
    return best


def _fetch(requirement: str) -> Path:
    """Return the folder with a distribution's source, downloaded if it is not there."""
    folder = COMPAT / "sources" / requirement.replace("==", "-")
    if folder.exists():
        return folder
    wheels = COMPAT / "sources" / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", str(wheels)]
    subprocess.run([*pip, "--only-binary", ":all:", requirement], check=True)
    name, _, version = requirement.replace("-", "_").partition("==")
    (wheel,) = wheels.glob(f"{name}-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def _sources(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield place and source of the modules below a folder, its tests left out."""
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder).as_posix()
        if "tests/" not in place:
            yield place, path.read_text(encoding="utf-8")


def _framework_functions(
    folders: Mapping[str, Path],
) -> tuple[dict[str, list[Function]], dict[str, str]]:
    """Return the frameworks' functions by name, equal ones once, and their long literals with a place of each."""
    functions: dict[str, dict[tuple[str, ...], Function]] = {}
    literals: dict[str, str] = {}
    for requirement, folder in folders.items():
        for place, source in _sources(folder):
            for function in functions_of(source, f"{requirement} {place}"):
                if len(function.tokens) >= MIN_TOKENS:
                    functions.setdefault(function.name, {})[function.tokens] = function
            for literal in literals_of(source):
                literals[literal] = f"{requirement} {place}"
    return {name: list(same_name.values()) for name, same_name in functions.items()}, literals


def _read_wire_texts() -> frozenset[str]:
    if not WIRE_TEXTS.exists():
        return frozenset()
    lines = WIRE_TEXTS.read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a function is more similar than the bar."""
    parser = argparse.ArgumentParser(prog="python -m compat.tests.similarity", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder with our sources")
    parser.add_argument("--least", type=float, default=0.5, help="list functions from this similarity on")
    options = parser.parse_args(arguments)
    theirs, their_literals = _framework_functions({requirement: _fetch(requirement) for requirement in SOURCES})
    matches: list[Match] = []
    compared = 0
    wire_texts = _read_wire_texts()
    our_literals: dict[str, str] = {}
    for place, source in _sources(options.folder.resolve()):
        for function in functions_of(source, place):
            if len(function.tokens) < MIN_TOKENS or function.name not in theirs:
                continue
            compared += 1
            match = nearest(function, theirs[function.name], options.least - 1e-9)
            if match is not None:
                matches.append(match)
        our_literals.update(dict.fromkeys(literals_of(source) - wire_texts, place))
    shared = shared_literals(our_literals, their_literals)
    write = sys.stdout.write
    for match in sorted(matches, key=lambda match: match.ratio, reverse=True):
        write(f"{match.ratio:.2f} {len(match.ours.tokens):4} tokens  {match.ours.place:60} {match.theirs.place}\n")
    write(f"\nliterals with {MIN_LITERAL} or more characters in a row that a framework has too, wire texts left out:\n")
    for literal in sorted(shared, key=lambda literal: our_literals[literal]):
        write(f"  {our_literals[literal]:40} {shared[literal]:60} {literal[:90]!r}\n")
    over = [match for match in matches if match.ratio > BAR]
    above = [sum(match.ratio >= level for match in matches) for level in (0.9, 0.8, 0.7)]
    folder = _display_folder(options.folder)
    write(
        f"\n{compared} functions of {folder} have {MIN_TOKENS} or more tokens and the name of a "
        f"framework's function: {above[0]} at 0.90 or more, {above[1]} at 0.80, {above[2]} at 0.70, {len(over)} over "
        f"{BAR:.2f}\n{len(shared)} shared literals\n"
        f"bar: no function over {BAR:.2f}: {'missed' if over else 'reached'}\n"
    )
    return 1 if over else 0


def _display_folder(folder: Path) -> str:
    try:
        return folder.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(folder)


if __name__ == "__main__":
    raise SystemExit(main())
