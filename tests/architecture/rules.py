"""The rules of the source as functions from a module's text to sentences about what breaks them.

They read the syntax tree and never import what they judge, so that made-up sources can prove that each rule bites. A
module is judged by its dotted name; its layer is the part after ``trunkline``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = [
    "LAYERS",
    "MAX_FUNCTION",
    "MAX_MODULE",
    "Module",
    "all_faults",
    "constant_faults",
    "date_faults",
    "docstring_faults",
    "import_faults",
    "modules",
    "mutable_faults",
    "size_faults",
]

MAX_MODULE = 600
MAX_FUNCTION = 60

_CORE = frozenset({"errors", "types", "protocol"})
_BELOW_TRANSPORTS = _CORE | {"store", "net"}
_BELOW_ROLES = _BELOW_TRANSPORTS | {
    "auth",
    "connection",
    "keywords",
    "pending_requests",
    "service",
    "telemetry",
    "timers",
    "transports",
}
_BELOW_HOST = _BELOW_ROLES | {"server", "client", "extensions"}

#: Which layers each layer may import, besides itself. ``trunkline`` is the package's own lazy list of friendly names;
#: ``_lazy`` loads public names on first access, and the package file of every layer may import it.
LAYERS = MappingProxyType(
    {
        "_lazy": frozenset[str](),
        "errors": frozenset[str](),
        "types": frozenset({"errors"}),
        "protocol": frozenset({"errors", "types"}),
        "store": _CORE,
        "net": _CORE,
        "telemetry": _CORE | {"net"},
        "transports": _BELOW_TRANSPORTS,
        "timers": _CORE,
        "pending_requests": _CORE | {"timers"},
        "service": _CORE | {"connection"},
        "connection": _BELOW_TRANSPORTS | {"transports", "timers", "pending_requests", "service"},
        "auth": _BELOW_TRANSPORTS,
        "keywords": frozenset({"errors"}),
        "server": _BELOW_ROLES,
        "client": _BELOW_ROLES,
        "extensions": _BELOW_ROLES | {"server", "client"},
        "host": _BELOW_HOST,
        "devtools": _BELOW_HOST | {"host", "trunkline"},
        "console": _BELOW_HOST | {"host", "devtools"},
        "cli": _BELOW_HOST | {"host", "devtools", "console", "testing", "trunkline"},
        "testing": _BELOW_HOST | {"host", "devtools", "trunkline"},
        "__main__": frozenset({"cli"}),
    }
)

#: What a layer may load above itself, when it is used: inside a function, or for the type checker alone. An extension
#: that comes along is above server and client, which name it where a user asks for it.
_LOADED_WHEN_USED = MappingProxyType({"server": frozenset({"extensions"}), "client": frozenset({"extensions"})})

#: Within an allowed layer, the only modules a layer may know.
_ONLY = MappingProxyType({("connection", "transports"): frozenset({"trunkline.transports.link"})})

#: What the sans-IO layers may not touch: clocks, ids and randomness come in as arguments.
_IMPURE = frozenset(
    {"asyncio", "logging", "random", "secrets", "socket", "ssl", "subprocess", "threading", "time", "uuid"}
)
_PURE_LAYERS = frozenset({"types", "protocol"})
#: The user's rules are one pure function; only what reads a policy's text may touch a file.
_POLICY = "trunkline.host.authorization.policy"
_POLICY_READS = frozenset({"trunkline.host.authorization.policy.loader"})
_POLICY_KNOWS = (_POLICY, "trunkline.errors", "trunkline.host.config.spelling")

#: Dates since the first revision: what a revision is, or will be, called. An older date can stand as an example.
_DATE = re.compile(r"\b20(?:2[4-9]|[3-9]\d)-\d\d-\d\d\b")
_DATE_HOME = "trunkline.protocol.revisions"

#: Tables of the protocol: each number is what the specification or JSON-RPC says.
_TABLES_OF_CODES = frozenset({"trunkline.protocol.error_codes"})

_CONTAINERS = frozenset({"bytearray", "count", "defaultdict", "deque", "dict", "list", "set", "Counter", "OrderedDict"})
_WEAK = frozenset({"WeakKeyDictionary", "WeakSet", "WeakValueDictionary"})
_LOCKS = frozenset({"Condition", "Event", "Lock", "RLock", "Semaphore", "local"})
_MUTABLE_CALLS = _CONTAINERS | _WEAK | _LOCKS

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """A module to judge: its dotted name, its text, and whether it is a package's own file."""

    name: str
    text: str
    is_package: bool = False

    @property
    def layer(self) -> str:
        """The part of the package it belongs to; the package's own file is the layer ``trunkline``."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else parts[0]

    @property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return _parsed(self.text)


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def modules(root: Path) -> Iterator[Module]:
    """Read every module of the package that lies in a folder."""
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        yield Module(".".join(parts[:-1] if is_package else parts), path.read_text(encoding="utf-8"), is_package)


# --- who may import whom ---------------------------------------------------------------------------------------------


def import_faults(module: Module) -> list[str]:
    """Say which imports, also those inside functions and by name, break the layers."""
    loaded = set(_loaded_at_import(module))
    faults = [fault for target in _imports(module) if (fault := _judge(module, target, lazy=target not in loaded))]
    return list(dict.fromkeys(faults))


def _judge(module: Module, target: str, *, lazy: bool = False) -> str | None:
    top = target.split(".")[0]
    if module.name.startswith(_POLICY) and (fault := _policy_fault(module, target)):
        return fault
    if top != "trunkline":
        impure = module.layer in _PURE_LAYERS and top in _IMPURE
        return f"{module.name} imports {top}: {module.layer} has no I/O, clock or chance" if impure else None
    if module.layer == "trunkline" or target == "trunkline.__version__":
        return None
    layer = _layer_of(target)
    if layer == module.layer or (layer == "_lazy" and module.is_package):
        return None
    if lazy and layer in _LOADED_WHEN_USED.get(module.layer, frozenset()):
        return None
    if layer not in LAYERS.get(module.layer, frozenset()):
        return f"{module.name} imports {target}: {module.layer} may not know {layer}"
    only = _ONLY.get((module.layer, layer))
    if only is not None and not any(target == name or target.startswith(name + ".") for name in only):
        return f"{module.name} imports {target}: {module.layer} knows only {', '.join(sorted(only))}"
    return None


def _policy_fault(module: Module, target: str) -> str | None:
    if target.split(".")[0] == "trunkline":
        return None if target.startswith(_POLICY_KNOWS) else f"{module.name} imports {target}: a policy knows nothing"
    impure = target.split(".")[0] in _IMPURE and module.name not in _POLICY_READS
    return f"{module.name} imports {target}: a policy has no I/O, clock or chance" if impure else None


def _layer_of(target: str) -> str:
    """Tell a submodule from a friendly name of the package: the former is a known layer."""
    parts = target.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "trunkline"


def _loaded_at_import(module: Module) -> Iterator[str]:
    """Yield what is imported when the module is: neither inside a function nor for the type checker."""
    outside = [node for node in module.tree.body if not isinstance(node, ast.If) or not _is_type_checking(node.test)]
    functions = [
        node for node in outside if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    yield from _imports_of(module, ast.Module(body=functions, type_ignores=[]))


def _is_type_checking(test: ast.expr) -> bool:
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return negated or _name(test) == "TYPE_CHECKING"


def _imports(module: Module) -> Iterator[str]:
    yield from _imports_of(module, module.tree)


def _imports_of(module: Module, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in {"import_module", "__import__"}:
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    package = parts if module.is_package else parts[:-1]
    above = package[: len(package) - (node.level - 1)]
    return ".".join([*above, *([node.module] if node.module else [])])


def _name(node: ast.expr) -> str:
    """The last part of a dotted name, or nothing."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# --- dates, sizes, names ---------------------------------------------------------------------------------------------


