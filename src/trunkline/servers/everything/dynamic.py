"""Resources that are generated from a number, as text and as bytes, and helpers to refer to them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from trunkline import ToolError
from trunkline.types import Completion, ResourceContents

__all__ = ["BLOB", "TEXT", "Kind", "as_number", "dynamic", "dynamic_uri", "positive", "positive_text", "proposed"]

Kind = Literal["Text", "Blob"]
TEXT = "demo://resource/dynamic/text/{resourceId}"
BLOB = "demo://resource/dynamic/blob/{resourceId}"


def dynamic_uri(kind: Kind, number: int) -> str:
    """Return the URI of a generated resource."""
    return (TEXT if kind == "Text" else BLOB).replace("{resourceId}", str(number))


def dynamic(kind: Kind, number: int) -> ResourceContents:
    """Generate a resource."""
    now = datetime.now()
    time = f"{now.hour % 12 or 12}:{now:%M:%S} {'AM' if now.hour < 12 else 'PM'}"
    if kind == "Text":
        text = f"Resource {number}: This is a plaintext resource created at {time}"
        return ResourceContents(uri=dynamic_uri(kind, number), mime_type="text/plain", text=text)
    blob = f"Resource {number}: This is a base64 blob created at {time}"
    return ResourceContents(
        uri=dynamic_uri(kind, number), mime_type="text/plain", blob=b64encode(blob.encode()).decode()
    )


def positive(value: float) -> int:
    """Parse the number of a resource.

    Raises:
        ToolError: it is not a positive integer.
    """
    if not 1 <= value < 2**53 or value != int(value):
        raise ToolError(f"Invalid resourceId: {as_number(value)}. Must be a finite positive integer.")
    return int(value)


def positive_text(value: str) -> int | None:
    """Parse the number of a resource from text; None if it is invalid."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 and int(value) > 0 else None


def proposed(words: Iterable[str], typed: str) -> Completion:
    """Return the words with the typed prefix as a complete completion."""
    values = [word for word in words if word.startswith(typed)]
    return Completion(values=values, total=len(values), has_more=False)


def as_number(value: float) -> str:
    """Format a number as JSON does: without a decimal point if it is whole."""
    return str(int(value)) if value == value and abs(value) < 1e21 and value == int(value) else repr(value)
