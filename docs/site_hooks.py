"""Hooks of the documentation site: pages made from the source, links out of ``docs/``, and the files for models.

MkDocs calls the functions named ``on_...`` while it builds (``make docs``). Pages are written for the repository first,
so links in them are paths of the repository: those to files that the site shows under another path are rewritten, and
those to files that it does not show become plain text.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "PACKAGES",
    "api_page",
    "exported",
    "llms",
    "on_files",
    "on_nav",
    "on_page_markdown",
    "on_post_build",
    "rewrite",
    "search_boost",
]

ROOT = Path(__file__).parents[1]
#: The public packages; a name that several export is described in the first of them.
PACKAGES = (
    "trunkline",
    *(f"trunkline.{name}" for name in ("server", "client", "host", "auth", "extensions", "types", "errors")),
    *(f"trunkline.{name}" for name in ("transports", "net", "testing", "cli")),
)
#: Pages of the repository's root that are shown.
PROJECT = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
#: The groups that come first on a page of the API.
GROUPS = ("Server", "Client", "Host", "Names", "Auth", "Context", "Content", "Tools", "Prompts", "Resources")
#: The factor of a page's score in the search, by its folder; 1 for the others. The theme weighs a word in a title 1000
#: times as much as one in the text, and every entry of the API is a title: with less than a thousandth, each guide that
#: has the word comes before it.
BOOSTS = {
    "tutorial.md": 3,
    "how-to": 3,
    "examples": 0.3,
    "servers": 0.3,
    "reference": 0.2,
    "project": 0.2,
    "api": 0.0005,
}
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".md": "markdown", ".sh": "sh"}

_FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]+)?\)")
_CODE = re.compile(r"`[^`\n]+`")
_NAV: list[Any] = []
_TEXTS: dict[str, str] = {}


class Export(NamedTuple):
    """A public name: the package that describes it, and the module that defines it."""

    name: str
    package: str
    module: str
    summary: str


# --- the events of a build --------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the project, the examples and the API."""
    from mkdocs.structure.files import File

    for uri, text in _made_pages():
        files.append(File.generated(config, uri, content=text))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Remember the navigation, for ``llms.txt``."""
    _NAV[:] = nav.items
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page, leave out the comments that are for its tests, and set its place in the search."""
    page.meta.setdefault("search", {"boost": search_boost(page.file.src_uri)})
    text = rewrite(markdown, page.file.src_uri)
    _TEXTS[page.file.src_uri] = text
    return text


def on_post_build(config: Any) -> None:
    """Write ``llms.txt``, the list of pages, and ``llms-full.txt``, their text."""
    site = Path(config["site_dir"])
    sections = list(_sections(_NAV))
    (site / "llms.txt").write_text(llms(sections, config["site_url"] or "/"), encoding="utf-8")
    pages = [uri for _, entries in sections for _, uri, _ in entries if not uri.startswith("api/")]
    whole = "\n\n---\n\n".join(_TEXTS[uri].strip() for uri in pages)
    (site / "llms-full.txt").write_text(f"{whole}\n", encoding="utf-8")


def search_boost(uri: str) -> float:
    """Return the boost of a page in the search: guides come before reference, and reference before generated pages."""
    return BOOSTS.get(uri.partition("/")[0], 1)


# --- links ------------------------------------------------------------------------------------------------------------


def rewrite(markdown: str, uri: str) -> str:
    """Return the text of a page of the site, with links as the site has them and without comments."""
    origin = posixpath.dirname(_origin(uri))
    parts = _FENCED.split(markdown)
    for index in range(0, len(parts), 2):
        text = _LINK.sub(lambda found: _link(found, origin, uri), _COMMENT.sub("", parts[index]))
        # GitHub wants a bar in a table escaped even inside backticks; here the escape would be shown.
        parts[index] = re.sub(
            r"^\|.*$", lambda row: _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), text, flags=re.M
        )
    return "".join(parts)


