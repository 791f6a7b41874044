"""The chat loop of the terminal: reads lines and carries them out until the user leaves.

Ctrl-C stops the current turn, not the program; pressed twice at an empty line it ends the chat. A failure is printed as
one line, and the chat goes on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from trunkline.cli.chat_commands import COMMANDS, run_command
from trunkline.cli.chat_forms import Unreadable
from trunkline.cli.chat_guided import HINT
from trunkline.cli.chat_input import Interrupted, open_lines
from trunkline.cli.chat_model import NO_MODEL
from trunkline.cli.chat_opening import Plan, Room, opened, prepare, status_line
from trunkline.cli.chat_proposals import Proposals
from trunkline.cli.chat_screen import ChatScreen, marked
from trunkline.cli.chat_talk import ChatTalk, Wishes
from trunkline.cli.chat_words import Command, Picked, find_mentions, read_line
from trunkline.cli.configs import Ask, name_hint
from trunkline.cli.exits import Exit, Failure
from trunkline.cli.output import one_line
from trunkline.cli.signals import hearing
from trunkline.cli.terminal import InputEnded
from trunkline.errors import TrunklineError
from trunkline.host.events import Inspected, Missed, ServerStateChanged

__all__ = ["run_chat"]

_ENDING = "press Ctrl-C again, or Ctrl-D, to end the chat"
_USUAL = ("ready", "partial", "known")
#: Findings about definitions that are reported at once.
_TOLD = ("changed", "flagged", "hidden", "unlocked", "closed")


def run_chat(plan: Plan, wishes: Wishes) -> Exit:
    """Run a chat until the user ends it.

    Raises:
        TrunklineError: the chat cannot start.
        CommandError: the chat cannot start.
    """
    return asyncio.run(_run(plan, wishes, prepare(plan)))


async def _run(plan: Plan, wishes: Wishes, inputs: Ask | None) -> Exit:
    async with opened(plan, inputs) as room:
        show = ChatScreen(room.screen)
        proposals = Proposals(room.host, room.session, commands=COMMANDS)
        lines, less = open_lines(room.screen, propose=proposals.line, history=wishes.history)
        talk = ChatTalk(room, wishes, show=show, lines=lines, proposals=proposals)
        try:
            loop = _Loop(talk)
            with hearing({signal.SIGINT: loop.interrupt}), _followed(room, show):
                _greet(talk, less)
                return await loop.run()
        finally:
            await talk.aclose()
            if talk.file is not None:
                show.line("note", f"saved; to resume, run: trunkline chat --resume {talk.file}")


class _Loop:
    """Reads and handles lines one after another."""

    def __init__(self, talk: ChatTalk) -> None:
        self._talk = talk
        self._doing: asyncio.Task[bool] | None = None
        self._interrupts = 0

    async def run(self) -> Exit:
        """Read and handle lines until the chat ends."""
        talk, ending = self._talk, False
        while True:
            try:
                text = await talk.lines.message("tool>" if talk.conversation is None else "you>")
            except InputEnded:
                return Exit.OK
            except Interrupted:
                if not talk.lines.asks:
                    raise Failure("interrupted", Exit.INTERRUPTED) from None
                if ending:
                    return Exit.OK
                ending = True
                talk.show.line("note", _ENDING)
                continue
            ending = False
            if text.strip() and not await self._do(text):
                return Exit.OK

    async def _do(self, text: str) -> bool:
        """Handle a line; return False if the chat ends."""
        self._interrupts = 0
        self._doing = asyncio.ensure_future(self._meant(text))
        try:
            return await self._doing
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._talk.show.line("stopped", "cancelled")
        except (Interrupted, InputEnded):
            self._talk.show.line("stopped", "nothing was done")
        except (TrunklineError, Failure, Unreadable) as error:
            self._talk.show.line("failed", str(error) or type(error).__name__)
        finally:
            self._doing = None
            self._talk.room.screen.clear()
        return True

    async def _meant(self, text: str) -> bool:
        talk, catalog = self._talk, self._talk.room.host.catalog
        match read_line(text, catalog):
            case Command() as command:
                return await run_command(talk, command)
            case Picked(None, typed):
                heads = [f"{item.server}:{item.name}" for item in catalog.prompts.values()]
                word = typed.split()[0][1:]
                raise Unreadable(f"there is no prompt {word!r}; {name_hint(word, heads)}")
            case Picked(item, typed) if item is not None:
                await talk.pick(item, typed)
            case str() as message:
                await self._message(message)
        return True

    async def _message(self, text: str) -> None:
        talk = self._talk
        mentions = find_mentions(text, talk.room.host.catalog)
        if talk.conversation is not None:
            await talk.say(text, mentions)
        elif mentions:
            for mention in mentions:
                await talk.attach(mention)
        else:
            await talk.guided.line(text)

    def interrupt(self) -> None:
        """Called on Ctrl-C: stop the turn; if that does not help, cancel it, then abandon it."""
        self._interrupts += 1
        if self._doing is None:
            self._talk.lines.interrupt()
        elif self._interrupts > 2:
            raise KeyboardInterrupt
        elif self._talk.turning and self._interrupts == 1:
            self._talk.cancel()
        else:
            self._doing.cancel()


# --- output ----------------------------------------------------------------------------------------------------------


def _greet(talk: ChatTalk, less: str | None) -> None:
    """Print servers, model and hints at the start."""
    show, room = talk.show, talk.room
    for problem in room.host.configuration.problems:
        show.line("note", str(problem))
    for status in room.host.status():
        show.line("note", status_line(status))
    if less is not None:
        show.line("note", less)
    if talk.conversation is None:
        show.line("note", f"{NO_MODEL}. Without a model, you call the tools yourself.")
        show.line("note", HINT)
        return
    show.line("note", f"{one_line(talk.conversation.model.name)} answers; /help lists the commands")
    said = [message for message in talk.conversation.messages if message.text.strip()]
    if said:
        show.line("note", f"resuming a conversation of {len(talk.conversation.messages)} messages; the last one:")
        show.tell(marked(said[-1].text))


@contextmanager
def _followed(room: Room, show: ChatScreen) -> Iterator[None]:
    task = asyncio.get_running_loop().create_task(_follow(room, show))
    try:
        yield
    finally:
        task.cancel()


async def _follow(room: Room, show: ChatScreen) -> None:
    """Print when a server becomes unavailable or available again, or when a definition changed."""
    states = {status.name: status.state for status in room.host.status()}
    async with room.host.events() as events:
        async for event in events:
            news = None
            if isinstance(event, Missed):
                states = {status.name: status.state for status in room.host.status()}
            elif isinstance(event, Inspected) and event.what in _TOLD:
                news = f"{event.server}/{event.name} ({event.kind}) is {event.what}: {event.reason}"
            elif isinstance(event, ServerStateChanged):
                before, states[event.server] = states.get(event.server), event.state
                why = f": {event.reason}" if event.reason else ""
                quiet = event.state == "starting" or (event.state in _USUAL and before in _USUAL)
                news = None if quiet else f"{event.server} is {event.state} now{why}"
            if news is not None:
                async with room.questions.turn:
                    show.line("note", news)
