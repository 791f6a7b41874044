"""Entry point of the command line: registers the commands, and turns every failure into a message and an exit code.

A command's module is imported when the command is used, so ``--help`` and ``--version`` load neither the client nor the
server, and ``run`` does not load the client. Only this module ends the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from trunkline import __version__
from trunkline.cli.exit_codes import CommandError, Exit, debugging, exit_for
from trunkline.cli.ui.output import RunSecrets, colors_enabled, one_line, paint, print_notice, without_color

__all__ = ["main"]

#: The commands in groups, with their summaries; each is the ``command`` of its module in ``trunkline.cli.commands``.
_GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Build": {
            "new": "Create a project with a server, its tests and a client configuration.",
            "run": "Run the server in a Python file, over stdio or HTTP.",
            "dev": "Show a server in the browser, and reload it while you write.",
            "inspect": "Show one server in the browser.",
            "doctor": "Diagnose why a server does not work.",
            "install": "Add a server, or the gateway, to another application.",
            "completion": "Print the completion script of a shell.",
        },
        "Call": {
            "list": "List a server's tools, resources, templates, prompts or skills.",
            "describe": "Show the arguments of a tool.",
            "call": "Call a tool.",
            "task": "Wait for a task that an earlier call started.",
            "read": "Read a resource.",
            "get": "Render a prompt.",
            "complete": "Complete an argument.",
            "listen": "Watch a server's lists and resources for changes.",
            "chat": "Chat with a model that uses your configured servers.",
            "ask": "Ask a model one question, with your configured servers.",
        },
        "Host": {
            "console": "Show the configured servers in the browser.",
            "serve": "Run the gateway: all configured servers as one.",
            "status": "Show the status of the configured servers.",
            "config": "Show the effective configuration.",
            "import": "Import servers from other applications.",
        },
        "Security": {
            "trust": "Approve the servers of a project.",
            "pins": "Review changes to the definitions of servers.",
            "policy": "Explain, test and check policy rules.",
            "grants": "Allow tools in advance, and revoke grants.",
            "audit": "Verify and search the audit trail.",
            "auth": "Log in to servers, and log out.",
            "secret": "Manage stored secrets.",
        },
        "Record": {
            "record": "Record the traffic of a server.",
            "replay": "Replay a recording as a server or as a client.",
            "diff": "Compare two recordings.",
        },
    }
)
_WHOLE = 10_000  # Longer than any first sentence, so that no summary is cut.
_EPILOG = """\
\b
Examples:
  trunkline run weather.py --http 8000
  trunkline list tools http://127.0.0.1:8000/mcp
  trunkline list tools weather.py
  trunkline call weather.py forecast city=Oslo days=2
  trunkline list tools "npx -y @modelcontextprotocol/server-everything"
  trunkline call files read_file path=notes.txt -c mcp.json
  trunkline serve -c mcp.json --http 8080

Exit codes: 0 success, 1 usage error, 2 invalid file or setting, 3 authorization failed, 4 server unreachable,
5 tool error or error response, 6 denied by policy or user, 7 timed out, 130 interrupted.

Set TRUNKLINE_DEBUG=1 to see tracebacks.
"""


class _HelpFormatter(click.HelpFormatter):
    """Formats a help page; headings and names are painted."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        super().write_usage(prog, args, paint("Usage:", "heading") + " " if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        self.write(f"{'':>{self.current_indent}}{paint(f'{heading}:', 'heading')}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names with their descriptions."""
        super().write_dl([(paint(first, "name"), second) for first, second in rows], col_max, col_spacing)


class _HelpContext(click.Context):
    """A context whose help pages are formatted here."""

    formatter_class = _HelpFormatter

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.color = colors_enabled(sys.stdout)


def _prepare(command: click.Command) -> click.Command:
    """Return a command, and those in it, with help pages formatted here, whole summaries, and ``--no-color``."""
    if command.context_class is _HelpContext:
        return command
    command.context_class = _HelpContext
    command.short_help = command.get_short_help_str(_WHOLE)
    # ``main`` looks for it before anything is parsed, since the help page depends on it.
    option = click.Option(["--no-color"], is_flag=True, expose_value=False, help="Print without colour.")
    command.params.append(option)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _prepare(inner)
    return command


class _RootGroup(click.Group):
    """The group of all commands; it knows their names and one-line help without importing them."""

    context_class = _HelpContext
    #: The one-line help of each command.
    summaries: Mapping[str, str] = MappingProxyType(
        {verb: text for verbs in _GROUPS.values() for verb, text in verbs.items()}
    )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the help."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in self.summaries:
            return None
        from importlib import import_module

        command: click.Command = import_module(
            f"trunkline.cli.commands.{'import_' if cmd_name == 'import' else cmd_name}"
        ).command
        return _prepare(command)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a closed output pipe is handled here, before click turns it into an exit code of its own."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise CommandError("the output was closed by its reader", Exit.OUTPUT_CLOSED) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options, which are few and the same everywhere."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help; asking the commands themselves would import them all."""
        width = max(map(len, self.summaries))
        for heading, verbs in _GROUPS.items():
            with formatter.section(heading):
                # Padded, so that the summaries of all groups are aligned.
                formatter.write_dl([(f"{verb:{width}}", summary) for verb, summary in verbs.items()])


@click.group(cls=_RootGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(__version__, "-V", "--version", prog_name="trunkline", message="%(prog)s %(version)s")
@click.option("--no-color", is_flag=True, expose_value=False, help="Print without colour; every command accepts it.")
def _trunkline() -> None:
    """Run, use and combine Model Context Protocol servers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``arguments`` defaults to those of the process."""
    _forgive_encodings()
    words = sys.argv[1:] if arguments is None else list(arguments)
    with without_color("--no-color" in words):
        return _run(words, owns_process=arguments is None)


def _run(words: list[str], *, owns_process: bool) -> int:
    secrecy = RunSecrets(owns_process=owns_process)
    try:
        outcome: int = _trunkline.main(words or ["--help"], prog_name="trunkline", standalone_mode=False, obj=secrecy)
        return outcome if words else Exit.USAGE
    except click.ClickException as error:
        _complain_of_usage(error)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        print_notice("interrupted")
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary: every failure becomes a message and an exit code
        return _end(error, secrecy)


def _end(error: Exception, secrecy: RunSecrets) -> int:
    code = exit_for(error)
    if code is Exit.OUTPUT_CLOSED:
        # Buffered output has no reader either, and the interpreter would report an error when it flushes it.
        _discard_output()
        return code
    if debugging():
        import traceback

        click.echo(secrecy.hide("".join(traceback.format_exception(error))), err=True, nl=False)
    print_notice(secrecy.hide(_sentence(error)), failure=True)
    return code


def _complain_of_usage(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    from trunkline.cli.suggestions import usage_message

    told = usage_message(error)
    if context is not None and told == context.get_help():
        # A command group that was given no subcommand.
        click.echo(told, color=context.color)
        return
    path = "trunkline" if context is None else context.command_path
    sentence = one_line(told)
    # Some of click's messages end with a list and have no full stop.
    print_notice(f"{sentence if sentence.endswith(('.', '?')) else f'{sentence}.'} See {path} --help.", failure=True)


def _sentence(error: Exception) -> str:
    from trunkline.errors import TrunklineError

    if isinstance(error, CommandError | TrunklineError):
        return str(error) or type(error).__name__
    return f"internal error: {type(error).__name__}: {error} (set TRUNKLINE_DEBUG=1 to see the traceback)"


def _forgive_encodings() -> None:
    """Write characters that the output encoding cannot represent as escapes instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
