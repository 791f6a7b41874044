"""The exceptions of FastMCP and the official SDK, as kinds of ours, so that a handler may raise them."""

from __future__ import annotations

from typing import Any

from trunkline.errors import HandlerError, RequestFailed, UrlElicitationRequired
from trunkline.errors import PromptError as OwnPromptError
from trunkline.errors import ResourceError as OwnResourceError
from trunkline.errors import ToolError as OwnToolError

__all__ = [
    "AuthorizationError",
    "ClientError",
    "DisabledError",
    "FastMCPError",
    "InsufficientScopeError",
    "InvalidSignature",
    "MCPDeprecationWarning",
    "McpError",
    "NotFoundError",
    "PromptError",
    "ResourceError",
    "ResourceNotFoundError",
    "StatelessModeNotSupported",
    "ToolError",
    "UnexpectedResourceError",
    "UnexpectedToolError",
    "UrlElicitationRequiredError",
    "ValidationError",
]


class McpError(RequestFailed):
    """An error of the protocol: ``McpError(ErrorData(...))``, or ``MCPError(code=, message=, data=)``."""

    def __init__(
        self, error: Any = None, message: str | None = None, data: Any = None, *, code: int | None = None
    ) -> None:
        """Keep the code, the message and the data."""
        if isinstance(error, int):
            error, code = None, error
        if error is not None and not isinstance(error, str):
            code, message, data = error.code, error.message, error.data
        super().__init__(message or (error if isinstance(error, str) else "") or "", code=code, data=data)

    def __str__(self) -> str:
        """Return the message."""
        return self.message

    @property
    def error(self) -> Any:
        """The error as it is sent."""
        from trunkline.compat.types import model_class

        return model_class("ErrorData")(code=self.code, message=self.message, data=self.data)

    @classmethod
    def from_failure(cls, failure: RequestFailed) -> McpError:
        """Return the same failure as this class."""
        return cls(code=failure.code, message=failure.message, data=failure.data)


class UrlElicitationRequiredError(McpError, UrlElicitationRequired):
    """The user must open a page first."""

    def __init__(self, elicitations: Any, message: str | None = None) -> None:
        """Keep the pages that are to be opened."""
        from trunkline.compat.types import to_plain

        self.elicitations = elicitations
        text = message or f"URL elicitation{'s' if len(elicitations) > 1 else ''} required"
        McpError.__init__(self, code=-32042, message=text, data={"elicitations": to_plain(list(elicitations))})

    @classmethod
    def from_error(cls, error: Any) -> UrlElicitationRequiredError:
        """Make one from the error that was received.

        Raises:
            ValueError: it is another error.
        """
        from trunkline.compat.types import model_class

        if error.code != -32042:
            raise ValueError(f"the error has the code {error.code}, not -32042")
        kind = model_class("ElicitRequestURLParams")
        given = (error.data or {}).get("elicitations", ())
        return cls([kind.model_validate(each) for each in given], error.message)


class StatelessModeNotSupported(McpError):
    """A server without sessions was asked for what needs one."""


class FastMCPError(HandlerError):
    """The base of FastMCP's exceptions: the text is meant for the caller."""

    def __init__(self, *args: object, log_level: int | None = None) -> None:
        """Keep the text; a level for the log is accepted."""
        super().__init__(*args)
        self.log_level = log_level


class ValidationError(FastMCPError):
    """Something does not have the form it must have."""


class ToolError(FastMCPError, OwnToolError):
    """A tool failed in a way the model should read."""

    def __init__(self, *args: object, log_level: int | None = None, result: Any = None) -> None:
        """Keep the text."""
        FastMCPError.__init__(self, *args, log_level=log_level)
        self.result = result


class ResourceError(FastMCPError, OwnResourceError):
    """A resource cannot be read."""


class PromptError(FastMCPError, OwnPromptError):
    """A prompt cannot be rendered."""


class ResourceNotFoundError(ResourceError):
    """There is no such resource."""


class UnexpectedToolError(ToolError):
    """A tool failed in a way that it did not mean; the cause is its own exception."""


class UnexpectedResourceError(ResourceError):
    """A resource failed in a way that it did not mean; the cause is its own exception."""


class InvalidSignature(Exception):
    """A function cannot be registered."""


class ClientError(Exception):
    """A client failed."""


class NotFoundError(HandlerError):
    """There is nothing of that name."""


class DisabledError(HandlerError):
    """What was asked for is switched off."""


class AuthorizationError(FastMCPError):
    """The caller may not do that."""


class InsufficientScopeError(AuthorizationError):
    """The caller's token lacks scopes."""

    def __init__(self, required_scopes: Any, *, message: str | None = None) -> None:
        """Keep the scopes."""
        self.required_scopes = list(required_scopes)
        super().__init__(message or f"Insufficient scope: {' '.join(self.required_scopes)}")


class MCPDeprecationWarning(DeprecationWarning):
    """A part of the protocol is on its way out."""
