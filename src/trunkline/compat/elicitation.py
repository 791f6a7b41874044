"""What a user did with a question, under the names of both frameworks."""

from __future__ import annotations

from typing import Any

from trunkline.server.client_requests import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    ElicitationResult,
)

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "CancelledElicitation",
    "DeclinedElicitation",
    "ElicitationResult",
    "UrlElicitationResult",
    "elicit_url",
    "elicit_with_validation",
]


async def elicit_with_validation(session: Any, message: str, schema: Any, **_: Any) -> Any:
    """Ask the user to fill in a form."""
    return await session._context.elicit(message, schema)


async def elicit_url(session: Any, message: str, url: str, elicitation_id: str, **_: Any) -> Any:
    """Ask the user to open a page."""
    return await session._context.elicit_url(message, url, elicitation_id=elicitation_id)


AcceptedUrlElicitation = AcceptedElicitation
UrlElicitationResult = ElicitationResult[None]
