"""``trunkline secret``: stores, lists and removes the secrets that a configuration refers to.

A secret is typed without echo or read from a pipe. It is never an argument, which other users of the machine could
read, and which the shell would keep in its history. Nothing here ever prints one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import json_option, with_json_errors

if TYPE_CHECKING:
    from trunkline.host.secrets.vault import SecretStoreName, StoredSecret, Vault

__all__ = ["command"]

T = TypeVar("T")

_EPILOG = """\
\b
Examples:
  trunkline secret set github
  pass show github | trunkline secret set github --store file
  trunkline secret list
  trunkline secret rm github

\b
In a configuration, refer to a secret in args, env, headers, url or oauth:
  {"env": {"GITHUB_TOKEN": "secret://github"}}
  {"headers": {"Authorization": "Bearer ${secret:github}"}}

secret://env/NAME is an environment variable; secret://cmd/NAME is the output of a command defined in your secrets.toml.
Secrets are stored in the system's keyring or, if there is none, in an encrypted file.
"""
_MOST_BYTES = 64 * 1024  # As in the vault; keys and certificates have a few KiB.
_store_option = click.option(
    "--store",
    type=click.Choice(["keyring", "file"]),
    help="Where the secret is stored. Default: the keyring, if there is one.",
)


@click.group("secret", epilog=_EPILOG)
def command() -> None:
    """Manage stored secrets."""


@command.command("set")
@click.argument("name")
@click.argument("more", nargs=-1, metavar="")
@_store_option
@json_option
def set_one(name: str, *, more: tuple[str, ...], store: SecretStoreName | None, as_json: bool) -> int:
    """Store a secret as NAME, replacing an older one. It is typed without echo, or read from a pipe."""
    from trunkline.cli.ui.output import print_json, print_notice, print_text
    from trunkline.host.config.variables import is_maskable
    from trunkline.host.secrets.vault import check_name

    if more:
        raise click.UsageError("Type the secret or pipe it in: other users could read it as an argument.")

    def keep() -> str:
        check_name(name)
        value = _value(name)
        if not is_maskable(value):
            print_notice("it is too short, or too common a word, to be redacted from output and logs")
        return _run(lambda vault: vault.put(name, value, place=store))

    place = with_json_errors(keep, as_json)
    if as_json:
        print_json({"name": name, "store": place})
    else:
        print_text(f"stored {name} in the {_shown(place)}; use it as secret://{name}")
    return Exit.OK


@command.command("list")
@json_option
def list_them(*, as_json: bool) -> int:
    """List the names of stored secrets, where each is stored, and when it was set. Secrets are never shown."""
    from trunkline.cli.ui.output import print_json, print_notice, print_table

    found = with_json_errors(lambda: _run(lambda vault: vault.list_secrets()), as_json)
    if as_json:
        rows = [{"name": each.name, "store": each.source, "set_at": each.set_at} for each in found]
        print_json({"secrets": rows})
    elif found:
        print_table(("NAME", "STORED IN", "SET"), [(each.name, _shown(each.source), _day(each)) for each in found])
    else:
        print_notice("no secrets stored; to store one, run: trunkline secret set NAME")
    return Exit.OK


@command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_store_option
@json_option
def remove(names: tuple[str, ...], *, store: SecretStoreName | None, as_json: bool) -> int:
    """Remove the secrets NAME..., wherever they are stored."""
    from trunkline.cli.ui.output import print_json, print_text

    async def forget(vault: Vault) -> dict[str, list[SecretStoreName]]:
        return {name: await vault.remove(name, place=store) for name in names}

    gone = with_json_errors(lambda: _run(forget), as_json)
    unknown = [name for name, places in gone.items() if not places]
    if as_json:
        print_json({"removed": {name: places for name, places in gone.items() if places}, "unknown": unknown})
    elif len(unknown) < len(gone):
        print_text("\n".join(f"removed {name} from the {_both(places)}" for name, places in gone.items() if places))
    if unknown:
        raise CommandError(f"no secret {', '.join(unknown)}; to list secrets, run: trunkline secret list", Exit.USAGE)
    return Exit.OK


def _run(work: Callable[[Vault], Awaitable[T]]) -> T:
    """Run a coroutine function with the user's vault."""
    from trunkline.host.secrets.vault import Vault

    async def done() -> T:
        return await work(Vault())

    return asyncio.run(done())


def _value(name: str) -> str:
    """Read the secret from the terminal without echo, or from a pipe."""
    if sys.stdin is not None and sys.stdin.isatty():
        return _typed(name)
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise CommandError(f"a secret may have at most {_MOST_BYTES // 1024} KiB", Exit.USAGE)
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise CommandError("a secret must be UTF-8 text", Exit.USAGE) from None


def _typed(name: str) -> str:
    from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, echo_disabled

    terminal = Terminal(Screen(verbose=False))
    try:
        with echo_disabled():
            said = asyncio.run(terminal.ask(f"{name} (input is hidden): "))
    except EndOfInput:
        said = ""
    # The newline was not echoed either.
    terminal.show("")
    return said


def _both(places: Sequence[str]) -> str:
    return " and the ".join(map(_shown, places))


def _shown(source: str) -> str:
    return {"file": "encrypted file", "cmd": "command of secrets.toml"}.get(source, source)


def _day(kept: StoredSecret) -> str:
    import time

    return "" if kept.set_at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.set_at))
