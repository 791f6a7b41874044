"""Opens what a chat needs: the model, the host with its servers, and the terminal prompts.

Used by ``chat`` and ``ask``. Trust, policy, approval and audit belong to the host and cannot be bypassed here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import NamedTuple

import trunkline.types as t
from trunkline.cli.chat.input import line_editor
from trunkline.cli.client_session import ScreenLogHandler
from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.host_session import ResolvedInputs, load_cli_configuration, resolve_inputs
from trunkline.cli.options import PolicyOptions
from trunkline.cli.ui.approvals import terminal_prompter
from trunkline.cli.ui.elicitation import terminal_elicitation
from trunkline.cli.ui.output import one_line, wire_json
from trunkline.cli.ui.reviews import terminal_sampling_review
from trunkline.cli.ui.server_requests import TerminalRequestHandler
from trunkline.cli.ui.terminal import Screen, is_interactive
from trunkline.host.assembly import HostOptions
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest, Prompter
from trunkline.host.config.model import Configuration, ServerEntry
from trunkline.host.host import Host
from trunkline.host.models.configured import open_configured_model
from trunkline.host.models.interface import Model, ModelError, ModelFault
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.adopted_connection import AdoptedConnection
from trunkline.host.upstreams.supervision.clients import start_timeout
from trunkline.host.upstreams.supervision.upstream import ServerStatus

__all__ = [
    "MODEL_EXITS",
    "NO_MODEL",
    "ChatRuntime",
    "ChatSettings",
    "load_chat_configuration",
    "open_chat",
    "open_chat_model",
    "server_line",
]

#: The exit code for each kind of model failure.
MODEL_EXITS: Mapping[ModelFault, Exit] = MappingProxyType(
    {
        "no key": Exit.AUTH,
        "refused key": Exit.AUTH,
        "down": Exit.UNREACHABLE,
        "cut off": Exit.UNREACHABLE,
        "rate limited": Exit.UNREACHABLE,
        "too long": Exit.FAILED,
        "refused": Exit.FAILED,
    }
)
#: The notice if no model is chosen.
NO_MODEL = (
    "no model chosen: set --model PROVIDER:MODEL or TRUNKLINE_MODEL, for example ollama:qwen3, or set "
    "ANTHROPIC_API_KEY or OPENAI_API_KEY"
)


def open_chat_model(choice: str | None, configuration: Configuration) -> Model | None:
    """Open the chosen model; return None if none is chosen.

    Raises:
        ConfigError: the model is unknown, or its package is not installed.
        CommandError: its API key is missing.
    """
    try:
        return open_configured_model(choice, configuration)
    except ModelError as error:
        raise CommandError(str(error), MODEL_EXITS[error.fault]) from error


class ChatSettings(NamedTuple):
    """The command-line options of ``chat`` and ``ask`` that concern host and model."""

    files: tuple[str, ...]
    policy_options: PolicyOptions
    model: str | None
    #: Decline everything that would be asked.
    no_input: bool = False
    verbosity: int = 0
    #: Seconds to wait for servers; None: up to their start timeouts.
    wait: float | None = None


class ChatRuntime(NamedTuple):
    """The open host and everything else that a chat uses."""

    host: Host
    #: None: the user calls the tools.
    model: Model | None
    session: HostSession
    screen: Screen
    questions: TerminalRequestHandler
    #: The secrets that must not be printed.
    secrets: SecretRegistry


def load_chat_configuration(settings: ChatSettings) -> ResolvedInputs:
    """Load the configuration and prompt for its open inputs, before anything is started.

    Raises:
        ConfigError: a given file cannot be used.
    """
    return resolve_inputs(load_cli_configuration(settings.files), no_input=settings.no_input)


@asynccontextmanager
async def open_chat(settings: ChatSettings, resolved: ResolvedInputs) -> AsyncIterator[ChatRuntime]:
    """Open the model and the host, and close both at the end.

    Raises:
        ConfigError: a policy cannot be read, or the model is unknown.
        CommandError: the API key of the model is missing.
    """
    configuration = resolved.configuration
    screen = Screen(verbose=settings.verbosity > 0)
    questions = TerminalRequestHandler(screen, no_input=settings.no_input)
    log, shown = logging.getLogger("trunkline"), ScreenLogHandler(screen, settings.verbosity)
    log.addHandler(shown)
    secrets = SecretRegistry()
    model: Model | None = None
    try:
        model = open_chat_model(settings.model, configuration)
        if is_interactive() and configuration.entries:
            screen.line(f"Starting {', '.join(map(one_line, configuration.entries))} ...")
        options = _options(settings, screen, questions, model=model, entries=configuration.entries.values())
        options |= {**resolved.options(), "secret_registry": secrets}
        async with Host.open(*settings.files, **options) as host:
            session = host.session()
            # The only session of this host: servers run once, and keep their state until the chat ends.
            session.connections.adopt = AdoptedConnection
            session.connections.in_use = lambda: True
            yield ChatRuntime(host, model, session, screen, questions, secrets)
    finally:
        screen.clear()
        log.removeHandler(shown)
        if model is not None:
            await model.aclose()


def _options(
    settings: ChatSettings,
    screen: Screen,
    questions: TerminalRequestHandler,
    *,
    model: Model | None,
    entries: Iterable[ServerEntry],
) -> HostOptions:
    def notice(text: str) -> None:
        # A denied server request counts as a denial for the exit code too.
        questions.denied = True
        screen.line(one_line(text))

    quiet, terminal_lock = settings.no_input, questions.terminal_lock
    prompter = terminal_prompter(
        screen,
        no_input=settings.no_input,
        terminal_lock=questions.terminal_lock,
        edit=line_editor() if is_interactive() else None,
    )
    return {
        **settings.policy_options.options(),
        "typed": True,
        "consent": None if prompter is None else _in_order(prompter),
        "models": () if model is None else (model,),
        "review": terminal_sampling_review(screen, no_input=quiet, terminal_lock=terminal_lock),
        "forms": terminal_elicitation(screen, no_input=quiet, terminal_lock=terminal_lock),
        # Without a terminal a form is declined, with a notice.
        "elicitation": questions.elicit,
        "elicitation_urls": True,
        "notice": notice,
        "logging": _logged(screen) if settings.verbosity else None,
        "wait": "all",
        "wait_seconds": max(map(start_timeout, entries), default=1.0) if settings.wait is None else settings.wait,
    }


def _in_order(prompter: Prompter) -> Prompter:
    """Return a prompter that asks only after pending events about the call were shown."""

    async def ask(question: ApprovalRequest) -> ApprovalAnswer | None:
        # The task that shows events runs in the next iteration of the event loop, and shows all without waiting.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await prompter(question)

    return ask


def _logged(screen: Screen) -> Callable[[t.LoggingMessageNotificationParams], object]:
    def show(message: t.LoggingMessageNotificationParams) -> None:
        said = message.data if isinstance(message.data, str) else wire_json(message.data).decode()
        for line in said.splitlines():
            screen.line(f"[{message.level}] {line}")

    return show


def server_line(status: ServerStatus) -> str:
    """Describe the status of a server on one line."""
    name = one_line(status.name)
    if status.state in ("ready", "partial", "known") and status.era is not None:
        counts = (("tool", status.tools), ("prompt", status.prompts), ("resource", status.resources))
        offers = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts if count)
        return f"{name}: {status.state}, {offers or 'nothing listed'}"
    why = status.reason or status.last_error
    return f"{name}: {status.state}{f': {one_line(why)}' if why else ''}"
