"""What a user did with a question, under the names of both frameworks."""

from __future__ import annotations

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
]

AcceptedUrlElicitation = AcceptedElicitation
UrlElicitationResult = ElicitationResult
