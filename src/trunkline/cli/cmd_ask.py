"""``trunkline ask``: sends one message to a model that uses the configured servers; made for scripts."""

from __future__ import annotations

import asyncio
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from trunkline.cli.exits import Exit, Failure
from trunkline.cli.options import config_option, guard_of, guard_options, seconds_option, told

if TYPE_CHECKING:
    from trunkline.cli.chat_opening import Plan, Room
    from trunkline.cli.chat_words import Mention
    from trunkline.cli.configs import Ask
    from trunkline.host.chat.options import ChatOptions
    from trunkline.host.chat.reply import ChatReply
    from trunkline.host.secrecy.book import SecretBook
    from trunkline.host.secrecy.redaction import Redaction

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
_MOST_INPUT = 4 * 1024 * 1024
# After this, a notice says what the command is waiting for.
_PATIENCE_SECONDS = 3.0


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
@guard_options
@click.option("--system", metavar="TEXT", help="System instructions for the model; @FILE reads them from a file.")
@click.option("--attach", multiple=True, metavar="SERVER:URI", help="Attach a resource; repeatable.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Maximum number of model responses.")
@click.option(
    "--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Maximum cost in US dollars."
)
@seconds_option("Overall timeout in seconds; time spent on approval prompts does not count.")
@click.option("-v", "--verbose", count=True, help="Show tool calls; -vv also shows server logs.")
@click.option("--no-input", is_flag=True, help="Deny everything that would need approval.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: text, calls, usage, cost, model, stop.")
def command(*, prompt: str | None, config: tuple[str, ...], model: str | None, **given: Any) -> int:
    """Send PROMPT to a model that can use your configured servers, and print its answer.

    Without PROMPT, the message is read from standard input.
    """
    from trunkline.cli.chat_opening import Plan, prepare
    from trunkline.cli.cmd_chat import chat_options

    as_json = given["as_json"]
    piped = told(_piped, as_json)
    if not (prompt or "").strip() and not piped.strip():
        raise click.UsageError("Missing PROMPT: pass it as an argument, or pipe it to standard input.")
    question = _Question(prompt or piped, piped if prompt else "", given["attach"], given["timeout"], as_json)
    plan = Plan(
        files=config,
        guard=guard_of(given),
        model=model,
        no_input=given["no_input"],
        verbosity=given["verbose"],
        wait=None,
    )
    options = chat_options(given, seconds=given["timeout"])

    def work() -> Exit:
        return asyncio.run(_ask(plan, question, options=options, inputs=prepare(plan)))

    return told(work, as_json)


# --- standard input --------------------------------------------------------------------------------------------------


def _piped() -> str:
    """Read standard input if it is a pipe, a socket or a file; reading anything else could block forever."""
    if sys.stdin is None or not _is_piped():
        return ""
    watch = _told_later("waiting for the end of standard input; add </dev/null if there is none")
    try:
        data = sys.stdin.buffer.read(_MOST_INPUT + 1)
    finally:
        watch.cancel()
    if len(data) > _MOST_INPUT:
        raise Failure(f"standard input is larger than {_MOST_INPUT // 1024 // 1024} MiB", Exit.USAGE)
    return data.decode("utf-8", "replace")


def _is_piped() -> bool:
    import os

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _told_later(text: str) -> Any:
    import threading

    from trunkline.cli.output import complain

    timer = threading.Timer(_PATIENCE_SECONDS, complain, [text])
    timer.daemon = True
    timer.start()
    return timer


# --- asking ----------------------------------------------------------------------------------------------------------


async def _ask(plan: Plan, question: _Question, *, options: ChatOptions, inputs: Ask | None) -> Exit:
    from trunkline.cli.chat_model import NO_MODEL
    from trunkline.cli.chat_opening import opened

    async with opened(plan, inputs) as room:
        if room.model is None:
            raise Failure(NO_MODEL, Exit.CONFIG)
        _tell_missing(room)
        started = time.monotonic()
        reply = await _reply(room, question, options=options, verbose=plan.verbosity > 0)
        late = question.timeout is not None and time.monotonic() - started >= question.timeout
        _print(reply, room.secrets, as_json=question.as_json)
        return _exit(reply, declined=room.questions.denied, late=late)


def _tell_missing(room: Room) -> None:
    from trunkline.cli.chat_opening import status_line
    from trunkline.cli.output import complain

    for problem in room.host.configuration.problems:
        complain(str(problem))
    for status in room.host.status():
        if status.state not in ("ready", "partial", "known", "disabled"):
            complain(status_line(status))


async def _reply(room: Room, question: _Question, *, options: ChatOptions, verbose: bool) -> ChatReply:
    from trunkline.cli.chat_screen import ChatScreen
    from trunkline.cli.terminal import is_there
    from trunkline.host.chat.events import ChatEvent
    from trunkline.host.chat.reply import ask
    from trunkline.host.models.interface import TextBlock

    assert room.model is not None
    show = ChatScreen(room.screen, words=False)
    shows = verbose or is_there()

    async def tell(event: ChatEvent) -> None:
        if shows:
            # Do not print into a question that is being asked.
            async with room.questions.turn:
                show.show(event)

    mentions = [_mention(room, each) for each in question.attach]
    blocks = [TextBlock(f"[From standard input:]\n{question.piped}")] if question.piped.strip() else []
    conversation = room.host.conversation(room.model, session=room.session, options=options)
    pairs = [(mention.server, mention.uri) for mention in mentions]
    return await ask(conversation, question.text, attachments=[*pairs, *blocks], tell=tell)


def _mention(room: Room, text: str) -> Mention:
    from trunkline.cli.chat_words import read_mention

    mention = read_mention(text.removeprefix("@"), room.host.catalog)
    if mention is None or not mention.uri:
        servers = ", ".join(room.host.catalog.servers) or "none"
        raise Failure(f"--attach {text}: expected SERVER:URI; servers: {servers}", Exit.USAGE)
    return mention


# --- the reply --------------------------------------------------------------------------------------------------------


def _print(reply: ChatReply, secrets: SecretBook, *, as_json: bool) -> None:
    from trunkline.cli.output import complain, say, say_json

    if as_json:
        say_json(_document(reply, secrets.redaction()))
    elif reply.text:
        say(reply.text)
    if reply.detail is not None:
        complain(reply.detail)
    if not as_json:
        for call in reply.calls:
            if call.outcome == "denied":
                complain(f"{call.server}/{call.tool} was denied: {call.preview}")


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
    from trunkline.cli.chat_model import MODEL_EXITS

    if reply.fault is not None:
        return MODEL_EXITS[reply.fault]
    if reply.stop == "limit" and late:
        return Exit.TIMED_OUT
    if declined or any(call.outcome == "denied" for call in reply.calls):
        return Exit.DENIED
    return Exit.OK if reply.stop == "end" else Exit.FAILED
