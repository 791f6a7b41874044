"""A model that says what a script says, for tests and demonstrations, without a network and without cost.

A script is a list of turns, used in order, given in Python or in a TOML or JSON file. A turn can demand what the last
message says (``expects``), or be used only when the last message says something (``when``), whatever its place. It
says a text, calls tools, fails, or waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.models.interface import (
    Block,
    Finished,
    ModelError,
    ModelEvent,
    ModelFault,
    ModelMessage,
    ModelRequest,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBegun,
    Traits,
    Usage,
    encode_json,
    parse_tool_call,
)
from trunkline.host.models.selection import traits_of

__all__ = ["ScriptedCall", "ScriptedModel", "ScriptedTurn", "read_script"]

_CHARACTERS_A_TOKEN = 4  # A rule of thumb for English text.


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call of a turn."""

    #: The tool's name as offered, or its part after an underscore if only one tool ends with it.
    tool: str
    arguments: dict[str, Any] = {}
    #: Written in place of the arguments; may be any text.
    raw: str | None = None


class ScriptedTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn of a script."""

    #: Text that the last message must contain; otherwise the turn fails and says so.
    expects: str | None = None
    #: The turn is used as soon as the last message contains this, and not before.
    when: str | None = None
    #: The text; ``{said}`` stands for the last message's text and ``{result}`` for that of the last results.
    says: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    #: Instead of finishing, fail like this, after the text.
    fails: ModelFault | None = None
    #: Seconds before each piece of the text.
    pause: float = 0.0
    #: Never finish after the text: wait until the iterator is closed.
    hangs: bool = False
    #: Use the turn as often as it matches.
    again: bool = False
    stop: StopReason | None = None
    usage: Usage | None = None


Script: TypeAlias = Iterable[ScriptedTurn | Mapping[str, Any] | str]


class ScriptedModel:
    """A model that says what a script says."""

    def __init__(
        self, script: Script, *, name: str = "scripted:script", traits: Traits | None = None, piece: int = 12
    ) -> None:
        """Store the turns: ``ScriptedTurn``, mappings of the same members, or strings.

        The text of a turn is streamed in pieces of ``piece`` characters.

        Raises:
            ConfigError: a turn is invalid.
        """
        self.name = name
        self.traits: Traits = traits_of("scripted:script") if traits is None else traits
        self._turns = [_turn(number, turn, name) for number, turn in enumerate(script, 1)]
        self._left = list(range(len(self._turns)))
        self._piece = max(1, piece)
        #: All requests, in order.
        self.requests: list[ModelRequest] = []
        #: How often a turn was closed before its end.
        self.stopped: int = 0
        self.closed: bool = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Run the next turn of the script; closing the iterator stops it.

        Raises:
            ModelError: the turn fails, the script is over, or it expects something else.
        """
        self.requests.append(request)
        turn = self._take(_last(request))
        whole = False
        try:
            said = _filled(turn.says, request)
            for at in range(0, len(said), self._piece):
                if turn.pause:
                    await asyncio.sleep(turn.pause)
                yield TextDelta(said[at : at + self._piece])
            if turn.hangs:
                await asyncio.Event().wait()
            if turn.fails is not None:
                whole = True
                raise ModelError(f"The script makes {self.name} fail here: {turn.fails}.", fault=turn.fails)
            blocks: list[Block] = [TextBlock(said)] if said else []
            for call in turn.calls:
                tool = _tool(call.tool, request.tools)
                yield ToolUseBegun(tool)
                written = encode_json(call.arguments).decode() if call.raw is None else call.raw
                blocks.append(parse_tool_call(f"call_{len(self.requests)}_{len(blocks)}", tool, written))
            whole = True
            yield self._finished(turn, tuple(blocks), request)
        finally:
            self.stopped += not whole

    async def aclose(self) -> None:
        """Record that the model was closed."""
        self.closed = True

    def _take(self, last: str) -> ScriptedTurn:
        """Choose the turn: the first whose ``when`` matches, else the first without one."""
        fitting = [at for at in self._left if (when := self._turns[at].when) is not None and when in last]
        plain = [at for at in self._left if self._turns[at].when is None]
        if not fitting and not plain:
            raise ModelError(f"The script of {self.name} has no turn for {last[:200]!r}.", fault="refused")
        at = (fitting or plain)[0]
        turn = self._turns[at]
        if turn.expects is not None and turn.expects not in last:
            text = f"Turn {at + 1} of {self.name} expects {turn.expects!r}, but the last message says {last[:500]!r}."
            raise ModelError(text, fault="refused")
        if not turn.again:
            self._left.remove(at)
        return turn

    def _finished(self, turn: ScriptedTurn, blocks: tuple[Block, ...], request: ModelRequest) -> Finished:
        usage = turn.usage
        if usage is None:
            asked = sum(len(encode_json(message)) for message in request.messages)
            usage = Usage(
                asked // _CHARACTERS_A_TOKEN, sum(len(encode_json(each)) for each in blocks) // _CHARACTERS_A_TOKEN
            )
        stop: StopReason = turn.stop or ("tools" if turn.calls else "end")
        return Finished(ModelMessage("assistant", blocks), stop, usage, self.name.partition(":")[2])


