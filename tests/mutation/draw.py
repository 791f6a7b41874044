"""The mutations: small changes of the source that a good test notices, drawn with a seed.

Layers are drawn in turn, so that each gets its share; within a layer a module is drawn by the number of its places,
then a kind of change, then a place. Only bodies of functions are changed: what runs at import breaks everything or
nothing.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutation:
    """One change: where it stands, what stands there, what is put there instead."""

    path: str
    """The module, relative to the root of the repository."""
    kind: str
    start: int
    """Offset of the first replaced byte in the module."""
    end: int
    replacement: str
    probe: int
    """Offset of the line before which a probe can be put: the statement that holds the change."""
    line: int

    def apply(self, source: bytes) -> bytes:
        """Return the module with the change in it."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        """Return the place and the change, in one line."""
        before = " ".join(source[self.start : self.end].decode().split())
        return f"{self.path}:{self.line} {self.kind}: {before[:70]} -> {' '.join(self.replacement.split())[:70]}"


def layer_of(path: str) -> str:
    """Return the layer of a module: its package, for the host and the transports the package below."""
    parts = Path(path).with_suffix("").parts
    if parts[0] == "servers":
        return "servers"
    below = parts[2:]
    if below[0] in ("host", "transports") and len(below) > 2:
        return "/".join(below[:2])
    return below[0]


def draw(root: Path, *, seed: int, count: int) -> list[Mutation]:
    """Return ``count`` mutations of the sources under ``root``; the same ones for the same seed and sources."""
    rng = random.Random(seed)
    layers: dict[str, list[list[Mutation]]] = {}
    for folder in ("src", "servers/src"):
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if possible := list(mutations(name, path.read_bytes())):
                layers.setdefault(layer_of(name), []).append(possible)
    order = sorted(layers)
    rng.shuffle(order)
    drawn: dict[tuple[str, int], Mutation] = {}
    while len(drawn) < count:
        layer = order[len(drawn) % len(order)]
        modules = layers[layer]
        module = rng.choices(modules, weights=[len(possible) for possible in modules])[0]
        kinds: dict[str, list[Mutation]] = {}
        for mutation in module:
            kinds.setdefault(mutation.kind, []).append(mutation)
        mutation = rng.choice(kinds[rng.choice(sorted(kinds))])
        drawn[mutation.path, mutation.start] = mutation
    return list(drawn.values())


def mutations(path: str, source: bytes) -> Iterator[Mutation]:
    """Yield every mutation of a module."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in function.body:
            for node in ast.walk(statement):
                if not isinstance(node, ast.expr | ast.stmt):
                    continue
                for kind, replacement in _changes(node, parents):
                    holder = _statement_of(node, parents)
                    assert node.end_lineno is not None
                    assert node.end_col_offset is not None
                    yield Mutation(
                        path,
                        kind,
                        starts[node.lineno - 1] + node.col_offset,
                        starts[node.end_lineno - 1] + node.end_col_offset,
                        replacement,
                        starts[holder.lineno - 1],
                        node.lineno,
                    )


def _changes(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the new text of every change of one node."""
    for change in (_comparison, _constant, _swapped, _dropped_await, _deleted):
        replacement = change(node, parents)
        if replacement is not None:
            yield change.__name__.strip("_").replace("_", " "), replacement


def _comparison(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str | None:
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in COMPARISONS:
        return None
    changed = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    return f"({ast.unparse(changed)})"


def _constant(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str | None:
    if not isinstance(node, ast.Constant) or _is_annotation(node, parents):
        return None
    if isinstance(node.value, bool):
        return str(not node.value)
    return str(node.value + 1) if isinstance(node.value, int) else None


def _swapped(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str | None:
    if not isinstance(node, ast.Call) or len(node.args) < 2 or isinstance(parents[node], ast.FormattedValue):
        return None
    first, second, *rest = node.args
    if isinstance(first, ast.Starred) or isinstance(second, ast.Starred) or ast.dump(first) == ast.dump(second):
        return None
    return ast.unparse(ast.Call(node.func, [second, first, *rest], node.keywords))


def _dropped_await(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str | None:
    return ast.unparse(node.value) if isinstance(node, ast.Await) else None


def _deleted(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str | None:
    """Delete a statement for its effect: a call, or an assignment to an attribute or an item. Cleanups are such."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        return "pass"
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return "pass" if any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets) else None


def _is_annotation(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    while not isinstance(node, ast.stmt):
        parent = parents[node]
        if (isinstance(parent, ast.AnnAssign | ast.arg) and parent.annotation is node) or isinstance(
            parent, ast.JoinedStr
        ):
            return True
        node = parent
    return False


def _statement_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.stmt:
    """Return the innermost statement around a node that a line can be put before: no ``elif``, no ``except``."""

    def is_elif(statement: ast.AST) -> bool:
        parent = parents[statement]
        return (
            isinstance(statement, ast.If)
            and isinstance(parent, ast.If)
            and statement in parent.orelse
            and statement.col_offset == parent.col_offset
        )

    while not isinstance(node, ast.stmt) or is_elif(node):
        node = parents[node]
    return node
