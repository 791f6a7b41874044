"""The public face: the packages a user imports from, and that nothing deeper is needed.

The rule: what a public package lists in its ``__all__`` is public, and the modules inside it are not. So documentation,
examples and the reference servers import from these packages alone, one name stands for one object in all of them, and
every class that a public method takes or returns can be imported from one of them.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

import trunkline
from trunkline import Client, Host, Server
from trunkline.server import CompatibilityWarning

ROOT = Path(__file__).parents[2]
PUBLIC = (
    "trunkline",
    "trunkline.auth",
    "trunkline.cli",
    "trunkline.client",
    "trunkline.errors",
    "trunkline.extensions",
    "trunkline.host",
    "trunkline.net",
    "trunkline.server",
    "trunkline.store",
    "trunkline.testing",
    "trunkline.transports",
    "trunkline.types",
)

each_package = pytest.mark.parametrize("package", PUBLIC)


# --- (a) who imports what --------------------------------------------------------------------------------------------

#: Programs beside the documentation that generate it from the source; they may look inside.
GENERATORS = ("docs/make_reference.py", "docs/take_pictures.py")
_FENCE = re.compile(r"^( *)```(?:python|py)\b[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^\s*(?:from (trunkline[\w.]*) import\b|import (trunkline[\w.]*))", re.MULTILINE)


def _readers() -> Iterator[Path]:
    """Find the files that show, or are, programs of users."""
    yield ROOT / "README.md"
    for folder in ("docs", "examples", "servers/src"):
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md"})


def _imported(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                # ``from trunkline import server`` imports a module, ``from trunkline import Server`` a name.
                yield from (_target(node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
        return
    for block in _FENCE.finditer(text):
        # By line and not by syntax tree: a block may be a fragment.
        yield from (found.group(1) or found.group(2) for found in _IMPORT.finditer(block.group(2)))


def _target(module: str, name: str) -> str:
    inner = f"{module}.{name}"
    if module != "trunkline" and not module.startswith("trunkline."):
        return module
    if name in _all(module):
        return module
    return inner if inner in PUBLIC or (ROOT / "src" / inner.replace(".", "/")).exists() else module


def _all(module: str) -> list[str]:
    return list(importlib.import_module(module).__all__) if module in PUBLIC else []


READERS = [
    path
    for path in _readers()
    if str(path.relative_to(ROOT)) not in GENERATORS and "trunkline" in path.read_text(encoding="utf-8")
]


def test_users_import_from_public_packages_only() -> None:
    deeper = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in READERS
        for name in _imported(path)
        if name.startswith("trunkline.") and name not in PUBLIC
    }
    assert sorted(deeper) == []


#: The inner modules that the adapter of other frameworks imports, besides the public packages; none is added.
ADAPTER = {
    "trunkline.auth.verifiers",
    "trunkline.client.client",
    *(f"trunkline.protocol.{name}" for name in ("caller", "extensions", "json_schema", "jsonrpc", "limits")),
    *(f"trunkline.protocol.{name}" for name in ("methods", "revisions", "uri_template")),
    *(f"trunkline.server.{name}" for name in ("client_requests", "context", "docstrings", "registry", "results")),
    *(f"trunkline.server.{name}" for name in ("run", "server")),
    "trunkline.transports.link",
}


def test_the_adapter_of_other_frameworks_knows_no_more_of_the_inside() -> None:
    deeper = {
        f"{path.name}: {name}"
        for path in sorted((ROOT / "compat" / "src").rglob("*.py"))
        for name in _imported(path)
        if name.startswith("trunkline.") and name not in PUBLIC and name not in ADAPTER
    }
    assert sorted(deeper) == []


def _names(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the names that are imported from public packages."""
    text = path.read_text(encoding="utf-8")
    for block in [text] if path.suffix == ".py" else [found.group(2) for found in _FENCE.finditer(text)]:
        for found in _FROM.finditer(block):
            listed = re.sub(r"#.*", "", found.group(2)).strip("()")
            names = (each.strip().partition(" as ")[0] for each in listed.split(","))
            yield from ((found.group(1), name) for name in names if name)


