"""The command line's entry: wires the commands and turns every failure into a sentence and an exit code.

A command's module is imported when the command is used, so ``--help`` and ``--version`` load neither the client nor the
server, and ``run`` does not load the client. Nothing but this file ends the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from trunkline import __version__
from trunkline.cli.exits import Exit, Failure, debugging, exit_for
from trunkline.cli.output import complain, one_line
from trunkline.cli.secrecy import Secrecy

__all__ = ["main"]

#: Each verb with its line in the help; its command is ``command`` in ``cmd_<verb>``.
_VERBS: Mapping[str, str] = MappingProxyType(
    {
        "run": "Serve a Python file's server, over stdio or HTTP.",
        "chat": "Talk to a model that uses the servers of a configuration.",
        "ask": "Ask a model that uses the servers of a configuration, once.",
        "serve": "Serve all servers of a configuration as one, over stdio or HTTP.",
        "list": "List what a server offers.",
        "call": "Call a tool.",
        "read": "Read a resource.",
        "get": "Fill in a prompt.",
        "complete": "Ask for proposals for an argument.",
        "listen": "Show changes as they happen.",
        "status": "Say how the servers of a configuration are.",
        "doctor": "Find out why a server does not work, and what to do.",
        "import": "Take over the servers of other applications.",
        "install": "Put a server, or the gateway, into another application.",
        "config": "Explain the configuration.",
        "trust": "Say which servers of a project may run.",
        "pins": "See what servers offered when first seen, what changed, accept it.",
        "policy": "Say what the rules decide and why, test them.",
        "grants": "List what was allowed in advance, take it back.",
        "audit": "Prove that the audit trail is whole, find things in it.",
        "auth": "Log in at servers, log out, list logins.",
        "secret": "Keep secrets that a configuration names, list them, remove them.",
        "record": "Wrap a server and write down everything that is said.",
        "replay": "Play a recording as a fake server or a fake client.",
        "diff": "Compare two recordings.",
    }
)

_EPILOG = """\
\b
Examples:
  trunkline run weather.py --http 8000
  trunkline list tools http://127.0.0.1:8000/mcp
  trunkline list tools weather.py
  trunkline call weather.py forecast city=Oslo days=2
  trunkline read "npx -y @modelcontextprotocol/server-everything" demo://resource/static/document/features.md
  trunkline call files read_file path=notes.txt -c mcp.json
  trunkline serve -c mcp.json --http 8080

\b
Exit codes: 0 ok, 1 usage, 2 file or setting, 3 authorization, 4 server unreachable, 5 tool error or error answer,
6 denied by policy or user, 7 timed out, 130 interrupted. TRUNKLINE_DEBUG=1 shows tracebacks.
"""


class _Verbs(click.Group):
    """The group of all verbs; it knows their names and help lines without loading them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the verbs, in the order of the help."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a verb."""
        if cmd_name not in _VERBS:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"trunkline.cli.cmd_{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; a reader that left is told apart here, where click has not yet made a code of its own of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Failure("nobody reads the output any more", Exit.UNREAD) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs into the help; asked of the commands themselves, this would load them all."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(__version__, "-V", "--version", prog_name="trunkline", message="%(prog)s %(version)s")
def _trunkline() -> None:
    """Run Model Context Protocol servers, and call what they offer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code; without arguments, those of the process."""
    _forgive_encodings()
    words = sys.argv[1:] if arguments is None else list(arguments)
    secrecy = Secrecy()
    try:
        outcome: int = _trunkline.main(words or ["--help"], prog_name="trunkline", standalone_mode=False, obj=secrecy)
        return outcome if words else Exit.USAGE
    except click.ClickException as error:
        _complain_of_usage(error)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary: every failure ends as a sentence and a code
        return _end(error, secrecy)


def _end(error: Exception, secrecy: Secrecy) -> int:
    code = exit_for(error)
    if code is Exit.UNREAD:
        # What is still buffered has no reader either, and the interpreter would complain when it flushes.
        _discard_output()
        return code
    if debugging():
        import traceback

        click.echo(secrecy.hide("".join(traceback.format_exception(error))), err=True, nl=False)
    complain(secrecy.hide(_sentence(error)))
    return code


def _complain_of_usage(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    told = error.format_message()
    if context is not None and told == context.get_help():
        # A verb that has verbs of its own, and was given none of them.
        click.echo(told)
        return
    path = "trunkline" if context is None else context.command_path
    sentence = one_line(told)
    # Some of click's sentences end with a list, and without a stop.
    complain(f"{sentence if sentence.endswith(('.', '?')) else f'{sentence}.'} See {path} --help.")


def _sentence(error: Exception) -> str:
    from trunkline.errors import TrunklineError

    if isinstance(error, Failure | TrunklineError):
        return str(error) or type(error).__name__
    return f"internal error: {type(error).__name__}: {error} (TRUNKLINE_DEBUG=1 shows where)"


def _forgive_encodings() -> None:
    """Have a character that the output cannot show written as an escape, not raise."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
