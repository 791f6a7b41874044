"""``trunkline install``: puts a server, or the gateway, into another application's configuration, and takes it back.

Only the one entry is changed: comments and everything else in the file stay, and a file that cannot be understood is
left alone. A backup lies beside it; ``--undo`` restores it byte for byte. Nothing is started, and no shell is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import approval_option, config_option, json_option, told

if TYPE_CHECKING:
    from trunkline.cli.targets import Named
    from trunkline.host.apps.places import AppFile

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline install weather.py --into claude-desktop
  trunkline install "npx -y @modelcontextprotocol/server-everything" --into vscode --project
  trunkline install https://mcp.example.com/mcp --into cursor --dry-run
  trunkline install --gateway -c mcp.json --into claude-code
  trunkline install --undo --into claude-desktop

Applications start servers in a folder of their own and pass few variables on: paths are written in full, and --env
gives variables. Restart the application afterwards.
"""
_APPS = ("claude-desktop", "claude-code", "cursor", "vscode")
#: The options that describe a new entry.
_NEW = ("target", "gateway", "config", "approval", "name", "env", "header")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@click.command(epilog=_EPILOG)
@click.argument("target", required=False)
@click.option("--into", "app", required=True, type=click.Choice(_APPS), help="The application.")
@click.option("--gateway", is_flag=True, help="Put in our gateway, over the configuration of -c or your own.")
@config_option
@approval_option("With --gateway: who asks the user before a call; else client. See trunkline serve --help.")
@click.option("--name", metavar="NAME", help="What the server is called there; else it is made up from TARGET.")
@click.option("--project", is_flag=True, help="Into the file of the project in this folder, not your own.")
@click.option("--env", multiple=True, metavar="K=V", help="A variable for the server; K alone passes ours on.")
@click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="A header for every request to a URL.")
@click.option("--replace", is_flag=True, help="Take the place of another server of that name.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--undo", is_flag=True, help="Take the last change of this application's file back.")
@json_option
def command(*, app: str, undo: bool, as_json: bool, **given: Any) -> int:
    """Put the server TARGET, or the gateway, into another application.

    TARGET is a .py file, FILE:object, a quoted command, a URL, or the name of a server in a configuration.
    """
    if undo:
        wrong = [name for name in (*_NEW, "replace") if given[name]]
        if wrong:
            raise click.UsageError(f"--undo takes a change back, so {_option(wrong[0])} means nothing.")
        return told(lambda: _undo(_file(app, project=given["project"]), given["dry_run"], as_json), as_json)
    if bool(given["target"]) == given["gateway"]:
        raise click.UsageError("give either TARGET or --gateway.")
    if given["approval"] and not given["gateway"]:
        raise click.UsageError("--approval is for --gateway: another server has no approval mode.")
    return told(lambda: _install(app, given, as_json), as_json)


def _option(name: str) -> str:
    return "TARGET" if name == "target" else f"--{name}"


def _file(app: str, *, project: bool) -> AppFile:
    from trunkline.host.apps.places import APPS, files_of, here

    wanted = "project" if project else "user"
    found = next((file for file in files_of(app, here()) if file.scope == wanted), None)
    if found is None:
        raise Failure(f"{APPS[app]} has no file for a project; leave --project out", Exit.USAGE)
    return found


# --- putting in ------------------------------------------------------------------------------------------------------


def _install(app: str, given: Mapping[str, Any], as_json: bool) -> int:
    from trunkline.host.apps.documents import read_app_file
    from trunkline.host.apps.editing import put_member
    from trunkline.host.apps.rewriting import rewrite

    file = _file(app, project=given["project"])
    name, entry = _entry(app, given)
    if not _NAME.fullmatch(name):
        raise Failure(f"the name {name!r} has more than letters, digits, - and _: give another by --name", Exit.USAGE)
    document = read_app_file(file)
    there = document.servers.get(name)
    if there == entry:
        return _tell(file, name, "there already", diff="", backup=None, as_json=as_json)
    if there is not None and not given["replace"]:
        raise Failure(
            f"{file.path}: another server is called {name!r}: give --name, or --replace to put this one in its place",
            Exit.CONFIG,
        )
    changed = put_member(document.text, file.way, name, entry)
    diff = _diff(document.text, changed, file)
    if given["dry_run"]:
        return _tell(file, name, "not changed", diff=diff, backup=None, as_json=as_json)
    backup = rewrite(file.path, document.encoded(changed), before=document.content)
    told = _tell(file, name, "installed", diff=diff, backup=str(backup.path), as_json=as_json)
    if given["gateway"] and not as_json:
        from trunkline.cli.approval_modes import setup_sentence
        from trunkline.cli.output import complain

        complain(setup_sentence(given["approval"] or "client"))
    return told


