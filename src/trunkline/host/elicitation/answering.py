"""Answers servers that ask the user something: by a form, or by a page to open, put before a person by a face.

What reaches the face is read already: forms are flat and ask for no credentials, addresses are http or https and come
with their warnings, and the server that asks is always named. Nothing is fetched or opened here. Where nobody can be
asked, the answer is to decline.
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
    """A form for a person: who asks, in the server's own words, and the fields as a flat schema."""

    server: str
    #: The server's whole command or URL, secrets left out.
    command: str
    message: str
    schema: dict[str, Any]


class PageQuestion(Struct, frozen=True, kw_only=True):
    """A page that a person is to open: who asks, in the server's own words, and where it is."""

    server: str
    command: str
    message: str
    address: Address


#: Puts a question before a person; None: they did not answer. It is cancelled when the question is withdrawn.
ElicitationFace: TypeAlias = Callable[["FormQuestion | PageQuestion"], Awaitable["t.ElicitResult | None"]]


class ElicitationDesk:
    """Has forms filled in and pages shown."""

    def __init__(self, face: ElicitationFace | None, *, notice: Notice | None = None, tell: Tell | None = None) -> None:
        """Take who asks the person, None if nobody does; ``notice`` is told what was refused, ``tell`` all of it."""
        self._face = face
        self._notice = notice
        self._tell = tell

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What can be asked here: nothing if there is nobody."""
        return {} if self._face is None else {"elicitation": dict(_MODES)}

    async def answer(self, entry: ServerEntry, question: t.ElicitRequestParams, session: HostSession) -> t.ElicitResult:
        """Answer a question of a server's.

        Raises:
            LocalProtocolError: the face gave what is no answer to the question.
        """
        by, note = "policy", None
        try:
            asked = _read(entry, question)
        except (FormRefused, AddressRefused) as refusal:
            what, note = "page" if question.mode == "url" else "form", str(refusal)
            self._say(f"{entry.name} asks by a {what}, which was declined: {note}.")
            result = _DECLINE
        else:
            if self._face is None:
                note = "nobody is here to be asked"
                self._say(f"{entry.name} asks something, which was declined: {note}.")
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
    """Make sure that what leaves is what was asked for, and nothing else."""
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