def _origin(uri: str) -> str:
    """Return the path in the repository of what a page shows."""
    if uri.startswith("project/"):
        return uri.removeprefix("project/")
    if uri.startswith("examples/"):
        return uri if uri == "examples/README.md" else f"{uri.removesuffix('.md')}/README.md"
    return f"docs/{uri}"


def _link(found: re.Match[str], origin: str, uri: str) -> str:
    image, label, target, anchor = found.groups()
    path = posixpath.normpath(posixpath.join(origin, target))
    if path.startswith("docs/") and uri == path.removeprefix("docs/"):
        return f"[{label}]({anchor or posixpath.basename(path)})"
    there = _shown_at(path)
    if there is None:
        return label
    page, heading = there
    return f"{image}[{label}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{anchor or heading})"


def _shown_at(path: str) -> tuple[str, str] | None:
    """Return the page, and the anchor in it, that shows a file of the repository."""
    if path in ("README.md", "docs"):
        return "README.md", ""
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        return (f"{inside}/README.md" if (ROOT / path).is_dir() else inside), ""
    if path in PROJECT:
        return f"project/{path}", ""
    if path in ("examples", "examples/README.md"):
        return "examples/README.md", ""
    if path.startswith("examples/"):
        _, name, *rest = path.split("/")
        file = "/".join(rest)
        shown = file != "README.md" and Path(file).suffix in LANGUAGES
        return f"examples/{name}.md", f"#{re.sub(r'[^a-z0-9_-]', '', file.lower())}" if shown else ""
    return None


# --- pages made from the source ---------------------------------------------------------------------------------------


def _made_pages() -> Iterator[tuple[str, str]]:
    for name in PROJECT:
        yield f"project/{name}", (ROOT / name).read_text(encoding="utf-8")
    yield "examples/README.md", (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for folder in sorted((ROOT / "examples").iterdir()):
        if folder.is_dir() and not folder.name.startswith("__"):
            yield f"examples/{folder.name}.md", _example(folder)
    known: dict[str, str] = {}
    for package in PACKAGES:
        yield f"api/{package}.md", api_page(package, known)


def _example(folder: Path) -> str:
    """Return the page of an example: its README, and its files."""
    readme = folder / "README.md"
    parts = [
        readme.read_text(encoding="utf-8") if readme.exists() else f"# {folder.name.replace('_', ' ').capitalize()}"
    ]
    for file in sorted(folder.iterdir()):
        language = LANGUAGES.get(file.suffix)
        if file != readme and language is not None and file.name != "__init__.py":
            text = file.read_text(encoding="utf-8").rstrip()
            parts.append(f"## {file.name}\n\n````{language}\n{text}\n````")
    return "\n\n".join(parts) + "\n"


def exported(package: str) -> list[Export]:
    """Return the names that a package exports, in the order of its imports."""
    _, tree = _source(package)
    modules = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("trunkline.")
        for alias in node.names
    }
    names = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    return [
        Export(name, package, modules.get(name, package), _summary(modules.get(name, package), name)) for name in names
    ]


