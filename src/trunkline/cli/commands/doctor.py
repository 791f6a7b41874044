"""``trunkline doctor``: diagnoses why a server does not work, or works badly, and suggests a fix.

Servers that are not approved are not started, no tool is called, and no finding is stored.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import Choices, client_options, json_option, read_client_options, with_json_errors
from trunkline.cli.targets import ConfiguredTarget, UrlTarget

if TYPE_CHECKING:
    from trunkline.devtools.doctor.checks import Check, Diagnosis
    from trunkline.host.config.model import ConfigProblem, Configuration, ServerEntry
    from trunkline.host.secrets.references import SecretReference

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline doctor weather.py
  trunkline doctor "npx -y @modelcontextprotocol/server-everything"
  trunkline doctor https://mcp.example.com/mcp
  trunkline doctor -c mcp.json
  trunkline doctor files -c mcp.json --json

Each line is one check: ok, warn, FAIL or skip, followed by the suggested fix.

Exit codes: 0 if no check failed, 2 if a file, a setting or an approval is wrong, 4 if a server cannot be started or
reached or does not work, 3 if one needs a login.
"""
_WIDTH = 100  # Sentences with a fix are longer than 80 characters.
_MARKS: Mapping[str, str] = MappingProxyType({"ok": "ok", "warn": "warn", "fail": "FAIL", "skip": "skip"})
_STYLES: Mapping[str, str] = MappingProxyType({"ok": "ok", "warn": "warn", "fail": "fail", "skip": "dim"})
#: The exit code by the area of the failed checks; the first match counts.
_EXITS: Mapping[str, Exit] = MappingProxyType({"config": Exit.CONFIG, "reach": Exit.UNREACHABLE, "auth": Exit.AUTH})


class _Report(Struct, frozen=True, kw_only=True):
    """All findings; also the form of the JSON output."""

    #: Findings about configuration files as a whole.
    configuration: tuple[Check, ...] = ()
    machine: tuple[Check, ...] = ()
    servers: tuple[Diagnosis, ...] = ()

    def checks(self) -> Iterator[Check]:
        """Yield all checks."""
        yield from self.configuration
        for diagnosis in self.servers:
            yield from diagnosis.checks
        yield from self.machine


@click.command(epilog=_EPILOG)
@click.argument("target", required=False)
@click.option("--compat", is_flag=True, help="Report what a server for mcp or fastmcp would lack here; nothing runs.")
@json_option
@client_options
def command(*, target: str | None, compat: bool, **given: Any) -> int:
    """Diagnose why the server TARGET does not work, and suggest a fix.

    TARGET is a .py file (or FILE:OBJECT), a quoted command, a URL, or the name of a configured server. Without TARGET,
    all configured servers are examined: configuration, command, startup, network, logins, handshake, lists, schemas and
    token cost.
    """
    if compat:
        return _examine_compat(target, as_json=given["as_json"])
    as_json: bool = given["as_json"]
    choices = with_json_errors(lambda: _choices(target, given), as_json)
    if not isinstance(choices, Choices):
        return _tell(_Report(configuration=(choices,)), as_json=as_json)
    for name in choices.policy_options.options():
        raise click.UsageError(f"--{name} has no effect here: doctor calls no tools.")
    if isinstance(choices.target, ConfiguredTarget) and choices.target.rest is not None:
        raise click.UsageError("Give the name of the server alone: doctor examines a whole server.")
    return _tell(_examined(choices), as_json=as_json)


def _examine_compat(target: str | None, *, as_json: bool) -> int:
    """Report the names that a file or folder imports from other frameworks and that are not available here."""
    from trunkline.cli.commands.run import compat_startup
    from trunkline.cli.exit_codes import CommandError
    from trunkline.cli.ui.output import print_json, print_text

    startup = compat_startup()
    if target is None:
        raise click.UsageError("--compat needs a file or a folder.")
    try:
        missing = startup.report(target)
    except startup.NotFound as error:
        raise CommandError(str(error), Exit.CONFIG) from error
    if as_json:
        print_json([{"name": each.name, "file": each.path, "line": each.line} for each in missing])
    elif missing:
        print_text("\n".join(["Not available under trunkline run --compat:", *(f"  {each}" for each in missing)]))
    else:
        print_text(f"{target}: everything it imports is available; run it with: trunkline run --compat {target}")
    return Exit.CONFIG if missing else Exit.OK


