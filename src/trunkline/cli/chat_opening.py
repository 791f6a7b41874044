"""Opens what a chat needs: the model, the host with its servers, and the prompts of the terminal.

Used by ``chat`` and ``ask``. Trust, policy, approval and audit belong to the host and are not bypassed here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import trunkline.types as t
from trunkline.cli.approvals import terminal_face
from trunkline.cli.chat_input import line_editor
from trunkline.cli.chat_model import model_of
from trunkline.cli.configs import Ask, answers_for, read_configuration
from trunkline.cli.options import Guard
from trunkline.cli.output import one_line, wire_json
from trunkline.cli.questions import Questions
from trunkline.cli.reviews import terminal_elicitation, terminal_sampling_review
from trunkline.cli.screen import Screen
from trunkline.cli.session import LogOnScreen
from trunkline.cli.terminal import is_there
from trunkline.host.assembly import HostOptions
from trunkline.host.entries import ServerEntry
from trunkline.host.host import Host
from trunkline.host.judgement.consent import Answer, Face, Question
from trunkline.host.models.interface import Model
from trunkline.host.secrecy.book import SecretBook
from trunkline.host.session import HostSession
from trunkline.host.supervision.clients import start_seconds
from trunkline.host.supervision.upstream import Status

__all__ = ["Plan", "Room", "opened", "prepare", "status_line"]


class Plan(NamedTuple):
    """The command-line options of ``chat`` and ``ask`` that concern host and model."""

    files: tuple[str, ...]
    guard: Guard
    model: str | None
    #: Decline everything that would be asked.
    no_input: bool = False
    verbosity: int = 0
    #: Seconds to wait for servers; None: up to their start timeouts.
    wait: float | None = None


class Room(NamedTuple):
    """The open host and everything else that a chat uses."""

    host: Host
    #: None: the user calls the tools.
    model: Model | None
    session: HostSession
    screen: Screen
    questions: Questions
    #: The secrets that must not be printed.
    secrets: SecretBook


def prepare(plan: Plan) -> Ask | None:
    """Prompt for the open inputs of the configuration, before anything is started.

    Raises:
        ConfigError: a given file cannot be used.
    """
    return answers_for(plan.files, None, no_input=plan.no_input)


@asynccontextmanager
async def opened(plan: Plan, inputs: Ask | None) -> AsyncIterator[Room]:
    """Open the model and the host, and close both at the end.

    Raises:
        ConfigError: a configuration or policy cannot be read, or the model is unknown.
        CommandError: the API key of the model is missing.
    """
    configuration = read_configuration(plan.files)
    screen = Screen(verbose=plan.verbosity > 0)
    questions = Questions(screen, no_input=plan.no_input)
    log, shown = logging.getLogger("trunkline"), LogOnScreen(screen, plan.verbosity)
    log.addHandler(shown)
    secrets = SecretBook()
    model: Model | None = None
    try:
        model = model_of(plan.model, configuration)
        if is_there() and configuration.entries:
            screen.line(f"Starting {', '.join(map(one_line, configuration.entries))} ...")
        options = _options(plan, screen, questions, model=model, entries=configuration.entries.values(), inputs=inputs)
        options["secret_book"] = secrets
        async with Host.open(*plan.files, **options) as host:
            yield Room(host, model, host.session(), screen, questions, secrets)
    finally:
        screen.clear()
        log.removeHandler(shown)
        if model is not None:
            await model.aclose()


def _options(
    plan: Plan,
    screen: Screen,
    questions: Questions,
    *,
    model: Model | None,
    entries: Iterable[ServerEntry],
    inputs: Ask | None,
) -> HostOptions:
    def notice(text: str) -> None:
        # A denied server request counts as a denial for the exit code too.
        questions.denied = True
        screen.line(one_line(text))

    quiet, turn = plan.no_input, questions.turn
    face = terminal_face(
        screen, no_input=plan.no_input, turn=questions.turn, edit=line_editor() if is_there() else None
    )
    return {
        **plan.guard.options(),
        "typed": True,
        "consent": None if face is None else _in_order(face),
        "models": () if model is None else (model,),
        "review": terminal_sampling_review(screen, no_input=quiet, turn=turn),
        "forms": terminal_elicitation(screen, no_input=quiet, turn=turn),
        # Without a terminal a form is declined, with a notice.
        "elicitation": questions.elicit,
        "elicitation_urls": True,
        "notice": notice,
        "logging": _logged(screen) if plan.verbosity else None,
        "inputs": inputs,
        "wait": "all",
        "wait_seconds": max(map(start_seconds, entries), default=1.0) if plan.wait is None else plan.wait,
    }


def _in_order(face: Face) -> Face:
    """Return a prompter that asks only after pending events about the call were shown."""

    async def ask(question: Question) -> Answer | None:
        # The task that shows events runs in the next iteration of the event loop, and shows all without waiting.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await face(question)

    return ask


def _logged(screen: Screen) -> Callable[[t.LoggingMessageNotificationParams], object]:
    def show(message: t.LoggingMessageNotificationParams) -> None:
        said = message.data if isinstance(message.data, str) else wire_json(message.data).decode()
        for line in said.splitlines():
            screen.line(f"[{message.level}] {line}")

    return show


def status_line(status: Status) -> str:
    """Describe the status of a server on one line."""
    name = one_line(status.name)
    if status.state in ("ready", "partial", "known") and status.era is not None:
        counts = (("tool", status.tools), ("prompt", status.prompts), ("resource", status.resources))
        offers = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts if count)
        return f"{name}: {status.state}, {offers or 'nothing listed'}"
    why = status.reason or status.last_error
    return f"{name}: {status.state}{f': {one_line(why)}' if why else ''}"
