"""``trunkline chat``: talk to a model that uses the servers of a configuration, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.options import config_option, guard_of, guard_options

if TYPE_CHECKING:
    from trunkline.host.chat.options import ChatOptions

__all__ = ["chat_options", "command"]

_EPILOG = """\
\b
Examples:
  trunkline chat -c mcp.json
  trunkline chat --model anthropic:claude-sonnet-5-5
  trunkline chat --model ollama:qwen3 --system "Answer in one sentence."
  trunkline chat --resume talk.json

In the chat: /help, /tools, /servers, /server:prompt, @server:uri in a message. Ctrl-C stops the model, Ctrl-D ends.
Without -c it reads what is found: mcp.json, .mcp.json, .vscode/mcp.json or .cursor/mcp.json of this folder, then the
user's mcp.json. Without a model you pick the tools yourself.
"""
# Longer, and whoever types waits for a server that may not be needed at all; it joins when it is there.
_WAIT_SECONDS = 5.0


@click.command(epilog=_EPILOG)
@config_option
@click.option("--model", metavar="P:M", help="The model, as provider:model; else by configuration or environment.")
@guard_options
@click.option("--system", metavar="TEXT", help="Your own instructions to the model; @file reads a file.")
@click.option("--resume", metavar="FILE", help="Go on with a conversation that was kept.")
@click.option("--no-save", is_flag=True, help="Keep neither the conversation nor what was typed.")
@click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Answers of the model to one message.")
@click.option(
    "--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="What the conversation may cost."
)
@click.option("-v", "--verbose", count=True, help="Show the servers' log messages.")
def command(*, config: tuple[str, ...], model: str | None, **given: Any) -> int:
    """Talk to a model that uses the servers of a configuration, under your policy.

    What it wants to do is shown, and what needs consent is asked, with arguments that you may change.
    """
    from pathlib import Path

    from trunkline.cli.chat_loop import run_chat
    from trunkline.cli.chat_opening import Plan
    from trunkline.cli.chat_talk import Wishes
    from trunkline.host.chat.saving import read_saved
    from trunkline.host.folders import private_folder, state_folder

    resume: str | None = given["resume"]
    saved = None if resume is None else read_saved(resume)
    keeps = not given["no_save"]
    folder = private_folder(state_folder()) if keeps else None
    wishes = Wishes(
        options=chat_options(given),
        saved=saved,
        file=Path(resume) if resume is not None and keeps else None,
        folder=None if folder is None else folder / "conversations",
        history=None if folder is None else folder / "chat_history",
    )
    chosen = model or (None if saved is None else saved.model)
    plan = Plan(files=config, guard=guard_of(given), model=chosen, verbosity=given["verbose"], wait=_WAIT_SECONDS)
    return run_chat(plan, wishes)


def chat_options(given: Mapping[str, Any], *, seconds: float | None = None) -> ChatOptions:
    """Make the options of a conversation of what was typed."""
    from msgspec.structs import replace

    from trunkline.cli.arguments import read_value
    from trunkline.host.chat.options import ChatLimits, ChatOptions

    limits = ChatLimits(cost=given["max_cost"], seconds=seconds)
    if given["max_turns"] is not None:
        limits = replace(limits, turns=given["max_turns"])
    return ChatOptions(system=None if given["system"] is None else read_value(given["system"]), limits=limits)
