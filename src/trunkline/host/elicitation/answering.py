"""Elicitation: servers ask the user something by a form, or by a page to open, which a prompter shows to a person.

The prompter gets only checked questions: forms are flat and ask for no credentials, URLs are http or https and come
with their warnings, and the server that asks is always named. Nothing is fetched or opened here. Without a prompter the
answer is to decline.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.errors import LocalProtocolError
from trunkline.host.desks import Notice, Reviewed, Tell, question_act
from trunkline.host.elicitation.forms import FormRefused, read_form
from trunkline.host.elicitation.pages import Address, AddressRefused, read_address
from trunkline.host.entries import ServerEntry

if TYPE_CHECKING:
    from trunkline.host.session import HostSession

__all__ = ["ElicitationDesk", "ElicitationFace", "FormQuestion", "PageQuestion"]

log = logging.getLogger("trunkline.host")

_DECLINE = t.ElicitResult(action="decline")
_CANCEL = t.ElicitResult(action="cancel")
_MODES: Mapping[str, Any] = MappingProxyType({"form": {}, "url": {}})


class FormQuestion(Struct, frozen=True, kw_only=True):
    """A form for a person: the server that asks, its message, and the fields as a flat schema."""

    server: str
    #: The server's whole command or URL, without secrets.
    command: str
    message: str
    schema: dict[str, Any]


class PageQuestion(Struct, frozen=True, kw_only=True):
    """A page for a person to open: the server that asks, its message, and the URL."""

    server: str
    command: str
    message: str
    address: Address


#: Shows a prompt to a person; None: no answer. It is cancelled when the question is withdrawn.
ElicitationFace: TypeAlias = Callable[["FormQuestion | PageQuestion"], Awaitable["t.ElicitResult | None"]]


class ElicitationDesk:
    """Answers elicitation requests through a prompter."""

    def __init__(self, face: ElicitationFace | None, *, notice: Notice | None = None, tell: Tell | None = None) -> None:
        """Use this prompter, or None; ``notice`` is called with what was declined, ``tell`` with every outcome."""
        self._face = face
        self._notice = notice
        self._tell = tell

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities to declare: none without a prompter."""
        return {} if self._face is None else {"elicitation": dict(_MODES)}

    async def answer(self, entry: ServerEntry, question: t.ElicitRequestParams, session: HostSession) -> t.ElicitResult:
        """Answer a server's request.

        Raises:
            LocalProtocolError: the prompter returned an answer that does not match the form.
        """
        by, note = "policy", None
        try:
            asked = _read(entry, question)
        except (FormRefused, AddressRefused) as refusal:
            what, note = "page" if question.mode == "url" else "form", str(refusal)
            self._say(f"The {what} of {entry.name} was declined: {note}.")
            result = _DECLINE
        else:
            if self._face is None:
                note = "there is no terminal or client to ask"
                self._say(f"A question of {entry.name} was declined: {note}.")
                result = _DECLINE
            else:
                by, result = "user", _checked(await self._face(asked) or _CANCEL, asked)
        if self._tell is not None:
            act = question_act(entry, "elicitation/create", question, session)
            self._tell(Reviewed(act=act, allowed=result.action == "accept", by=by, note=note or result.action))
        return result

    def _say(self, text: str) -> None:
        log.info("%s", text)
        if self._notice is not None:
            self._notice(text)


def _read(entry: ServerEntry, question: t.ElicitRequestParams) -> FormQuestion | PageQuestion:
    if question.mode == "url":
        return PageQuestion(
            server=entry.name,
            command=entry.shown,
            message=question.message,
            address=read_address(question.url or ""),
        )
    return FormQuestion(server=entry.name, command=entry.shown, message=question.message, schema=read_form(question))


def _checked(result: t.ElicitResult, question: FormQuestion | PageQuestion) -> t.ElicitResult:
    """Check that the answer has what the form asks for, and nothing else."""
    if result.action != "accept" or isinstance(question, PageQuestion):
        return t.ElicitResult(action=result.action)
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    content, fields = result.content or {}, question.schema["properties"]
    unknown = [name for name in content if name not in fields]
    if unknown:
        raise LocalProtocolError(f"The answer has a field {unknown[0]!r} that the form does not have.")
    try:
        problem = compile_schema(question.schema).first_problem(content)
    except SchemaError as error:
        raise LocalProtocolError(f"The form cannot be checked: {error}") from error
    if problem is not None:
        where = problem.path or "the whole"
        raise LocalProtocolError(f"The answer does not fit the form at {where}: {problem.message}")
    return t.ElicitResult(action="accept", content=content)
