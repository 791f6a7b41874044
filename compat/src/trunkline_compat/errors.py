"""The exceptions of both frameworks, as kinds of ours, so that a handler may raise them."""

from __future__ import annotations

from typing import Any

from trunkline.errors import HandlerError, RequestFailed, UrlElicitationRequired
from trunkline.errors import PromptError as OwnPromptError
from trunkline.errors import ResourceError as OwnResourceError
from trunkline.errors import ToolError as OwnToolError
from trunkline_compat.types import model_class, to_plain

__all__ = [
    "AuthorizationError",
    "ClientError",
    "DisabledError",
    "FastMCPDeprecationWarning",
    "FastMCPError",
    "InvalidSignature",
    "McpError",
    "NotFoundError",
    "PromptError",
    "ResourceError",
    "ToolError",
    "UrlElicitationRequiredError",
    "ValidationError",
]


class McpError(RequestFailed):
    """An error response: ``McpError(ErrorData(...))``, or ``MCPError(code=, message=, data=)``."""

    def __init__(
        self, error: Any = None, message: str | None = None, data: Any = None, *, code: int | None = None
    ) -> None:
        """Initialize with the error as a model, or its parts."""
        if hasattr(error, "code"):
            code, message, data = error.code, error.message, error.data
        elif isinstance(error, int):
            code = error
        elif error is not None:
            message = str(error)
        super().__init__(message or "", code=code, data=data)

    def __str__(self) -> str:
        """Return the message."""
        return self.message

    @property
    def error(self) -> Any:
        """The error as it is sent."""
        return model_class("ErrorData")(code=self.code, message=self.message, data=self.data)

    @classmethod
    def of(cls, failure: RequestFailed) -> McpError:
        """Return the same failure as this class."""
        return cls(code=failure.code, message=failure.message, data=failure.data)


class UrlElicitationRequiredError(McpError, UrlElicitationRequired):
    """The user must open a page first."""

    def __init__(self, elicitations: Any, message: str | None = None) -> None:
        """Initialize with the pages that are to be opened."""
        self.elicitations = list(elicitations)
        pages = to_plain(self.elicitations)
        McpError.__init__(
            self, code=-32042, message=message or "URL elicitation required", data={"elicitations": pages}
        )


class FastMCPError(HandlerError):
    """The base of FastMCP's exceptions: the text is meant for the caller."""

    def __init__(self, *args: object, log_level: int | None = None) -> None:
        """Initialize with the text; the level for the log has no effect."""
        super().__init__(*args)
        self.log_level = log_level


class ToolError(FastMCPError, OwnToolError):
    """A tool failed in a way the model should read."""


class ResourceError(FastMCPError, OwnResourceError):
    """A resource cannot be read."""


class PromptError(FastMCPError, OwnPromptError):
    """A prompt cannot be rendered."""


class ValidationError(FastMCPError):
    """Something does not have the form it must have."""


class AuthorizationError(FastMCPError):
    """The caller may not do that."""


class NotFoundError(HandlerError):
    """There is nothing of that name."""


class DisabledError(HandlerError):
    """What was asked for is switched off."""


class InvalidSignature(Exception):
    """A function cannot be registered."""


class ClientError(Exception):
    """A client failed."""


class FastMCPDeprecationWarning(DeprecationWarning):
    """Something of FastMCP is on its way out."""
