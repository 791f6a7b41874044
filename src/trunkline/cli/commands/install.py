"""``trunkline install``: adds a server, or the gateway, to another application's configuration, and undoes that.

Only the one entry is changed: comments and everything else in the file are kept, and a file that cannot be parsed is
not touched. A backup is written beside it; ``--undo`` restores it byte for byte, or takes back this entry alone if the
file was changed since. ``--print`` prints the entry instead. No shell is used. With ``--gateway`` in a terminal, the
servers are started once, so that the first list of the application is complete.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import approval_option, config_option, json_option, with_json_errors
from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from trunkline.cli.targets import ConfiguredTarget
    from trunkline.devtools.client_configs.files import AppFile

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline install weather.py --into claude-desktop
  trunkline install "npx -y @modelcontextprotocol/server-everything" --into vscode --project
  trunkline install https://mcp.example.com/mcp --into cursor --dry-run
  trunkline install --gateway -c mcp.json --into claude-code
  trunkline install weather.py --print
  trunkline install weather.py --into codex --print
  trunkline install --undo --into claude-desktop

Applications start servers in a directory of their own and pass on few environment variables, so absolute paths are
written; add variables with --env. Restart the application afterwards.
"""
_APPS = ("claude-desktop", "claude-code", "cursor", "vscode", "gemini-cli", "codex", "goose", "windsurf", "zed")
#: Its form is printed by default: it has commands and URLs, and our own mcp.json and many others have the same.
_PRINTED = "claude-code"
#: The options that describe a new entry.
_NEW = ("target", "gateway", "config", "approval", "name", "env", "header")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@click.command(epilog=_EPILOG)
@click.argument("target", required=False)
@click.option(
    "--into",
    "app",
    type=click.Choice(_APPS),
    help="Application to change; with --print the one whose form is printed. Default for --print: claude-code.",
)
@click.option("--gateway", is_flag=True, help="Install the gateway for the configuration given with -c, or your own.")
@config_option
@approval_option("With --gateway: who asks for approval. Default: client. See trunkline serve --help.")
@click.option(
    "--search",
    type=click.Choice(["auto", "on", "off"]),
    help="With --gateway: offer search tools instead of the catalog. Default: asked if the catalog is large.",
)
@click.option(
    "--start/--no-start",
    default=None,
    help="With --gateway: start the servers once, so that the first list is complete. Default: in a terminal.",
)
@click.option("--name", metavar="NAME", help="Name of the server in the application. Default: derived from TARGET.")
@click.option("--project", is_flag=True, help="Change the file of the project in this directory instead of your own.")
@click.option(
    "--env", multiple=True, metavar="K=V", help="Environment variable for the server; K alone copies yours. Repeatable."
)
@click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="HTTP header for requests to a URL; repeatable.")
@click.option("--replace", is_flag=True, help="Replace a server of the same name.")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--print", "only_print", is_flag=True, help="Print the entry to paste, and change nothing.")
@click.option("--undo", is_flag=True, help="Undo the last change to the application's file.")
@json_option
def command(*, app: str | None, undo: bool, as_json: bool, **given: Any) -> int:
    """Add the server TARGET, or the gateway, to another application.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server.
    """
    if app is None and (undo or not given["only_print"]):
        raise click.UsageError(f"Missing option '--into', or --print. Choose from: {', '.join(_APPS)}.")
    if undo:
        assert app is not None
        wrong = [name for name in (*_NEW, "replace", "only_print") if given[name]]
        if wrong:
            raise click.UsageError(f"{_option(wrong[0])} has no effect with --undo.")
        return with_json_errors(lambda: _undo(_file(app, project=given["project"]), given["dry_run"], as_json), as_json)
    if bool(given["target"]) == given["gateway"]:
        raise click.UsageError("Pass either TARGET or --gateway.")
    if given["only_print"] and (as_json or given["dry_run"] or given["replace"]):
        raise click.UsageError("--print has no effect on a file, so --json, --dry-run and --replace have none with it.")
    if given["approval"] and not given["gateway"]:
        raise click.UsageError("--approval needs --gateway: other servers have no approval mode.")
    if (given["search"] or given["start"] is not None) and not given["gateway"]:
        raise click.UsageError("--search and --start need --gateway.")
    details = {**given, "as_json": as_json, "names_app": app is not None}
    return with_json_errors(lambda: _install(app or _PRINTED, details, as_json), as_json)


