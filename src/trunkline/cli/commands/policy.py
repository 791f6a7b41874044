"""``trunkline policy``: explains what the rules decide, runs the tests of a policy, and checks it for mistakes.

No server is started: what a rule may need to know about a tool is passed as options.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.host_session import load_cli_configuration
from trunkline.cli.options import json_option, with_json_errors

if TYPE_CHECKING:
    from trunkline.host.authorization.policy.decisions import Act, ToolHints
    from trunkline.host.authorization.policy.lint import KnownTools
    from trunkline.host.authorization.policy.policy import Policy, Trace
    from trunkline.host.authorization.policy.policy_tests import PolicyTestResult
    from trunkline.host.config.model import Configuration

__all__ = ["command"]

T = TypeVar("T")

_EPILOG = """\
\b
Examples:
  trunkline policy why --policy policy.toml files/read_file --args '{"path": "/etc/passwd"}'
  trunkline policy why -c mcp.json github/create_issue --caller model --tainted
  trunkline policy test policy.toml
  trunkline policy check policy.toml -c mcp.json

The policy defaults to your own policy.toml. Exit codes: 6 if why finds that the call is denied, 5 if a test fails, 2 if
a policy is invalid.
"""
_KINDS = ("tool", "resource", "prompt", "skill", "sampling", "elicitation", "roots")
_CALLERS = ("model", "user", "gateway", "server", "app")

_config_option = click.option(
    "-c", "--config", "files", multiple=True, metavar="FILE", help="Configuration file with the servers; repeatable."
)


@click.group("policy", epilog=_EPILOG)
def command() -> None:
    """Explain, test and check policy rules."""


# --- why -------------------------------------------------------------------------------------------------------------


@command.command(epilog=_EPILOG)
@click.argument("act", metavar="SERVER/TOOL")
@_config_option
@click.option("--policy", "policy_file", metavar="FILE", help="Policy file to evaluate.")
@click.option(
    "--args", "arguments", metavar="JSON", default="{}", help="Arguments of the call; @FILE reads them from a file."
)
@click.option("--kind", type=click.Choice(_KINDS), default="tool", help="Kind of request. Default: tool.")
@click.option("--annotations", metavar="JSON", default="{}", help="Annotations of the tool.")
@click.option("--trusted", is_flag=True, help="Treat the server as trusted.")
@click.option("--tainted", is_flag=True, help="Treat the session as tainted by an untrusted server.")
@click.option("--caller", type=click.Choice(_CALLERS), default="user", help="Who makes the call. Default: user.")
@click.option("--principal", metavar="NAME", help="Principal that makes the call.")
@click.option("--profile", metavar="NAME", help="Gateway profile of the call.")
@click.option("--all", "everything", is_flag=True, help="Show rules about other servers and names too.")
@json_option
def why(*, files: tuple[str, ...], policy_file: str | None, everything: bool, as_json: bool, **given: Any) -> int:
    """Show what the policy decides about SERVER/TOOL, by which rule, and why.

    For other kinds, give SERVER/PROMPT, SERVER/URI or SERVER. Rules that did not decide are shown with the reason.
    """
    from msgspec.structs import replace

    from trunkline.cli.ui.output import print_json, print_text

    def ask() -> tuple[Act, Policy]:
        configuration = load_cli_configuration(files)
        return _act(configuration, **given), _policy(policy_file, configuration)

    act, policy = with_json_errors(ask, as_json)
    now = time.time()
    trace, listed = policy.explain(act, now), policy.is_visible(replace(act, arguments=None), now)
    if as_json:
        print_json({**_document(trace), "listed": listed})
    else:
        print_text("\n".join(_lines(trace, act, listed=listed, everything=everything)))
    return Exit.DENIED if trace.decision.effect == "deny" else Exit.OK


def _act(configuration: Configuration, act: str, kind: Any, **given: Any) -> Act:
    """Build the request to evaluate.

    Raises:
        ConfigError: servers are configured, and none has this name.
    """
    from trunkline.cli.options import json_object
    from trunkline.errors import ConfigError
    from trunkline.host.authorization.policy.decisions import Act
    from trunkline.host.config.spelling import nearest

    server, _, name = act.partition("/")
    if not server or (not name and kind in ("tool", "prompt", "resource", "skill")):
        raise click.UsageError(f"{act!r} is not SERVER/NAME.")
    entry = configuration.entries.get(server)
    if entry is None and configuration.entries:
        near = nearest(server, configuration.entries)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(configuration.entries))}"
        raise ConfigError(f"there is no server {server!r}: {hint}")
    return Act(
        kind=kind,
        server=server,
        name=name or kind,
        arguments=json_object(given["arguments"]),
        annotations=_annotations(given["annotations"]),
        trusted=given["trusted"] or (entry is not None and entry.settings.trusted),
        tainted=given["tainted"],
        caller=given["caller"],
        principal=given["principal"],
        profile=given["profile"],
    )


def _annotations(text: str) -> ToolHints:
    """Parse annotations, named as on the wire or as in a rule."""
    import msgspec

    from trunkline.host.authorization.policy.decisions import ToolHints

    known = {
        "readOnlyHint": "read_only",
        "destructiveHint": "destructive",
        "idempotentHint": "idempotent",
        "openWorldHint": "open_world",
    }
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise click.UsageError(f"--annotations is not a JSON object: {error}.") from None
    found = {known.get(key, key): value for key, value in given.items() if key != "title"}
    wrong = next((key for key, value in found.items() if key not in known.values() or type(value) is not bool), None)
    if wrong is not None:
        raise click.UsageError(
            f"--annotations: {wrong} is not a known annotation with a boolean value; known: {', '.join(known)}."
        )
    return ToolHints(**found)


def _document(trace: Trace) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(trace)
    return document


def _lines(trace: Trace, act: Act, *, listed: bool, everything: bool) -> Iterator[str]:
    from trunkline.cli.ui.output import one_line, table
    from trunkline.devtools.policy_checks import explain_decision

    yield one_line(f"{trace.decision.effect}: {act.server}/{act.name}")
    yield from (f"  {one_line(each)}" for each in explain_decision(trace, act, listed=listed))
    shown = [step for step in trace.steps if everything or step.relevant]
    if shown:
        rows = [(step.where, step.effect, str(step.tier), step.outcome, step.why) for step in shown]
        yield ""
        yield table(("RULE", "EFFECT", "TIER", "OUTCOME", "WHY"), rows)
    if others := len(trace.steps) - len(shown):
        yield ""
        yield f"{others} other rule{'s do' if others > 1 else ' does'} not apply here; --all shows them"


# --- test and check --------------------------------------------------------------------------------------------------


@command.command("test", epilog=_EPILOG)
@click.argument("policy", required=False, metavar="[FILE]")
@click.argument("cases", required=False, metavar="[TESTS]")
@json_option
def test_it(policy: str | None, cases: str | None, *, as_json: bool) -> int:
    """Run the [[test]] tables of a policy, or of the file TESTS."""
    from trunkline.cli.ui.output import print_json, print_notice, print_text
    from trunkline.devtools.policy_checks import failed_test_line

    outcomes = with_json_errors(lambda: _outcomes(policy, cases), as_json)
    failed = [each for each in outcomes if each.failure is not None]
    if as_json:
        rows = [_outcome_document(each) for each in outcomes]
        print_json({"passed": len(outcomes) - len(failed), "failed": len(failed), "tests": rows})
    else:
        for each in failed:
            print_text(failed_test_line(each))
        print_text(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    if failed and as_json:
        print_notice(f"{len(failed)} of {len(outcomes)} tests failed")
    return Exit.FAILED if failed else Exit.OK


def _outcomes(policy: str | None, cases: str | None) -> tuple[PolicyTestResult, ...]:
    from trunkline.devtools.policy_checks import run_tests
    from trunkline.errors import ConfigError
    from trunkline.host.authorization.policy.loader import read_policy_file

    file = _file(policy)
    rules = _policy(file, None)
    source = file if cases is None else cases
    found = run_tests(rules, read_policy_file(source), file=source, now=time.time(), with_policy=cases is None)
    if not found:
        raise ConfigError(f"{source} has no [[test]]")
    return found


def _outcome_document(outcome: PolicyTestResult) -> dict[str, Any]:
    import msgspec

    case = outcome.case
    return {
        "name": case.name,
        "where": case.where,
        "expect": case.expect,
        "decision": msgspec.to_builtins(outcome.decision),
        "failure": outcome.failure,
    }


@command.command("check", epilog=_EPILOG)
@click.argument("policy", required=False, metavar="[FILE]")
@_config_option
@json_option
def check_it(policy: str | None, *, files: tuple[str, ...], as_json: bool) -> int:
    """Check a policy for mistakes, and for rules about servers, tools and arguments that do not exist.

    The tools and their arguments are those of the last run of each server.
    """
    import msgspec

    from trunkline.cli.ui.output import print_json, print_notice, print_text
    from trunkline.devtools.policy_checks import find_issues

    def read() -> tuple[Policy, Configuration]:
        configuration = load_cli_configuration(files)
        return _policy(_file(policy), configuration), configuration

    rules, configuration = with_json_errors(read, as_json)
    tools = _cached_tools(configuration)
    findings = find_issues(rules, configuration, now=time.time(), tools=tools)
    if as_json:
        print_json({"rules": len(rules.rules), "findings": msgspec.to_builtins(findings)})
    else:
        for finding in findings:
            print_text(f"{finding.severity}: {finding}")
        print_text(f"{_counted(len(rules.rules), 'rule')}, {_counted(len(findings), 'problem')}")
        unknown = sorted(configuration.entries.keys() - tools)
        if unknown and any(rule.names and "tool" in rule.kinds for rule in rules.rules):
            print_notice(
                f"the tools of {', '.join(unknown)} are not known yet, so rules about them were not compared; "
                "to list them first, run: trunkline list tools with the same configuration"
            )
    return Exit.CONFIG if any(each.severity == "error" for each in findings) else Exit.OK


def _cached_tools(configuration: Configuration) -> KnownTools:
    """Return the tools of each server that has run, with their arguments, without starting any."""
    from trunkline.host.assembly import in_project_folder
    from trunkline.host.authorization.policy.lint import argument_names
    from trunkline.host.state_files import state_folder
    from trunkline.host.upstreams.catalog.catalog import CatalogCache

    cache = CatalogCache(state_folder() / "catalogs")
    offerings = {name: cache.get(in_project_folder(entry)) for name, entry in configuration.entries.items()}
    return {
        name: {tool.name: argument_names(tool.input_schema) for tool in offering.tools}
        for name, offering in offerings.items()
        if offering
    }


def _counted(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"


# --- files -----------------------------------------------------------------------------------------------------------


def _file(given: str | None) -> str:
    from trunkline.host.state_files import config_folder

    return str(config_folder() / "policy.toml") if given is None else given


def _policy(file: str | None, configuration: Configuration | None) -> Policy:
    """Load a policy; without a file, the user's own or the default."""
    from trunkline.host.authorization.policy.loader import load_policy, local_path_context
    from trunkline.host.authorization.policy.policy import DEFAULT_POLICY

    path = _file(file)
    if file is None and not os.path.lexists(path):
        return DEFAULT_POLICY
    return load_policy(path, path_context=local_path_context(configuration.entries.values() if configuration else ()))