def _choices(target: str | None, given: Mapping[str, Any]) -> Choices | Check:
    """Read the command line; a configuration file that cannot be used is a failed check, not a failed command."""
    from trunkline.host.config.documents import InvalidConfigFile

    try:
        return read_client_options(target, given)
    except InvalidConfigFile as error:
        return _of_problem(error.problem)


def _of_config(status: Any, detail: str, fix: str | None) -> Check:
    from trunkline.devtools.doctor.checks import TITLES, Check

    title, area = TITLES["config"]
    return Check(id="config", title=title, status=status, detail=detail, fix=fix, area=area)


def _of_problem(problem: ConfigProblem) -> Check:
    status = "fail" if problem.severity == "error" else "warn"
    return _of_config(status, str(replace(problem, fix=None)), problem.fix)


def _of_gateway() -> Check:
    """Return the approval mode that ``trunkline serve`` would use, as a check."""
    from trunkline.cli.gateway_options import approval_summary, default_serve_approval
    from trunkline.devtools.doctor.checks import TITLES, Check

    title, area = TITLES["gateway"]
    return Check(
        id="gateway", title=title, status="ok", detail=approval_summary(default_serve_approval()), fix=None, area=area
    )


# --- examining -------------------------------------------------------------------------------------------------------


def _examined(choices: Choices) -> _Report:
    target = choices.target
    if not isinstance(target, ConfiguredTarget):
        return asyncio.run(_examine(choices, [_entry(choices)], None))
    from trunkline.cli.host_session import resolve_inputs

    names = None if target.server is None else (target.server,)
    configuration = resolve_inputs(target.configuration, names, no_input=choices.no_input).configuration
    entries = [entry for name, entry in configuration.entries.items() if target.server in (None, name)]
    return asyncio.run(_examine(choices, entries, configuration))


def _entry(choices: Choices) -> ServerEntry:
    """Return a server entry for a TARGET given on the command line."""
    from trunkline.host.config.model import ServerEntry, Source

    target, source = choices.target, Source("given")
    if isinstance(target, UrlTarget):
        token = {} if choices.token is None else {"Authorization": f"Bearer {choices.token}"}
        headers = {**choices.headers, **token}
        secrets = frozenset([*headers.values(), *([choices.token] if choices.token else [])])
        return ServerEntry(name=target.url, source=source, url=target.url, headers=headers, secrets=secrets)
    assert not isinstance(target, ConfiguredTarget)
    command = tuple(target.command)
    name = shlex.join(command) if target.spec is None else os.path.relpath(target.spec)
    return ServerEntry(name=name, source=source, command=command, env=choices.env, cwd=choices.cwd)


async def _examine(choices: Choices, entries: Sequence[ServerEntry], configuration: Configuration | None) -> _Report:
    from trunkline.cli.ui.output import current_secrets
    from trunkline.cli.ui.terminal import Screen
    from trunkline.devtools.doctor.examine import DoctorEnvironment, examine, examine_machine
    from trunkline.host.assembly import in_project_folder, trust_file
    from trunkline.host.config.model import Provenance
    from trunkline.host.integrity.trust import TrustStore
    from trunkline.host.secrets.vault import Vault
    from trunkline.host.state_files import state_folder
    from trunkline.host.upstreams.supervision.clients import StoredLogins

    secrets, vault = current_secrets(), Vault()

    async def secret(name: SecretReference) -> str:
        value = await vault.read(name)
        secrets.add([value])
        return value

    environment = DoctorEnvironment(
        trust_store=TrustStore(trust_file(state_folder())),
        logins=StoredLogins(),
        secret=secret,
        seconds=choices.timeout,
        ca_file=choices.ca_file,
        options=_own_options(choices),
    )
    secrets.add(value for entry in entries for value in entry.secrets)
    found, screen = [], Screen(verbose=False)
    for at, entry in enumerate(entries):
        written = Provenance() if configuration is None else configuration.provenance(entry.name)
        which = f" ({at + 1} of {len(entries)})" if len(entries) > 1 else ""
        with screen.working(f"examining {entry.name}{which}"):
            # One after the other, so that a server that is slow by itself is told from one that others slow down.
            found.append(await examine(in_project_folder(entry), environment, written=written))
    problems = () if configuration is None else configuration.problems
    told = [_of_problem(each) for each in problems]
    if configuration is not None:
        told.append(_of_gateway())
    with screen.working("examining this machine"):
        machine = await examine_machine()
    return _Report(configuration=tuple(told), machine=machine, servers=tuple(found))