def _option(name: str) -> str:
    return "TARGET" if name == "target" else "--print" if name == "only_print" else f"--{name}"


def _file(app: str, *, project: bool) -> AppFile:
    from trunkline.devtools.client_configs.files import APPS, current_machine, files_of

    wanted = "project" if project else "user"
    found = next((file for file in files_of(app, current_machine()) if file.scope == wanted), None)
    if found is None:
        raise CommandError(f"{APPS[app]} has no project file; leave out --project", Exit.USAGE)
    return found


# --- installing ------------------------------------------------------------------------------------------------------


def _install(app: str, given: Mapping[str, Any], as_json: bool) -> int:
    from trunkline.devtools.client_configs.files import read_app_file, write_with_backup
    from trunkline.devtools.client_configs.formats import put_server, render_server

    file = _file(app, project=given["project"])
    name, entry = _entry(app, given)
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"invalid name {name!r}: only letters, digits, - and _ are allowed; set one with --name", Exit.USAGE
        )
    if given["only_print"]:
        # Bare: it is pasted or piped, and must be exact. Nothing that the user did not give is in it.
        click.echo(render_server(str(file.path), file.key_path, name, entry), nl=False)
        if not given["names_app"]:
            _print_form(app)
        return Exit.OK
    try:
        document = read_app_file(file)
        changed = put_server(document.text, str(file.path), file.key_path, name, entry)
    except ConfigError as error:
        raise ConfigError(f"{error}; nothing was changed. Add --print to see the entry, and paste it") from error
    there = document.servers.get(name)
    if there == entry:
        return _tell(file, name, "already installed", diff="", backup=None, as_json=as_json)
    if there is not None and not given["replace"]:
        raise CommandError(
            f"{file.path}: there is another server {name!r}; choose a name with --name, or add --replace",
            Exit.CONFIG,
        )
    diff = _diff(document.text, changed, file)
    if given["dry_run"]:
        return _tell(file, name, "not changed", diff=diff, backup=None, as_json=as_json)
    backup = write_with_backup(file.path, document.encoded(changed), before=document.content, server=name)
    told = _tell(file, name, "installed", diff=diff, backup=str(backup.path), as_json=as_json)
    if given["gateway"] and not as_json:
        from trunkline.cli.gateway_options import approval_summary
        from trunkline.cli.ui.output import print_notice

        print_notice(approval_summary(given["approval"] or "client"))
    return told


