"""The form with every kind of field, and the description of its answer."""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.server import ElicitationResult
from trunkline.types import TextContent

__all__ = ["answered", "every_field"]


def every_field() -> dict[str, Any]:
    """Return the form; names, types, bounds and defaults are those of the official server."""
    fields = {**_texts(), **_numbers(), **_choices()}
    return {"type": "object", "properties": fields, "required": ["name"]}


def _texts() -> dict[str, Any]:
    return {
        "name": _field("string", "Text", "What you are called"),
        "check": _field("boolean", "Yes or no", "Whether you agree"),
        "firstLine": _field(
            "string",
            "Text with a default",
            "How a story should begin",
            default="It was a dark and stormy night.",
        ),
        "email": _field("string", "Text that is an email address", "Where mail reaches you", format="email"),
        "homepage": _field("string", "Text that is a URI", "A page of yours", format="uri"),
        "birthdate": _field("string", "Text that is a date", "When you were born", format="date"),
    }


def _numbers() -> dict[str, Any]:
    return {
        "integer": _field("integer", "Whole number", "One you like", minimum=1, maximum=100, default=42),
        "number": _field("number", "Number from 0 to 1000", "Another you like", minimum=0, maximum=1000, default=3.14),
    }


def _choices() -> dict[str, Any]:
    friends = ["Monica", "Rachel", "Joey", "Chandler", "Ross", "Phoebe"]
    instruments = {"type": "string", "enum": ["Guitar", "Piano", "Violin", "Drums", "Bass"]}
    fish = {"anyOf": _titled("fish", "Tuna", "Salmon", "Trout")}
    pets = ["Cats", "Dogs", "Birds", "Fish", "Reptiles"]
    several = {"minItems": 1, "maxItems": 3}
    return {
        "untitledSingleSelectEnum": _field("string", "One of several", "A friend", enum=friends, default="Monica"),
        "untitledMultipleSelectEnum": _field(
            "array", "Some of several", "Instruments", **several, items=instruments, default=["Guitar"]
        ),
        "titledSingleSelectEnum": _field(
            "string",
            "One of several, with titles",
            "A hero",
            oneOf=_titled("hero", "Superman", "Green Lantern", "Wonder Woman"),
            default="hero-1",
        ),
        "titledMultipleSelectEnum": _field(
            "array", "Some of several, with titles", "Fish", **several, items=fish, default=["fish-1"]
        ),
        "legacyTitledEnum": _field(
            "string",
            "One of several, titled as older revisions do",
            "A pet",
            enum=[f"pet-{number}" for number in range(1, len(pets) + 1)],
            enumNames=pets,
            default="pet-1",
        ),
    }


def _field(kind: str, title: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "title": title, "description": description, **more}


def _titled(prefix: str, *titles: str) -> list[dict[str, str]]:
    return [{"const": f"{prefix}-{number}", "title": title} for number, title in enumerate(titles, 1)]


_LINES = (
    ("name", "Name"),
    ("check", "Agreed to terms"),
    ("email", "Email"),
    ("homepage", "Homepage"),
    ("birthdate", "Birthdate"),
    ("integer", "Favorite Integer"),
    ("number", "Favorite Number"),
)


def answered(answer: ElicitationResult[Any]) -> list[TextContent]:
    """Return content that describes the user's action, the values, and the raw answer."""
    content: dict[str, Any] = {"action": answer.action}
    if answer.action == "accept":
        content["content"] = answer.data
        lines = [f"- {label}: {_shown(answer.data[name])}" for name, label in _LINES if name in answer.data]
        told = ["✅ User provided the requested information!", "User inputs:\n" + "\n".join(lines)]
    elif answer.action == "decline":
        told = ["❌ User declined to provide the requested information."]
    else:
        told = ["⚠️ User cancelled the elicitation dialog."]
    raw = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
    return [TextContent(text=text) for text in (*told, f"\nRaw result: {raw}")]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