def _own_options(choices: Choices) -> dict[str, Any]:
    options: dict[str, Any] = {} if choices.revision == "auto" else {"revision": choices.revision}
    if choices.verbosity:
        from trunkline.cli.ui.terminal import Screen

        screen = Screen(verbose=True)

        def print_stderr(data: bytes) -> None:
            for line in data.decode("utf-8", "replace").splitlines():
                screen.line(f"[stderr] {line}")

        options["on_stderr"] = print_stderr
    return options


# --- printing --------------------------------------------------------------------------------------------------------


def _tell(report: _Report, *, as_json: bool) -> int:
    from trunkline.cli.ui.output import print_json, print_painted, redact, redact_json, wire_json

    if as_json:
        import json

        print_json(redact_json(json.loads(wire_json(report))))
    else:
        print_painted(redact("\n".join(_lines(report))))
    areas = {check.area for check in report.checks() if check.status == "fail"}
    return next((code for area, code in _EXITS.items() if area in areas), Exit.OK)


def _lines(report: _Report) -> Iterator[str]:
    from trunkline.cli.ui.output import one_line

    yield from _section("configuration", report.configuration)
    for diagnosis in report.servers:
        where = f"  [{diagnosis.source}]" if diagnosis.source else ""
        target = "" if diagnosis.target == diagnosis.name else f"  {diagnosis.target}"
        yield from _section(one_line(f"{diagnosis.name}{target}{where}"), diagnosis.checks)
    yield from _section("this machine", report.machine)
    yield _summary(report.checks())


def _section(heading: str, checks: Sequence[Check]) -> Iterator[str]:
    if not checks:
        return
    from trunkline.cli.ui.output import paint, terminal_width, wrap_lines
    from trunkline.protocol.printable import printable

    yield paint(heading, "heading")
    width = max(len(check.title) for check in checks)
    for check in checks:
        detail, *quoted = check.detail.splitlines() or [""]
        mark = _MARKS[check.status]
        first, *more = _wrapped(f"{mark:4}  {check.title:{width}}  ", detail, width + 10)
        # Wrapped without colours, which have no width; then the mark is replaced by a coloured one.
        yield from (f"  {paint(mark, _STYLES[check.status])}{first[2 + len(mark) :]}", *more)
        # Lines of the server's own output keep their form: a traceback is read by its indentation.
        for line in quoted:
            yield wrap_lines(f"{' ' * 10}| {printable(line)}", terminal_width() - 1)
        if check.fix is not None:
            yield from _wrapped(" " * (width + 8) + "-> ", check.fix, width + 13)
    yield ""


def _summary(checks: Iterable[Check]) -> str:
    found = [check.status for check in checks]
    failures, warnings = found.count("fail"), found.count("warn")
    if not failures and not warnings:
        return "no problems found"
    return ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in ((failures, "failure"), (warnings, "warning"))
        if count
    )


def _wrapped(lead: str, text: str, indent: int) -> list[str]:
    """Wrap a text at spaces after its lead; longer words stay whole, so that they can be copied."""
    import textwrap

    from trunkline.cli.ui.output import one_line, terminal_width

    return textwrap.wrap(
        one_line(text),
        min(_WIDTH, terminal_width()),
        initial_indent=f"  {lead}",
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
