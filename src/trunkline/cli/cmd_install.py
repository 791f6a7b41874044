"""``trunkline install``: adds a server, or the gateway, to another application's configuration, and undoes that.

Only the one entry is changed: comments and everything else in the file are kept, and a file that cannot be parsed is
not touched. A backup is written beside it; ``--undo`` restores it byte for byte. Nothing is started, no shell is used.
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

Applications start servers in a directory of their own and pass on few environment variables, so absolute paths are
written; add variables with --env. Restart the application afterwards.
"""
_APPS = ("claude-desktop", "claude-code", "cursor", "vscode")
#: The options that describe a new entry.
_NEW = ("target", "gateway", "config", "approval", "name", "env", "header")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@click.command(epilog=_EPILOG)
@click.argument("target", required=False)
@click.option("--into", "app", required=True, type=click.Choice(_APPS), help="Application to change.")
@click.option("--gateway", is_flag=True, help="Install the gateway for the configuration given with -c, or your own.")
@config_option
@approval_option("With --gateway: who asks for approval. Default: client. See trunkline serve --help.")
@click.option("--name", metavar="NAME", help="Name of the server in the application. Default: derived from TARGET.")
@click.option("--project", is_flag=True, help="Change the file of the project in this directory instead of your own.")
@click.option(
    "--env", multiple=True, metavar="K=V", help="Environment variable for the server; K alone copies yours. Repeatable."
)
@click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="HTTP header for requests to a URL; repeatable.")
@click.option("--replace", is_flag=True, help="Replace a server of the same name.")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--undo", is_flag=True, help="Undo the last change to the application's file.")
@json_option
def command(*, app: str, undo: bool, as_json: bool, **given: Any) -> int:
    """Add the server TARGET, or the gateway, to another application.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server.
    """
    if undo:
        wrong = [name for name in (*_NEW, "replace") if given[name]]
        if wrong:
            raise click.UsageError(f"{_option(wrong[0])} has no effect with --undo.")
        return told(lambda: _undo(_file(app, project=given["project"]), given["dry_run"], as_json), as_json)
    if bool(given["target"]) == given["gateway"]:
        raise click.UsageError("Give either TARGET or --gateway.")
    if given["approval"] and not given["gateway"]:
        raise click.UsageError("--approval needs --gateway: other servers have no approval mode.")
    return told(lambda: _install(app, given, as_json), as_json)


def _option(name: str) -> str:
    return "TARGET" if name == "target" else f"--{name}"


def _file(app: str, *, project: bool) -> AppFile:
    from trunkline.host.apps.places import APPS, files_of, here

    wanted = "project" if project else "user"
    found = next((file for file in files_of(app, here()) if file.scope == wanted), None)
    if found is None:
        raise Failure(f"{APPS[app]} has no project file; leave out --project", Exit.USAGE)
    return found


# --- installing ------------------------------------------------------------------------------------------------------


def _install(app: str, given: Mapping[str, Any], as_json: bool) -> int:
    from trunkline.host.apps.documents import read_app_file
    from trunkline.host.apps.editing import put_member
    from trunkline.host.apps.rewriting import rewrite

    file = _file(app, project=given["project"])
    name, entry = _entry(app, given)
    if not _NAME.fullmatch(name):
        raise Failure(
            f"invalid name {name!r}: only letters, digits, - and _ are allowed; set one with --name", Exit.USAGE
        )
    document = read_app_file(file)
    there = document.servers.get(name)
    if there == entry:
        return _tell(file, name, "already installed", diff="", backup=None, as_json=as_json)
    if there is not None and not given["replace"]:
        raise Failure(
            f"{file.path}: there is another server {name!r}; choose a name with --name, or add --replace",
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
    """Return the name and the entry to install."""
    from trunkline.cli.options import headers_of, variables_of
    from trunkline.cli.targets import Named, Site, read_target
    from trunkline.host.apps.translating import command_entry, gateway_entry, name_for, url_entry

    env, headers = variables_of(given["env"]), headers_of(given["header"])
    target = None if given["gateway"] else read_target(given["target"], given["config"])
    if isinstance(target, Named):
        _check_unused(given, ("env", "header"), "the entry of the server defines that")
        return given["name"] or target.server or "", _from_configuration(app, target)
    if isinstance(target, Site):
        _check_unused(given, ("env",), "TARGET is a URL")
        return given["name"] or name_for((), target.url), url_entry(app, target.url, headers)
    _check_unused(given, ("header",), "TARGET is started with a command")
    if target is None:
        files, mode = _configuration(given["config"]), given["approval"] or "client"
        return given["name"] or "trunkline", gateway_entry(app, files, env, approval=mode)
    return given["name"] or name_for(target.command), command_entry(app, target.command, {**target.env, **env})


def _configuration(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the configuration files for the gateway, after checking them; the working directory must not matter."""
    from trunkline.cli.configs import read_configuration
    from trunkline.host.folders import config_folder

    own = config_folder() / "mcp.json"
    if not files and not own.exists():
        raise Failure(f"there is no {own} to serve; run: trunkline import, or give a file with -c", Exit.CONFIG)
    files = files or (str(own),)
    read_configuration(files)
    return files


def _check_unused(given: Mapping[str, Any], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if given[name]:
            raise click.UsageError(f"--{name} has no effect: {why}.")


def _from_configuration(app: str, target: Named) -> dict[str, Any]:
    """Return an entry as it is written in its configuration file, without substituting variables."""
    from trunkline.cli.configs import read_configuration
    from trunkline.host.apps.translating import own_entry
    from trunkline.host.config.documents import read_document
    from trunkline.host.config.positions import plain

    entry = read_configuration(target.files).entries[target.server or ""]
    if target.rest is not None or entry.source.file is None:
        raise click.UsageError("Give the name of the server alone: a whole server is installed.")
    written = {each.name: each.value for each in read_document(entry.source.file, scope="given").servers}
    return own_entry(app, entry.name, plain(written[entry.name]))


# --- undoing ---------------------------------------------------------------------------------------------------------


def _undo(file: AppFile, dry_run: bool, as_json: bool) -> int:
    from trunkline.host.apps.rewriting import undo

    backup, now, old = undo(file.path, dry_run=dry_run)
    diff = _diff(_text(now), _text(old), file)
    what = "not changed" if dry_run else "restored" if old is not None else "restored; the file is removed again"
    return _tell(file, None, what, diff=diff, backup=str(backup.path) if dry_run else None, as_json=as_json)


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8-sig", "replace")


# --- printing --------------------------------------------------------------------------------------------------------


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
        complain("the file did not exist before" if absent else f"backup: {backup}")
    if what.startswith(("installed", "restored")):
        complain(f"restart {APPS[file.app]} to apply the change")
    return Exit.OK