def date_faults(module: Module) -> list[str]:
    """Say which strings hold a date; docstrings and comments may cite a page of the specification."""
    if module.name == _DATE_HOME:
        return []
    tree = module.tree
    docstrings = {id(node) for node in _docstrings(tree)}
    return [
        f"{module.name}:{node.lineno} has the date {found.group()}: only {_DATE_HOME} knows dates"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if (found := _DATE.search(node.value))
    ]


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Find every string that stands alone as a statement: nothing can read it at run time."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def size_faults(module: Module) -> list[str]:
    """Say whether the module or one of its functions is past its ceiling."""
    lines = len(module.text.splitlines())
    faults = [f"{module.name} has {lines} lines; the ceiling is {MAX_MODULE}"] if lines > MAX_MODULE else []
    return faults + [
        f"{module.name}:{node.lineno} {node.name} has {_length(node)} lines; the ceiling is {MAX_FUNCTION}"
        for node in ast.walk(module.tree)
        if isinstance(node, _Function) and _length(node) > MAX_FUNCTION
    ]


def _length(node: _Function) -> int:
    """Count a function's lines without its docstring."""
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is None:
        return whole
    return whole - ((first.end_lineno or first.lineno) - first.lineno + 1)


def docstring_faults(module: Module) -> list[str]:
    """Say whether the module begins without a paragraph on what it is."""
    return [] if ast.get_docstring(module.tree) else [f"{module.name} has no docstring"]


