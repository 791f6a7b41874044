"""The forms of servers that are shown to a person: flat ones that do not ask for credentials.

What is typed into a form goes through the host and may leak. So passwords, keys, tokens, codes and the like are never
entered in one: the specification wants them entered on a page of the server itself. A field is judged by its name, its
title, its description and its format, and by the message above the form. That finds forms that say what they ask for;
it is no proof against a server that lies. Pure functions.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import trunkline.types as t
from trunkline.protocol.json_schema import SchemaError, check_flat, inline_defs
from trunkline.protocol.secret_looks import ASKED_IN_OTHER_SCRIPTS, ASKED_SECRET, asks_for_secret, names_secret

__all__ = ["FormRefused", "credentials_in", "read_form"]

_MOST_FIELDS = 100
_LONGEST_TEXT = 20_000

_NEGATED = re.compile(
    r"\b(?:do not|don t|dont|does not|doesn t|never|not|no|without)"
    r"(?: (?:a|an|any|the|your|my|need|needs|enter|type|provide|put|ask|asks|for|share|send|include|use|to|is))*"
    rf" {ASKED_SECRET}\b"
)
_ASKED = re.compile(
    r"\b(?:enter|provide|type|paste|supply|give|share|send|input|insert|submit|tell|need|needs|require|requires|confirm"
    rf"|what is|your)\b(?: \w+){{0,6}}? {ASKED_SECRET}\b|{ASKED_IN_OTHER_SCRIPTS}"
)
# Digits and symbols used in place of letters, mapped back.
_LOOKALIKES = str.maketrans("013457@$!", "oieastasi")


class FormRefused(ValueError):
    """A form is not shown to the user; the message says why."""


def read_form(question: t.ElicitRequestParams) -> dict[str, Any]:
    """Return the schema of a form, simplified: without references, and without nullable fields.

    Raises:
        FormDenied: it asks for credentials, or is not a form that a person can fill in.
    """
    schema = question.requested_schema
    if not isinstance(schema, dict):
        raise FormRefused("the form has no schema")
    if len(question.message) > _LONGEST_TEXT:
        raise FormRefused(f"the message has more than {_LONGEST_TEXT} characters")
    # Checked first: if the form has other faults too, this is the one that a person has to know.
    asked = credentials_in(question.message, schema)
    if asked:
        named = ", ".join(asked)
        raise FormRefused(
            f"it asks for credentials ({named}), which must be entered on a page of the server itself, never in a form"
        )
    try:
        plain = inline_defs(schema)
        plain = {key: value for key, value in plain.items() if key != "$defs"}
        fields = plain.get("properties")
        if isinstance(fields, dict):
            if len(fields) > _MOST_FIELDS:
                raise FormRefused(f"the form has {len(fields)} fields, and {_MOST_FIELDS} are allowed")
            plain["properties"] = {name: _never_null(field) for name, field in fields.items()}
        check_flat(plain)
    except (SchemaError, RecursionError) as error:
        raise FormRefused(f"the form cannot be shown: {error}") from error
    return plain


def _never_null(field: Any) -> Any:
    """Return a field that is not nullable: leaving it out means the same."""
    if not isinstance(field, dict):
        return field
    kinds, forms = field.get("type"), field.get("anyOf")
    plain = field
    if isinstance(kinds, list) and len(kinds) == 2 and "null" in kinds:
        plain = {**field, "type": next(kind for kind in kinds if kind != "null")}
    elif isinstance(forms, list) and len(forms) == 2 and {"type": "null"} in forms:
        form = next(each for each in forms if each != {"type": "null"})
        rest = {key: value for key, value in field.items() if key != "anyOf"}
        plain = {**form, **rest} if isinstance(form, dict) else field
    if plain is not field and plain.get("default", "") is None:
        plain = {key: value for key, value in plain.items() if key != "default"}
    return plain


# --- credentials -----------------------------------------------------------------------------------------------------


def credentials_in(message: str, schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields of a form that ask for credentials, or ``the message`` if that does."""
    fields = schema.get("properties")
    free = {
        str(name): field
        for name, field in (fields.items() if isinstance(fields, dict) else ())
        if isinstance(field, dict) and _is_free(field)
    }
    found = [name for name, field in free.items() if _asks(name, field)]
    if not found and free and _ASKED.search(_without_no(message)):
        found = ["the message"]
    return tuple(found)


def _is_free(field: dict[str, Any]) -> bool:
    """Return True if a field accepts free text: a choice or a switch cannot take a password."""
    return field.get("type") not in ("boolean", "array") and not {"enum", "oneOf"} & field.keys()


def _asks(name: str, field: dict[str, Any]) -> bool:
    if names_secret(str(field.get("format", ""))) or field.get("writeOnly") is True:
        return True
    labels = [_words(name), _words(name.translate(_LOOKALIKES)), _words(str(field.get("title") or ""))]
    if names_secret(name) or any(map(asks_for_secret, labels)):
        return True
    return asks_for_secret(_without_no(str(field.get("description") or "")))


def _without_no(text: str) -> str:
    """Return the words of a text without negated mentions ("never enter your password")."""
    return _NEGATED.sub(" ", _words(text))


def _words(text: str) -> str:
    """Return a text or an identifier as lower-case words, one space apart, without invisible characters."""
    seen = "".join(
        each for each in unicodedata.normalize("NFKC", text[:_LONGEST_TEXT]) if unicodedata.category(each) != "Cf"
    )
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", seen)
    return re.sub(r"[\W_]+", " ", apart.casefold()).strip()
