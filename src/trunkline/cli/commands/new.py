"""``trunkline new``: creates a project with a server, its tests, a README and a client configuration.

The templates are folders of text files in ``cli/templates``, whose README describes them; a new folder there is a new
template. A project is written into an empty or new folder, and no file is replaced.
"""

from __future__ import annotations

import keyword
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import click

from trunkline import __version__
from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import json_option, with_json_errors

__all__ = ["command"]

_SHARED = "_shared"
_SUFFIX = ".tmpl"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
#: Long enough for any name, short enough for the file systems and for the names of tools.
_LONGEST_NAME = 50
#: Packages that the project itself needs, and a folder that it has.
_TAKEN = frozenset({"aiohttp", "mcp", "pytest", "src", "tests", "trunkline"})
_MARK = re.compile(r"@@([a-z]+)@@")


def _templates() -> Traversable:
    return files("trunkline.cli") / "templates"


def _template_names() -> list[str]:
    """Return the names of the templates, the default first."""
    found = [each.name for each in _templates().iterdir() if (each / "template.toml").is_file()]
    return sorted(found, key=lambda name: (name != "tool", name))


def _describe(name: str) -> dict[str, Any]:
    """Return the description of a template."""
    import tomllib

    return tomllib.loads((_templates() / name / "template.toml").read_text(encoding="utf-8"))


class _NewCommand(click.Command):
    """Lists the templates in its help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the templates, then the examples."""
        with formatter.section("Templates"):
            formatter.write_dl([(name, _describe(name)["summary"]) for name in _template_names()])
        super().format_epilog(ctx, formatter)


_EPILOG = """\
\b
Examples:
  trunkline new weather
  trunkline new weather --template api
  trunkline new projects/library --template database
  trunkline new checklist --template app
"""


@click.command(cls=_NewCommand, epilog=_EPILOG)
@click.argument("folder", metavar="NAME")
@click.option(
    "--template",
    type=click.Choice(_template_names()),
    default="tool",
    show_default=True,
    help="Template of the project.",
)
@json_option
def command(folder: str, *, template: str, as_json: bool) -> int:
    """Create a project with a working server and tests in the new folder NAME.

    NAME may be a path; its last part is the name of the project. A dot creates it in the current folder, if that is
    empty.
    """
    return with_json_errors(lambda: _create(folder, template, as_json), as_json)


def _create(folder: str, template: str, as_json: bool) -> int:
    path = os.path.abspath(folder)
    name = os.path.basename(path)
    package = _package(name)
    _check_empty(path, folder)
    description = _describe(template)
    values = {
        **{key: str(value) for key, value in description.items()},
        "name": name,
        "package": package,
        "title": re.sub(r"[-_]+", " ", name).capitalize(),
        "version": __version__,
    }
    written = _write(path, _rendered(template, values))
    _report(path, folder, template, values, written, as_json)
    return Exit.OK


def _package(name: str) -> str:
    """Return the name of the package for a project.

    Raises:
        CommandError: the name cannot be that of a project.
    """
    package = name.replace("-", "_").lower()
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise CommandError(
            f"{name!r} cannot be the name of a project: use letters, digits, - and _, beginning with a letter, at most "
            f"{_LONGEST_NAME} characters",
            Exit.USAGE,
        )
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _TAKEN:
        raise CommandError(
            f"{name!r} cannot be the name of a project, since Python or a package has that name; try {name}-server",
            Exit.USAGE,
        )
    return package


def _check_empty(path: str, folder: str) -> None:
    try:
        is_empty = not os.listdir(path)
    except FileNotFoundError:
        is_empty = True
    except NotADirectoryError:
        raise CommandError(f"{folder} is a file; choose another name", Exit.CONFIG) from None
    except OSError as error:
        raise CommandError(f"{folder}: cannot be read: {error.strerror}", Exit.CONFIG) from error
    if not is_empty:
        raise CommandError(
            f"the folder {folder} exists and is not empty; choose another name, or move its files away", Exit.CONFIG
        )


# --- files -----------------------------------------------------------------------------------------------------------


def _rendered(template: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a project by path; a file of the template wins over a shared one."""
    sources = {**dict(_files(_templates() / _SHARED)), **dict(_files(_templates() / template))}
    return {_fill(path, {"package": values["package"]}): _fill(text, values) for path, text in sorted(sources.items())}


def _files(folder: Traversable, inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield the files below a folder: their path in the project, and their text."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{inside}{each.name.replace('PACKAGE', '@@package@@')}/")
        elif each.name.endswith(_SUFFIX):
            name = re.sub(r"^dot_", ".", each.name.removesuffix(_SUFFIX))
            yield inside + name, each.read_text(encoding="utf-8")


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the marks of a text; a value may contain marks itself."""
    while _MARK.search(text):
        text = _MARK.sub(lambda found: values[found.group(1)], text)
    return text


def _write(path: str, project: Mapping[str, str]) -> list[str]:
    """Write the files of a project; if that fails, none of them is left.

    Raises:
        CommandError: a file cannot be written.
    """
    written: list[str] = []
    try:
        for name, text in project.items():
            file = os.path.join(path, *name.split("/"))
            os.makedirs(os.path.dirname(file), exist_ok=True)
            # Exclusive: what another program writes meanwhile is not replaced.
            with open(file, "x", encoding="utf-8", newline="\n") as opened:
                written.append(file)
                opened.write(text)
    except OSError as error:
        for file in written:
            os.unlink(file)
        raise CommandError(
            f"{path}: cannot be written: {error.strerror or error}; nothing was created", Exit.CONFIG
        ) from error
    return list(project)


# --- printing --------------------------------------------------------------------------------------------------------


def _report(
    path: str, folder: str, template: str, values: Mapping[str, str], written: list[str], as_json: bool
) -> None:
    from trunkline.cli.ui.output import print_json, print_text

    server = f"src/{values['package']}/server.py"
    steps = [
        ("", f"cd {shlex.quote(folder)}"),
        ("call a tool", f"trunkline call {server} {values['tool']} {values['arguments']}"),
        ("run its tests; they need: pip install pytest", "python -m pytest"),
        ("serve it, loaded again at every edit", f"trunkline run {server} --http 8000 --reload"),
        ("add it to an application", f"trunkline install {server} --name {values['name']} --into claude-desktop"),
    ]
    if os.path.realpath(path) == os.path.realpath(os.getcwd()):
        steps = steps[1:]
    if as_json:
        commands = [command for _, command in steps]
        print_json({"folder": path, "name": values["name"], "template": template, "files": written, "next": commands})
        return
    width = max(len(command) for _, command in steps)
    print_text(f"Created {values['name']} in {path} ({template}): {values['summary']}")
    print_text("\n".join(["", *(f"  {name}" for name in written), "", "Next steps:", ""]))
    print_text("\n".join(f"  {command:{width}}  # {what}" if what else f"  {command}" for what, command in steps))
