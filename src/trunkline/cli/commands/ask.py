"""``trunkline ask``: sends one message to a model that uses the configured servers; made for scripts."""

from __future__ import annotations

import asyncio
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import config_option, policy_options, read_policy_options, timeout_option, with_json_errors

if TYPE_CHECKING:
    from trunkline.cli.chat.completion import ResourceMention
    from trunkline.cli.chat.setup import ChatRuntime, ChatSettings
    from trunkline.cli.host_session import ResolvedInputs
    from trunkline.host.chat.conversation import ChatReply
    from trunkline.host.chat.events import ChatOptions
    from trunkline.host.secrets.registry import Redaction, SecretRegistry

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline ask "What changed in the last release?" -c mcp.json
  git diff | trunkline ask "Review this" --model anthropic:claude-sonnet-5-5
  trunkline ask "Sum it up" --attach files:file:///work/notes.txt --json

Standard input, if it is a pipe or a file, is sent along with PROMPT. Tool calls that the policy neither allows nor
denies need your approval in the terminal; without a terminal they are denied.

Exit codes: 3 if the model's API key is missing or rejected, 4 if the model is unreachable, 5 if the answer is
incomplete, 6 if something was denied, 7 on timeout. A partial answer is printed in all of these cases.
"""
_MOST_INPUT = 4 * 1024 * 1024  # About a million tokens, the largest context window there is.
# After this, a notice says what the command is waiting for.
_NOTICE_AFTER_SECONDS = 3.0


class _Question(NamedTuple):
    """The message, its attachments, and how to print the answer."""

    text: str
    piped: str
    attach: tuple[str, ...]
    timeout: float | None
    as_json: bool


@click.command(epilog=_EPILOG)
@click.argument("prompt", required=False)
@config_option
@click.option("--model", metavar="P:M", help="Model, as PROVIDER:MODEL. Default: from configuration or environment.")
@policy_options
@click.option("--system", metavar="TEXT", help="System instructions for the model; @FILE reads them from a file.")
@click.option("--attach", multiple=True, metavar="SERVER:URI", help="Attach a resource; repeatable.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Maximum number of model responses.")
@click.option(
    "--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Maximum cost in US dollars."
)
@timeout_option("Overall timeout in seconds; time spent on approval prompts does not count.")
@click.option("-v", "--verbose", count=True, help="Show tool calls; -vv also shows server logs.")
@click.option("--no-input", is_flag=True, help="Deny everything that would need approval.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: text, calls, usage, cost, model, stop.")
def command(*, prompt: str | None, config: tuple[str, ...], model: str | None, **given: Any) -> int:
    """Send PROMPT to a model that can use your configured servers, and print its answer.

    Without PROMPT, the message is read from standard input.
    """
    from trunkline.cli.chat.setup import ChatSettings, load_chat_configuration
    from trunkline.cli.commands.chat import chat_options

    as_json = given["as_json"]
    piped = with_json_errors(_piped, as_json)
    if not (prompt or "").strip() and not piped.strip():
        raise click.UsageError("Missing PROMPT: pass it as an argument, or pipe it to standard input.")
    question = _Question(prompt or piped, piped if prompt else "", given["attach"], given["timeout"], as_json)
    settings = ChatSettings(
        files=config,
        policy_options=read_policy_options(given),
        model=model,
        no_input=given["no_input"],
        verbosity=given["verbose"],
        wait=None,
    )
    options = chat_options(given, seconds=given["timeout"])

    def work() -> Exit:
        return asyncio.run(_ask(settings, question, load_chat_configuration(settings), options=options))

    return with_json_errors(work, as_json)


# --- standard input --------------------------------------------------------------------------------------------------


def _piped() -> str:
    """Read standard input if it is a pipe, a socket or a file; reading anything else could block forever."""
    if sys.stdin is None or not _is_piped():
        return ""
    watch = _notice_later("waiting for the end of standard input; add </dev/null if there is none")
    try:
        data = sys.stdin.buffer.read(_MOST_INPUT + 1)
    finally:
        watch.cancel()
    if len(data) > _MOST_INPUT:
        raise CommandError(f"standard input is larger than {_MOST_INPUT // 1024 // 1024} MiB", Exit.USAGE)
    return data.decode("utf-8", "replace")


def _is_piped() -> bool:
    import os

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _notice_later(text: str) -> Any:
    import threading

    from trunkline.cli.ui.output import print_notice

    timer = threading.Timer(_NOTICE_AFTER_SECONDS, print_notice, [text])
    timer.daemon = True
    timer.start()
    return timer


# --- asking ----------------------------------------------------------------------------------------------------------


async def _ask(settings: ChatSettings, question: _Question, resolved: ResolvedInputs, *, options: ChatOptions) -> Exit:
    from trunkline.cli.chat.setup import NO_MODEL, open_chat

    async with open_chat(settings, resolved) as runtime:
        if runtime.model is None:
            raise CommandError(NO_MODEL, Exit.CONFIG)
        _tell_missing(runtime)
        started = time.monotonic()
        reply = await _reply(runtime, question, options=options, verbose=settings.verbosity > 0)
        late = question.timeout is not None and time.monotonic() - started >= question.timeout
        _print(reply, runtime.secrets, as_json=question.as_json)
        return _exit(reply, declined=runtime.questions.denied, late=late)


def _tell_missing(runtime: ChatRuntime) -> None:
    from trunkline.cli.chat.setup import server_line
    from trunkline.cli.ui.output import print_notice

    for problem in runtime.host.configuration.problems:
        print_notice(str(problem))
    for status in runtime.host.status():
        if status.state not in ("ready", "partial", "known", "disabled"):
            print_notice(server_line(status))


async def _reply(runtime: ChatRuntime, question: _Question, *, options: ChatOptions, verbose: bool) -> ChatReply:
    from trunkline.cli.chat.display import ChatDisplay
    from trunkline.cli.ui.terminal import is_interactive
    from trunkline.host.chat.conversation import ask
    from trunkline.host.chat.events import ChatEvent
    from trunkline.host.models.interface import TextBlock

    assert runtime.model is not None
    show = ChatDisplay(runtime.screen, words=False)
    shows = verbose or is_interactive()

    async def tell(event: ChatEvent) -> None:
        if shows:
            # Do not print into a question that is being asked.
            async with runtime.questions.terminal_lock:
                show.show(event)

    mentions = [_mention(runtime, each) for each in question.attach]
    blocks = [TextBlock(f"[From standard input:]\n{question.piped}")] if question.piped.strip() else []
    conversation = runtime.host.conversation(runtime.model, session=runtime.session, options=options)
    pairs = [(mention.server, mention.uri) for mention in mentions]
    return await ask(conversation, question.text, attachments=[*pairs, *blocks], tell=tell)


def _mention(runtime: ChatRuntime, text: str) -> ResourceMention:
    from trunkline.cli.chat.completion import parse_mention

    mention = parse_mention(text.removeprefix("@"), runtime.host.catalog)
    if mention is None or not mention.uri:
        servers = ", ".join(runtime.host.catalog.servers) or "none"
        raise CommandError(f"--attach {text}: expected SERVER:URI; servers: {servers}", Exit.USAGE)
    return mention


# --- the reply --------------------------------------------------------------------------------------------------------


def _print(reply: ChatReply, secrets: SecretRegistry, *, as_json: bool) -> None:
    from trunkline.cli.ui.output import print_json, print_notice, print_text

    if as_json:
        print_json(_document(reply, secrets.redaction()))
    elif reply.text:
        print_text(reply.text)
    if reply.detail is not None:
        print_notice(reply.detail)
    if not as_json:
        for call in reply.calls:
            if call.outcome == "denied":
                print_notice(f"{call.server}/{call.tool} was denied: {call.preview}")


def _document(reply: ChatReply, redaction: Redaction) -> dict[str, Any]:
    calls = [
        {
            "server": call.server,
            "tool": call.tool,
            "arguments": redaction.apply(call.arguments),
            "outcome": call.outcome,
            "seconds": round(call.seconds, 3),
        }
        for call in reply.calls
    ]
    failed = reply.stop not in ("end", "cancelled")
    error = {"error": {"message": reply.detail or reply.stop, "fault": reply.fault}} if failed else {}
    return {
        "text": reply.text,
        "calls": calls,
        "usage": reply.usage,
        "cost": reply.cost,
        "model": reply.model,
        "stop": reply.stop,
        "notices": reply.notices,
        **error,
    }


def _exit(reply: ChatReply, *, declined: bool, late: bool) -> Exit:
    """Return the exit code: a failure of the model comes first, then a denial, then an incomplete answer."""
    from trunkline.cli.chat.setup import MODEL_EXITS

    if reply.fault is not None:
        return MODEL_EXITS[reply.fault]
    if reply.stop == "limit" and late:
        return Exit.TIMED_OUT
    if declined or any(call.outcome == "denied" for call in reply.calls):
        return Exit.DENIED
    return Exit.OK if reply.stop == "end" else Exit.FAILED