def all_faults(module: Module) -> list[str]:
    """Say whether the module's list of public names is missing, not plain, or not sorted."""
    if module.name.endswith(".__main__"):
        return []
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _targets(node) == "__all__":
            return _order_faults(module, node.value)
    return [f"{module.name} has no __all__"]


def _order_faults(module: Module, value: ast.expr | None) -> list[str]:
    try:
        names = list(ast.literal_eval(value)) if value is not None else []
    except ValueError:
        return [f"{module.name} computes its __all__: write the names out"]
    return [] if names == sorted(names, key=_rank) else [f"{module.name} has an unsorted __all__"]


def constant_faults(module: Module) -> list[str]:
    """Say which numbers at module level stand without a comment, directly above or beside, on why they are so."""
    if module.name in _TABLES_OF_CODES:
        return []
    lines = module.text.splitlines()
    return [
        f"{module.name}:{node.lineno} {name} has no comment on its reason"
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_number(node.value)
        if (name := _targets(node)).isupper() and not _is_commented(lines, node)
    ]


def _is_number(value: ast.expr) -> bool:
    """Whether an expression is made of numbers alone, as a product or a tuple of them is."""
    parts = [part for part in ast.walk(value) if isinstance(part, ast.Constant)]
    plain = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
    numbers = all(isinstance(part.value, int | float) and not isinstance(part.value, bool) for part in parts)
    return bool(parts) and numbers and all(isinstance(part, plain) for part in ast.walk(value))


def _is_commented(lines: list[str], node: ast.stmt) -> bool:
    above = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
    return above.startswith("#") or "#" in lines[(node.end_lineno or node.lineno) - 1]


def _rank(name: str) -> tuple[int, str]:
    """Order names as the linter does: constants, classes, the rest."""
    if len(name) > 1 and name.isupper():
        return 0, name
    return (1, name) if name[:1].isupper() else (2, name)


# --- nothing mutable at module level ---------------------------------------------------------------------------------


def mutable_faults(module: Module) -> list[str]:
    """Say which names of the module's own scope hold something that can change, and who rebinds them."""
    tree = module.tree
    faults = [
        f"{module.name}:{node.lineno} {_targets(node)} is mutable at module level"
        for node in _own_statements(tree.body)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        if not _targets(node).startswith("__") and _is_mutable(node.value)
    ]
    return faults + [
        f"{module.name}:{node.lineno} rebinds {', '.join(node.names)} of the module"
        for node in ast.walk(tree)
        if isinstance(node, ast.Global)
    ]


def _own_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Walk the statements of the module's scope, also those under an ``if`` or ``try``."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            inner = getattr(node, part, [])
            if not isinstance(node, _Function | ast.ClassDef):
                yield from _own_statements(inner)
        for handler in getattr(node, "handlers", []):
            yield from _own_statements(handler.body)


def _targets(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return any(_is_mutable(part) for part in value.elts)
    if isinstance(value, ast.Call):
        return _name(value.func) in _MUTABLE_CALLS
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)