@cache
def _source(module: str) -> tuple[str, ast.Module]:
    """Return the text of a module, and its syntax tree."""
    path = ROOT / "src" / Path(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    return text, ast.parse(text)


def _summary(module: str, name: str) -> str:
    """Return the first sentence of a name's docstring, or of the comment above it."""
    source, tree = _source(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return (
                (ast.get_docstring(node) or "")
                .split("\n\n")[0]
                .replace("\n", " ")
                .replace("``", "`")
                .replace("|", "\\|")
            )
    found = re.search(rf"((?:^#: .+\n)+){name}\b", source, re.M)
    return (
        ""
        if found is None
        else found[1].replace("#: ", "").replace("\n", " ").strip().replace("``", "`").replace("|", "\\|")
    )


def api_page(package: str, known: dict[str, str]) -> str:
    """Return the page of a package: each name once on the site, grouped by what it belongs to."""
    names = exported(package)
    here = [each for each in names if each.name not in known]
    elsewhere = [each for each in names if each.name in known]
    known.update({each.name: package for each in here})
    introduction = (ast.get_docstring(_source(package)[1]) or "").replace("``", "`")
    parts = [f"# {package}", introduction.split("\n\n")[0]]
    if elsewhere:
        links = ", ".join(
            f"[`{each.name}`]({known[each.name]}.md#{known[each.name]}.{each.name})" for each in elsewhere
        )
        parts.append(f"Also exported here: {links}.")
    groups: dict[str, list[Export]] = {}
    for each in here:
        groups.setdefault(_group(each), []).append(each)
    for title in sorted(groups, key=lambda title: (GROUPS.index(title) if title in GROUPS else len(GROUPS), title)):
        rows = [f"| [`{each.name}`](#{package}.{each.name}) | {each.summary} |" for each in groups[title]]
        parts.append("\n".join([f"## {title}", "", "| name | |", "|---|---|", *rows]))
        parts.extend(_entry(each) for each in groups[title])
    return "\n\n".join(parts) + "\n"


def _entry(export: Export) -> str:
    """Return the description of a name: its docstring, and the fields of a struct, which have comments instead."""
    lines = [f"::: {export.package}.{export.name}"]
    if export.module == "trunkline.errors":  # the tree matters there, and its members are the same everywhere
        lines += ["    options:", "      show_bases: true", "      inherited_members: false"]
    if fields := _fields(export):
        lines += ["", "```python", *fields, "```"]
    return "\n".join(lines)


def _fields(export: Export) -> list[str]:
    """Return the source of the fields of a class without a constructor, and of a type alias or constant."""
    source, tree = _source(export.module)
    lines = source.split("\n")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == export.name:
            if any(isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body):
                return []
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and not _is_private(each.target)]
            return [line.removeprefix("    ") for each in fields for line in _with_comment(lines, each)]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if getattr(target, "id", "") == export.name:
                return lines[node.lineno - 1 : node.end_lineno]
    return []


def _is_private(target: ast.expr) -> bool:
    return getattr(target, "id", "_").startswith("_")


def _with_comment(lines: list[str], node: ast.AnnAssign) -> list[str]:
    first = node.lineno - 1
    while lines[first - 1].lstrip().startswith("#:"):
        first -= 1
    return [line.replace("#: ", "# ").replace("``", "`") for line in lines[first : node.end_lineno]]


def _group(export: Export) -> str:
    """Return the heading of a name: the part of the package that defines it, where the package has many."""
    if export.package not in ("trunkline", "trunkline.host", "trunkline.types", "trunkline.server"):
        return "Names"
    inside = export.module.removeprefix("trunkline.").split(".")
    if export.package == "trunkline":
        part = inside[0]
    elif export.package == "trunkline.host" and inside[0] == "host":
        part = inside[1] if len(inside) > 1 else "host"
    else:
        part = inside[-1]
    return part.replace("_", " ").capitalize()


# --- the files for models ---------------------------------------------------------------------------------------------


def _sections(items: list[Any]) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Return the tabs of the navigation, each with the title, source and address of its pages."""
    for item in items:
        yield item.title, [(page.title or "", page.file.src_uri, page.url) for page in _pages(item)]


def _pages(item: Any) -> Iterator[Any]:
    if item.is_page:
        yield item
    for child in item.children or ():
        yield from _pages(child)


def llms(sections: list[tuple[str, list[tuple[str, str, str]]]], base: str) -> str:
    """Return the text of ``llms.txt``: every page with its first sentence."""
    lines = [
        "# Trunkline",
        "",
        "> The Model Context Protocol in one Python package: servers, clients, a host, a gateway, a command line.",
    ]
    lines += ["", f"The text of all pages is in [llms-full.txt]({base}llms-full.txt)."]
    for title, entries in sections:
        lines += ["", f"## {title}", ""]
        for name, uri, url in entries:
            about = _first_sentence(_TEXTS.get(uri, ""))
            lines.append(f"- [{name}]({base}{url})" + (f": {about}" if about else ""))
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    prose = _FENCED.sub("", text.partition("\n")[2])
    paragraph = next((each for each in prose.split("\n\n") if each.strip() and each.strip()[0] not in "#|-:<"), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=\.)\s", plain)[0].rstrip(":")