def _turn(number: int, turn: ScriptedTurn | Mapping[str, Any] | str, name: str) -> ScriptedTurn:
    if isinstance(turn, ScriptedTurn):
        return turn
    if isinstance(turn, str):
        return ScriptedTurn(says=turn)
    try:
        return msgspec.convert(dict(turn), ScriptedTurn)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Turn {number} of {name} is invalid: {error}") from error


def _last(request: ModelRequest) -> str:
    """Return the text of the last message, including tool results."""
    return _text(request.messages[-1]) if request.messages else ""


def _text(message: ModelMessage) -> str:
    return "\n".join(filter(None, (message.text, _results(message))))


def _results(message: ModelMessage) -> str:
    return "\n".join(
        each.text
        for block in message.content
        if isinstance(block, ToolResultBlock)
        for each in block.content
        if isinstance(each, TextBlock)
    )


def _filled(says: str, request: ModelRequest) -> str:
    if "{" not in says:
        return says
    results = next((found for message in reversed(request.messages) if (found := _results(message))), "")
    said = next((message.text for message in reversed(request.messages) if message.role == "user" and message.text), "")
    # In one pass, as a tool result may contain braces of its own.
    parts = says.split("{result}")
    return results.join(part.replace("{said}", said) for part in parts)


def _tool(name: str, offered: tuple[ToolSpec, ...]) -> str:
    """Return the full name of the tool; one that is not offered is called all the same."""
    names = [tool.name for tool in offered]
    ending = [each for each in names if each.endswith(f"_{name}")]
    return ending[0] if name not in names and len(ending) == 1 else name


_MOST_BYTES = 4 * 1024 * 1024  # Scripts have a few KiB; a larger file is another file.
_MEMBERS = ("turn", "piece", "traits")


def read_script(path: str | Path, *, traits: Mapping[str, Any] | None = None) -> ScriptedModel:
    """Load a script: a list of ``turn`` tables, and optionally ``piece`` and ``traits``.

    Raises:
        ConfigError: the file cannot be read, or is not a script.
    """
    file = Path(path)
    document = _document(file)
    unknown = sorted(set(document) - set(_MEMBERS))
    if unknown:
        raise ConfigError(f"{file} has the unknown key {unknown[0]!r}; a script may have: {', '.join(_MEMBERS)}")
    turns, piece = document.get("turn", []), document.get("piece", 12)
    if not isinstance(turns, list) or not turns:
        raise ConfigError(f'{file} has no turns: write each as a [[turn]] table with says = "..."')
    if not isinstance(piece, int) or piece < 1:
        raise ConfigError(f"{file}: piece must be a number of characters, at least 1")
    shown: Traits = traits_of("scripted:script", {**document.get("traits", {}), **(traits or {})})
    return ScriptedModel(turns, name=f"scripted:{file.name}", traits=shown, piece=piece)


def _document(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The script {file} cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"The script {file} is larger than {_MOST_BYTES} bytes")
    try:
        if file.suffix == ".json":
            document = msgspec.json.decode(data)
        else:
            import tomllib

            document = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"The script {file} is invalid: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"The script {file} is not a table")
    return document