_FROM = re.compile(r"^\s*from (trunkline(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def test_users_import_names_that_are_exported() -> None:
    absent = [
        f"{path.relative_to(ROOT)}: {package}.{name}"
        for path in READERS
        for package, name in _names(path)
        if package in PUBLIC and name not in (*_all(package), "__version__") and f"{package}.{name}" not in PUBLIC
    ]
    assert absent == []


# --- (b), (c) the names ----------------------------------------------------------------------------------------------


def test_the_readers_are_found() -> None:
    assert {"README.md", "docs", "examples", "servers"} == {path.relative_to(ROOT).parts[0] for path in READERS}


@each_package
def test_every_public_name_resolves_and_is_listed(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    assert set(module.__all__) <= set(dir(module))


@each_package
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = module.no_such_name


@each_package
def test_type_checkers_see_the_names_that_are_loaded(package: str) -> None:
    """A package states each name twice, for type checkers and for the loader; both must agree."""
    module = importlib.import_module(package)
    checked = {
        alias.name: node.module for node in ast.walk(_tree(module)) if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module and node.module.startswith("trunkline.") and node.module != "trunkline._lazy"
    }  # fmt: skip
    if package == "trunkline.errors":  # defines its names itself
        return
    assert set(checked) == set(module.__all__)
    for name, source in checked.items():
        assert getattr(importlib.import_module(source or ""), name) is getattr(module, name), name


@each_package
def test_no_public_name_is_also_the_name_of_a_module(package: str) -> None:
    module = importlib.import_module(package)
    folder = Path(module.__file__ or "").parent
    modules = {path.stem for path in folder.iterdir()} if package != "trunkline.errors" else set()
    assert sorted(modules & set(module.__all__)) == []


def test_one_name_stands_for_one_object() -> None:
    found: dict[str, tuple[str, object]] = {}
    clashes = []
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            other, value = found.setdefault(name, (package, getattr(module, name)))
            if value is not getattr(module, name):
                clashes.append(f"{other}.{name} is not {package}.{name}")
    assert clashes == []


def test_no_public_name_is_a_protocol_type_of_another_meaning() -> None:
    """Unexported definitions count as well: a class that is shown in a message must not look like a protocol type."""
    protocol = importlib.import_module("trunkline.types")
    wrong = [
        f"{package}.{name}"
        for package in PUBLIC
        for name in importlib.import_module(package).__all__
        if name in protocol.__all__ and getattr(importlib.import_module(package), name) is not getattr(protocol, name)
    ]
    assert wrong == []


# --- (d) every class of a public signature has a home ----------------------------------------------------------------

#: Classes whose objects Trunkline creates and users receive: their constructors are not public.
RECEIVED = frozenset(
    {
        "AuditTrail", "BlockingContext", "BlockingHandle", "Catalog", "CatalogItem", "ChangeStream", "ClientView",
        "Configuration", "Connection", "Context", "Conversation", "Endpoint", "EventSubscription", "Exchange",
        "Gateway", "Handle", "HostSession", "Policy", "PromptDefinition", "ProcessLink", "ReplayServer",
        "ResourceDefinition",
        "ServerCatalog", "Subscriber", "TemplateDefinition", "ToolDefinition", "Validator", "Vault",
    }
)  # fmt: skip

#: Methods of public classes that only other modules of Trunkline call.
INTERNAL = frozenset(
    {
        "Endpoint.answer_options",
        "ServerCatalog.is_current",
    }
)


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))


def _public_classes() -> Mapping[type, str]:
    found: dict[type, str] = {}
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                found.setdefault(value, f"{package}.{name}")
    return MappingProxyType(found)


