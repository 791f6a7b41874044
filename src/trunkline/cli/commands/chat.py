"""``trunkline chat``: an interactive chat with a model that uses the configured servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.options import config_option, policy_options, read_policy_options

if TYPE_CHECKING:
    from trunkline.host.chat.events import ChatOptions

__all__ = ["chat_options", "command"]

_EPILOG = """\
\b
Examples:
  trunkline chat -c mcp.json
  trunkline chat --model anthropic:claude-sonnet-5-5
  trunkline chat --model ollama:qwen3 --system "Answer in one sentence."
  trunkline chat --resume talk.json

In the chat, /help lists the commands, /server:prompt uses a prompt, and @server:uri in a message attaches a resource.
Ctrl-C stops the model, Ctrl-D ends the chat. Without a model, you call the tools yourself.

Without -c, servers are read from mcp.json, .mcp.json, .vscode/mcp.json or .cursor/mcp.json in the current directory,
then from your own mcp.json.
"""
# A longer wait would delay the first prompt for a server that may not be needed; it joins when it is ready.
_WAIT_SECONDS = 5.0


@click.command(epilog=_EPILOG)
@config_option
@click.option("--model", metavar="P:M", help="Model, as PROVIDER:MODEL. Default: from configuration or environment.")
@policy_options
@click.option("--system", metavar="TEXT", help="System instructions for the model; @FILE reads them from a file.")
@click.option("--resume", metavar="FILE", help="Resume a saved conversation.")
@click.option("--no-save", is_flag=True, help="Save neither the conversation nor the input history.")
@click.option(
    "--max-turns", type=click.IntRange(min=1), metavar="N", help="Maximum number of model responses per message."
)
@click.option(
    "--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Maximum cost of the conversation."
)
@click.option("-v", "--verbose", count=True, help="Show log messages of the servers.")
def command(*, config: tuple[str, ...], model: str | None, **given: Any) -> int:
    """Chat with a model that can use your configured servers, under your policy.

    Tool calls are shown as they happen. A call that needs approval is shown first, with arguments that you can edit.
    """
    from pathlib import Path

    from trunkline.cli.chat.loop import run_chat
    from trunkline.cli.chat.session import ChatSessionOptions
    from trunkline.cli.chat.setup import ChatSettings
    from trunkline.host.chat.history import load_conversation
    from trunkline.host.state_files import private_folder, state_folder

    resume: str | None = given["resume"]
    saved = None if resume is None else load_conversation(resume)
    keeps = not given["no_save"]
    folder = private_folder(state_folder()) if keeps else None
    session_options = ChatSessionOptions(
        options=chat_options(given),
        saved=saved,
        file=Path(resume) if resume is not None and keeps else None,
        folder=None if folder is None else folder / "conversations",
        history=None if folder is None else folder / "chat_history",
    )
    chosen = model or (None if saved is None else saved.model)
    settings = ChatSettings(
        files=config,
        policy_options=read_policy_options(given),
        model=chosen,
        verbosity=given["verbose"],
        wait=_WAIT_SECONDS,
    )
    return run_chat(settings, session_options)


def chat_options(given: Mapping[str, Any], *, seconds: float | None = None) -> ChatOptions:
    """Return the chat options for the command-line options."""
    from msgspec.structs import replace

    from trunkline.cli.options import read_value
    from trunkline.host.chat.events import ChatLimits, ChatOptions

    limits = ChatLimits(cost=given["max_cost"], seconds=seconds)
    if given["max_turns"] is not None:
        limits = replace(limits, turns=given["max_turns"])
    return ChatOptions(system=None if given["system"] is None else read_value(given["system"]), limits=limits)