def _entry(app: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry to install."""
    from trunkline.cli.options import parse_env, parse_headers
    from trunkline.cli.targets import ConfiguredTarget, UrlTarget, resolve_target
    from trunkline.devtools.client_configs.entries import command_entry, gateway_entry, suggest_name, url_entry

    env, headers = parse_env(given["env"]), parse_headers(given["header"])
    target = None if given["gateway"] else resolve_target(given["target"], given["config"])
    if isinstance(target, ConfiguredTarget):
        _check_unused(given, ("env", "header"), "the entry of the server defines that")
        name = _name(app, given["name"] or target.server or "")
        return name, _from_configuration(app, target, name)
    if isinstance(target, UrlTarget):
        _check_unused(given, ("env",), "TARGET is a URL")
        name = _name(app, given["name"] or suggest_name((), target.url))
        return name, url_entry(app, target.url, headers, name=name)
    _check_unused(given, ("header",), "TARGET is started with a command")
    if target is None:
        files, mode = _configuration(given["config"]), given["approval"] or "client"
        name, search = _name(app, given["name"] or "trunkline"), given["search"]
        if not (given["only_print"] or given["dry_run"] or given["as_json"]):
            search = _search_mode(files, search, starts=given["start"])
        return name, gateway_entry(app, files, env, approval=mode, search=search, name=name)
    name = _name(app, given["name"] or suggest_name(target.command))
    return name, command_entry(app, target.command, {**target.env, **env}, name=name)


def _search_mode(files: tuple[str, ...], search: str | None, *, starts: bool | None) -> str | None:
    """Start the servers once, and ask whether to search their tools if there are many and nothing was chosen."""
    from trunkline.cli.first_start import listed_exposure
    from trunkline.cli.ui.output import print_notice
    from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, is_interactive

    exposure = listed_exposure(files, starts=starts)
    if search is not None or not exposure.searched:
        return search
    size = f"about {exposure.tokens:,} tokens, {exposure.reason}"
    if not is_interactive():
        print_notice(f"clients get two search tools instead of all tools ({size}); to list all, add --search off")
        return None
    prompt = f"The catalog is large ({size}). Offer two search tools instead? [Y]es, or [l]ist all: "
    try:
        return asyncio.run(Terminal(Screen(verbose=False)).choose(prompt, {"yes": "auto", "list": "off"}, default="y"))
    except EndOfInput:
        return None


def _name(app: str, name: str) -> str:
    """Return the name of a server as the application keeps it."""
    # Goose looks for an extension under the lower-case form of its name.
    return name.lower() if app == "goose" else name


def _configuration(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the configuration files for the gateway, after checking them; the working directory must not matter."""
    from trunkline.cli.host_session import load_cli_configuration
    from trunkline.host.state_files import config_folder

    own = config_folder() / "mcp.json"
    if not files and not own.exists():
        raise CommandError(f"there is no {own} to serve; run: trunkline import, or give a file with -c", Exit.CONFIG)
    files = files or (str(own),)
    load_cli_configuration(files)
    return files


def _check_unused(given: Mapping[str, Any], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if given[name]:
            raise click.UsageError(f"--{name} has no effect: {why}.")


def _from_configuration(app: str, target: ConfiguredTarget, name: str) -> dict[str, Any]:
    """Return an entry as it is written in its configuration file, with full paths; variables are not substituted."""
    from trunkline.cli.ui.output import print_notice
    from trunkline.devtools.client_configs.entries import portable_entry
    from trunkline.host.config.jsonc import to_python

    entry = target.configuration.entries[target.server or ""]
    if target.rest is not None or entry.source.file is None:
        raise click.UsageError("Give the name of the server alone: a whole server is installed.")
    scope, written = next(
        (scoped, member.value)
        for scoped in target.configuration.documents
        for member in scoped.document.servers
        if scoped.scope == entry.source.scope
        and scoped.document.file == entry.source.file
        and member.name == entry.name
    )
    translated, notes = portable_entry(app, name, to_python(written), scope.context)
    for note in notes:
        print_notice(f"{name}: {note}")
    return translated


# --- undoing ---------------------------------------------------------------------------------------------------------


def _undo(file: AppFile, dry_run: bool, as_json: bool) -> int:
    from trunkline.devtools.client_configs.files import restore_backup

    backup, now, old = restore_backup(file.path, file=file, dry_run=dry_run)
    diff = _diff(_text(now), _text(old), file)
    what = "not changed" if dry_run else "restored" if old is not None else "restored; the file is removed again"
    return _tell(file, None, what, diff=diff, backup=str(backup.path) if dry_run else None, as_json=as_json)


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8-sig", "replace")


# --- printing --------------------------------------------------------------------------------------------------------


def _diff(before: str, after: str, file: AppFile) -> str:
    from trunkline.devtools.client_configs.entries import masked_diff

    return masked_diff(before, after, str(file.path))


def _print_form(app: str) -> None:
    from trunkline.cli.ui.output import print_notice
    from trunkline.devtools.client_configs.files import APPS

    print_notice(f"printed in the form of {APPS[app]}; for that of another application, add --into APP")


def _tell(file: AppFile, name: str | None, what: str, *, diff: str, backup: str | None, as_json: bool) -> int:
    from trunkline.cli.ui.output import print_json, print_notice, print_text
    from trunkline.devtools.client_configs.files import APPS

    if as_json:
        print_json({"file": str(file.path), "name": name, "outcome": what, "backup": backup, "diff": diff})
        return Exit.OK
    if diff:
        print_text(diff)
    subject = file.path if name is None else f"{name}, in {file.path}"
    print_notice(f"{subject}: {what}")
    if backup is not None:
        absent = backup.endswith(".absent")
        print_notice("the file did not exist before" if absent else f"backup: {backup}")
    if what.startswith(("installed", "restored")):
        print_notice(f"restart {APPS[file.app]} to apply the change")
    return Exit.OK
