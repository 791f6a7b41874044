"""What a user did with a question, under the names of both frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from trunkline.compat.versions import STATE
from trunkline.server.client_requests import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    ElicitationResult,
)
from trunkline.server.context import Context

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "CancelledElicitation",
    "DeclinedElicitation",
    "ElicitationResult",
    "UrlElicitationResult",
    "elicit_form",
    "elicit_url",
    "elicit_with_validation",
]


async def elicit_with_validation(session: Any, message: str, schema: Any, **_: Any) -> Any:
    """Ask the user to fill in a form."""
    return await session._context.elicit(message, schema)


async def elicit_url(session: Any, message: str, url: str, elicitation_id: str, **_: Any) -> Any:
    """Ask the user to open a page."""
    answer = await session._context.elicit_url(message, url, elicitation_id=elicitation_id)
    return AcceptedUrlElicitation() if answer.action == "accept" else answer


class AcceptedUrlElicitation(Struct, frozen=True):
    """The user opened the page; there is no data."""

    action: Literal["accept"] = "accept"


UrlElicitationResult = AcceptedUrlElicitation | DeclinedElicitation | CancelledElicitation


def _is_primitive(annotation: Any) -> bool:
    """Return whether a form may have a field of this type: text, numbers, truth values, choices and lists of text."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_primitive(get_args(annotation)[0])
    if origin in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        # Version 2 has no field of several types.
        return all(_is_primitive(part) for part in parts) and (STATE.camel_case or len(parts) == 1)
    if origin is Literal:
        return all(isinstance(value, str) for value in get_args(annotation))
    if origin in (list, Sequence):
        return all(_is_text(part) for part in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, str | int | float | bool)


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return all(isinstance(value, str) for value in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, str)


def _lacks_choices(field: Any) -> bool:
    """Return whether a field is a list of any text: version 2 has only lists of choices."""
    inner = next((part for part in get_args(field.annotation) if get_origin(part) is list), field.annotation)
    if STATE.camel_case or get_origin(inner) is not list or get_origin(get_args(inner)[0]) is Literal:
        return False
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return not extra.get("items") and get_args(inner)[0] is str


def form_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a form.

    Raises:
        TypeError: the model has a field that a form cannot have.
    """
    for name, field in model.model_fields.items():
        if not _is_primitive(field.annotation) or _lacks_choices(field):
            raise TypeError(
                f"Elicitation schema field {name!r} has the type {field.annotation}: only primitive types, "
                "choices and lists of text (str, int, float, bool, Literal, list[str]) are possible"
            )
    schema = model.model_json_schema(schema_generator=_FormSchema)
    return {key: value for key, value in schema.items() if key in ("type", "properties", "required", "title")}


class _FormSchema(GenerateJsonSchema):
    """Leaves the alternative of null out: a field that may be absent is not required."""

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of what is not null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema without a default of null."""
        made = super().default_schema(schema)
        if made.get("default", ...) is None:
            del made["default"]
        return made


async def elicit_form(context: Any, message: str, model: type[BaseModel]) -> Any:
    """Ask the user to fill in a form, and return what was done with it; accepted data is a model.

    Raises:
        TypeError: the model has a field that a form cannot have.
        pydantic.ValidationError: the client sent something else.
    """
    answer = await Context.elicit(context, message, form_schema(model))
    if answer.action != "accept":
        return answer
    return AcceptedElicitation(model.model_validate(answer.data))