def _entry(app: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Make the entry, and the name under which it is put in."""
    from trunkline.cli.options import headers_of, variables_of
    from trunkline.cli.targets import Named, Site, read_target
    from trunkline.host.apps.translating import command_entry, gateway_entry, name_for, url_entry

    env, headers = variables_of(given["env"]), headers_of(given["header"])
    target = None if given["gateway"] else read_target(given["target"], given["config"])
    if isinstance(target, Named):
        _check_unused(given, ("env", "header"), "its entry says how it is reached")
        return given["name"] or target.server or "", _from_configuration(app, target)
    if isinstance(target, Site):
        _check_unused(given, ("env",), "TARGET is a URL")
        return given["name"] or name_for((), target.url), url_entry(app, target.url, headers)
    _check_unused(given, ("header",), "TARGET is started by its command")
    if target is None:
        files, mode = _configuration(given["config"]), given["approval"] or "client"
        return given["name"] or "trunkline", gateway_entry(app, files, env, approval=mode)
    return given["name"] or name_for(target.command), command_entry(app, target.command, {**target.env, **env})


def _configuration(files: tuple[str, ...]) -> tuple[str, ...]:
    """Give the files of the gateway, which must be good; where the application starts it decides nothing."""
    from trunkline.cli.configs import read_configuration
    from trunkline.host.folders import config_folder

    own = config_folder() / "mcp.json"
    if not files and not own.exists():
        raise Failure(f"there is no {own} to serve: run trunkline import, or name a file with -c", Exit.CONFIG)
    files = files or (str(own),)
    read_configuration(files)
    return files


def _check_unused(given: Mapping[str, Any], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if given[name]:
            raise click.UsageError(f"--{name} means nothing here: {why}.")


def _from_configuration(app: str, target: Named) -> dict[str, Any]:
    """Give an entry of a configuration as it is written there: no variable is filled."""
    from trunkline.cli.configs import read_configuration
    from trunkline.host.apps.translating import own_entry
    from trunkline.host.config.documents import read_document
    from trunkline.host.config.positions import plain

    entry = read_configuration(target.files).entries[target.server or ""]
    if target.rest is not None or entry.source.file is None:
        raise click.UsageError("a whole server is put in: give its name alone.")
    written = {each.name: each.value for each in read_document(entry.source.file, scope="given").servers}
    return own_entry(app, entry.name, plain(written[entry.name]))


# --- taking back -----------------------------------------------------------------------------------------------------


def _undo(file: AppFile, dry_run: bool, as_json: bool) -> int:
    from trunkline.host.apps.rewriting import undo

    backup, now, old = undo(file.path, dry_run=dry_run)
    diff = _diff(_text(now), _text(old), file)
    what = "not changed" if dry_run else "taken back" if old is not None else "taken back; the file is gone again"
    return _tell(file, None, what, diff=diff, backup=str(backup.path) if dry_run else None, as_json=as_json)


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8-sig", "replace")


# --- telling ---------------------------------------------------------------------------------------------------------


def _diff(before: str, after: str, file: AppFile) -> str:
    from trunkline.host.apps.masking import masked_diff

    return masked_diff(before, after, str(file.path))


def _tell(file: AppFile, name: str | None, what: str, *, diff: str, backup: str | None, as_json: bool) -> int:
    from trunkline.cli.output import complain, say, say_json
    from trunkline.host.apps.places import APPS

    if as_json:
        say_json({"file": str(file.path), "name": name, "outcome": what, "backup": backup, "diff": diff})
        return Exit.OK
    if diff:
        say(diff)
    subject = file.path if name is None else f"{name}, in {file.path}"
    complain(f"{subject}: {what}")
    if backup is not None:
        absent = backup.endswith(".absent")
        complain("there was no such file before" if absent else f"the file as it was: {backup}")
    if what.startswith(("installed", "taken back")):
        complain(f"restart {APPS[file.app]} to have it see that")
    return Exit.OK