@cache
def _imports_of(module: str) -> Mapping[str, tuple[str, str]]:
    """By name: the module and the name there that it was imported from, also if only type checkers import it."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(_tree(sys.modules[module])):
        if isinstance(node, ast.Import):
            found.update({each.asname or each.name.partition(".")[0]: (each.name, "") for each in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({each.asname or each.name: (node.module, each.name) for each in node.names})
    return MappingProxyType(found)


def _resolve(node: ast.expr, module: str) -> tuple[Any, str]:
    """Return what a name in an annotation means, and the module that defines it."""
    if isinstance(node, ast.Attribute):
        owner, defined_in = _resolve(node.value, module)
        return getattr(owner, node.attr), owner.__name__ if isinstance(owner, ModuleType) else defined_in
    assert isinstance(node, ast.Name)
    if node.id in _imports_of(module):
        source, name = _imports_of(module)[node.id]
        home = importlib.import_module(source)
        if not name:
            return home, source
        return (getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{source}.{name}")), source
    scope = vars(sys.modules[module])
    return (scope[node.id] if node.id in scope else getattr(builtins, node.id)), module


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the names and forward references of an annotation."""
    if isinstance(node, ast.Name | ast.Attribute) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node
    elif not (isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal")):
        for child in ast.iter_child_nodes(node):
            yield from _parts(child)


def _classes_in(hint: object, module: str, seen: set[tuple[str, str]]) -> Iterator[type]:
    """Walk text, aliases, unions and generics down to the classes.

    Annotations are read and not evaluated: some use names that only type checkers import.
    """
    if isinstance(hint, typing.ForwardRef):
        yield from _classes_in(hint.__forward_arg__, hint.__forward_module__ or module, seen)
    elif isinstance(hint, str):
        if (hint, module) not in seen:
            seen.add((hint, module))
            for node in _parts(ast.parse(hint, mode="eval").body):
                meant, home = (node.value, module) if isinstance(node, ast.Constant) else _resolve(node, module)
                yield from _classes_in(meant, home, seen)
    elif isinstance(hint, list | tuple):
        for part in hint:
            yield from _classes_in(part, module, seen)
    elif (origin := typing.get_origin(hint)) is None:
        if isinstance(hint, type):
            yield hint
    elif origin is not typing.Literal:
        if isinstance(origin, type) and origin is not types.UnionType:
            yield origin
        yield from _classes_in(typing.get_args(hint), module, seen)


def _signatures(owner: type) -> Iterator[tuple[str, object, str]]:
    """Yield each annotation of the public methods and constructor fields of a class, with the module it stands in."""
    received = owner.__name__ in RECEIVED
    for name, value in inspect.getmembers_static(owner):
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        function = function.fget if isinstance(function, property) else function
        public = not name.startswith("_") or (name == "__init__" and not received)
        if not public or not inspect.isfunction(function) or f"{owner.__name__}.{name}" in INTERNAL:
            continue
        if function.__module__.startswith("trunkline"):
            for part, hint in function.__annotations__.items():
                yield f"{owner.__name__}.{name}({part})", hint, function.__module__
    is_record = issubclass(owner, dict) or hasattr(owner, "__struct_fields__") or hasattr(owner, "_fields")
    for each in owner.__mro__ if is_record and not received else ():
        if each.__module__.startswith("trunkline"):
            for part, hint in inspect.get_annotations(each).items():
                if not part.startswith("_"):
                    yield f"{owner.__name__}.{part}", hint, each.__module__


CLASSES = _public_classes()


def test_every_class_of_a_public_signature_is_public() -> None:
    missing = {
        f"{where}: {each.__module__}.{each.__qualname__}"
        for owner in CLASSES
        for where, hint, module in _signatures(owner)
        for each in _classes_in(hint, module, set())
        if each.__module__.startswith("trunkline.") and each not in CLASSES and not each.__name__.startswith("_")
    }
    assert sorted(missing) == []


def test_the_exceptions_of_these_tests_exist() -> None:
    names = {owner.__name__ for owner in CLASSES}
    assert sorted(RECEIVED - names) == []
    methods = {f"{owner.__name__}.{name}" for owner in CLASSES for name in dir(owner)}
    assert sorted(INTERNAL - methods) == []


def test_the_package_docstring_names_every_public_package() -> None:
    text = trunkline.__doc__ or ""
    assert [package for package in PUBLIC if f"``{package}``" not in text] == []


# --- (e) a misspelt keyword is refused, and the nearest one is named -------------------------------------------------


def _tool() -> str:
    return ""


MISSPELT: tuple[tuple[str, Callable[[Server], object], str], ...] = (
    ("Server", lambda _: Server("x", versoin="1"), "version"),  # type: ignore[call-arg]
    ("Server, option", lambda _: Server("x", websit_url="https://x.example"), "website_url"),  # type: ignore[call-arg]
    ("tool", lambda server: server.tool(descripton="x")(_tool), "description"),  # type: ignore[call-overload]
    ("add_tool", lambda server: server.add_tool(_tool, descripton="x"), "description"),  # type: ignore[call-arg]
    ("prompt", lambda server: server.prompt(titel="x")(_tool), "title"),  # type: ignore[call-overload]
    ("resource", lambda server: server.resource("a://b", mime_typ="x")(_tool), "mime_type"),  # type: ignore[call-arg]
    ("asgi", lambda server: server.asgi(alowed_hosts=["x"]), "allowed_hosts"),  # type: ignore[call-arg]
    ("run over HTTP", lambda server: server.run("http", prot=1), "port"),  # type: ignore[call-arg]
    ("run over stdio", lambda server: server.run("stdio", prot=1), "port"),  # type: ignore[call-arg]
    ("Client", lambda server: Client(server, timout=1), "timeout"),  # type: ignore[call-arg]
    ("Host", lambda _: Host([], polciy="x"), "policy"),  # type: ignore[call-arg]
    ("Host.open", lambda _: Host.open({}, polciy="x"), "policy"),  # type: ignore[call-arg]
)


@pytest.mark.parametrize(("call", "nearest"), [pytest.param(*row[1:], id=row[0]) for row in MISSPELT])
def test_a_misspelt_keyword_is_a_type_error_that_names_the_nearest(
    call: Callable[[Server], object], nearest: str
) -> None:
    with pytest.raises(TypeError, match=f"did you mean '{nearest}'"):
        call(Server("x"))


async def test_a_misspelt_option_of_a_gateway_is_a_type_error(tmp_path: Path) -> None:
    async with Host.open({}, folder=tmp_path) as host:
        with pytest.raises(TypeError, match="The gateway has no option 'allowed_host'; did you mean 'allowed_hosts'"):
            host.asgi(allowed_host=["x"])  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="The gateway has no option 'tokn'; did you mean 'token'"):
            await host.serve(tokn="x")  # type: ignore[call-arg]


def test_a_keyword_of_another_framework_that_does_nothing_warns() -> None:
    with pytest.warns(CompatibilityWarning, match="log_level='DEBUG' has no effect"):
        Server("x", log_level="DEBUG")  # type: ignore[call-arg]
    with pytest.warns(CompatibilityWarning, match="has no effect"):
        Server("x").tool(version="2")(_tool)  # type: ignore[call-overload]
