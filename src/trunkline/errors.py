"""Every exception that Trunkline raises, in one tree; this module imports nothing else of the package.

::

    TrunklineError
    ├── LocalProtocolError      our side broke the protocol: a bug here or in the calling code
    ├── RemoteProtocolError     the other side broke it
    │   └── RevisionMismatch    the two sides have no protocol revision in common
    ├── RequestFailed           the other side answered with an error (code, message, data)
    │   ├── ParseFailed                   -32700
    │   ├── InvalidRequest                -32600
    │   ├── MethodNotFound                -32601
    │   ├── InvalidParams                 -32602
    │   ├── InternalError                 -32603
    │   ├── ResourceNotFound              -32002  (handshake revisions; -32602 since)
    │   ├── UrlElicitationRequired        -32042  (2025-11 only)
    │   ├── HeaderMismatch                -32020
    │   ├── MissingClientCapability       -32021
    │   ├── UnsupportedProtocolVersion    -32022
    │   ├── InsufficientScope             403     (with a challenge, over HTTP)
    │   ├── TooManyRequests               429     (names the limit, and when to retry)
    │   └── StoreUnavailable              503     (the store cannot be reached; retry later)
    ├── MissingCapability       the other side did not declare what this call needs; nothing was sent
    ├── LinkError               messages can no longer be carried, or not in time
    │   ├── ConnectionLost
    │   │   ├── ServerExited    the server process ended; has its exit status and last stderr lines
    │   │   └── SessionExpired  the server no longer knows the HTTP session; the request was not executed
    │   ├── HttpError           the server answered with an HTTP status instead of a message
    │   │   └── AuthRequired    401, or 403 with a challenge; also an AuthError
    │   ├── FetchError          an untrusted URL was refused or could not be fetched
    │   ├── ServerUnavailable   the host is not running this server; says why and what to do
    │   └── RequestTimeout      says which timeout fired
    ├── HandlerError            raised by a handler on purpose: its text is meant for the caller
    │   ├── ToolError           becomes a result with ``isError``; on the client, such a result
    │   ├── ResourceError
    │   ├── PromptError
    │   ├── InvalidHandle       the handle is wrong, expired, or not the caller's
    │   ├── HandleConflict      another call changed the value meanwhile; nothing was saved
    │   └── HandleStoreFull     names the limit that was reached
    ├── AuthError
    ├── PolicyDenied
    ├── VerificationError       content does not match its manifest; it was not used
    └── ConfigError             names the file, the key and the fix

Only ``RequestFailed`` has a JSON-RPC code: it crossed the wire, or is raised by a handler to cross it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar

__all__ = [
    "AuthError",
    "AuthRequired",
    "ConfigError",
    "ConnectionLost",
    "FetchError",
    "HandleConflict",
    "HandleStoreFull",
    "HandlerError",
    "HeaderMismatch",
    "HttpError",
    "InsufficientScope",
    "InternalError",
    "InvalidHandle",
    "InvalidParams",
    "InvalidRequest",
    "LinkError",
    "LocalProtocolError",
    "MethodNotFound",
    "MissingCapability",
    "MissingClientCapability",
    "ParseFailed",
    "PolicyDenied",
    "PromptError",
    "RemoteProtocolError",
    "RequestFailed",
    "RequestTimeout",
    "ResourceError",
    "ResourceNotFound",
    "RevisionMismatch",
    "ServerExited",
    "ServerUnavailable",
    "SessionExpired",
    "StoreUnavailable",
    "TooManyRequests",
    "ToolError",
    "TrunklineError",
    "UnsupportedProtocolVersion",
    "UrlElicitationRequired",
    "VerificationError",
    "request_failed",
    "resource_errors",
]


class TrunklineError(Exception):
    """The base class of every exception that Trunkline raises."""


class LocalProtocolError(TrunklineError):
    """Our side attempted something that the protocol forbids; fix the calling code."""


class RemoteProtocolError(TrunklineError):
    """The other side broke the protocol; report it to its authors."""


class RevisionMismatch(RemoteProtocolError):
    """The two sides have no protocol revision in common; update the older one."""

    def __init__(self, message: str, *, ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
        """Store the revisions that each side speaks."""
        super().__init__(message)
        self.ours = ours
        self.theirs = theirs


class RequestFailed(TrunklineError):
    """The other side answered a request with an error; a handler raises one to answer with it."""

    default_code: ClassVar[int] = -32603
    #: The HTTP status of the response, if it was an error status, and its ``WWW-Authenticate`` header.
    status: int | None = None
    challenge: str | None = None

    def __init__(self, message: str, *, code: int | None = None, data: Any = None) -> None:
        """Use the code of the class unless another one is given."""
        super().__init__(message)
        self.message = message
        self.code: int = self.default_code if code is None else code
        self.data = data

    @property
    def public_message(self) -> str:
        """The message for a caller that this error is sent to."""
        return self.message

    def __str__(self) -> str:
        """Return the message and the code; for a missing or rejected token, also what to do."""
        advice = "; set auth= (--token) to a valid token, or headers= (--header) to what the server requires"
        return f"{self.message} ({self.code}){advice if self.status == 401 else ''}"


class ParseFailed(RequestFailed):
    """The other side could not parse our bytes as JSON."""

    default_code = -32700


class InvalidRequest(RequestFailed):
    """The message is JSON but not an acceptable request."""

    default_code = -32600


class MethodNotFound(RequestFailed):
    """The other side does not have the method in this revision."""

    default_code = -32601


class InvalidParams(RequestFailed):
    """The method exists but rejects these params: an unknown name, a wrong type, a stale cursor."""

    default_code = -32602


class InternalError(RequestFailed):
    """The other side failed while serving the request; its log says why."""

    default_code = -32603


class ResourceNotFound(RequestFailed):
    """No resource has this URI; raised in every revision, whichever of its two codes that has."""

    default_code = -32002


class UrlElicitationRequired(RequestFailed):
    """The user must finish something in a browser first; ``data`` has the URLs."""

    default_code = -32042


class HeaderMismatch(RequestFailed):
    """An HTTP header disagrees with the body it describes."""

    default_code = -32020


class MissingClientCapability(RequestFailed):
    """The server needs a capability this client did not declare; ``data`` names it."""

    default_code = -32021


class UnsupportedProtocolVersion(RequestFailed):
    """The server does not speak the revision of the request; ``data`` lists the ones it does."""

    default_code = -32022


class InsufficientScope(RequestFailed):
    """The token does not allow the request; ``scopes`` are the ones it needs."""

    default_code = 403

    def __init__(self, message: str, *, scopes: Iterable[str] = (), code: int | None = None, data: Any = None) -> None:
        """Store the required scopes in ``data``."""
        needed = list(scopes)
        super().__init__(message, code=code, data={"scopes": needed} if needed else data)

    @property
    def scopes(self) -> tuple[str, ...]:
        """The required scopes, as far as the other side named them."""
        said = self.data.get("scopes") if isinstance(self.data, Mapping) else None
        return tuple(each for each in said if isinstance(each, str)) if isinstance(said, list) else ()


class TooManyRequests(RequestFailed):
    """The caller has reached a limit; ``retry_after`` is the number of seconds to wait, if the other side gave one."""

    default_code = 429

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before retrying; None if the other side did not say."""
        said = self.data.get("retryAfter") if isinstance(self.data, Mapping) else None
        return said if isinstance(said, int | float) and not isinstance(said, bool) else None


class StoreUnavailable(RequestFailed):
    """The store of a server cannot be reached now; requests that do not need it are still served."""

    default_code = 503
    #: What callers read; the detail may name hosts and ports, and is for the log.
    PUBLIC: ClassVar[str] = "The store of this server cannot be reached now; try again"

    def __init__(self, message: str, *, code: int | None = None, data: Any = None) -> None:
        """Describe what failed, for the log; with a code, the error of another server that crossed the wire."""
        super().__init__(message, code=code, data=data)
        self._raised_here = code is None

    @property
    def public_message(self) -> str:
        """One sentence, unless the error crossed the wire: then it is what the other server sent."""
        return self.PUBLIC if self._raised_here else self.message


class MissingCapability(TrunklineError):
    """The other side did not declare the capability a call needs, so nothing was sent."""

    def __init__(self, message: str, *, capability: str) -> None:
        """Name the capability as a dotted path, such as ``elicitation.url``."""
        super().__init__(message)
        self.capability = capability


class LinkError(TrunklineError):
    """Messages can no longer be carried, or not in time; what was in flight may have been executed."""


class ConnectionLost(LinkError):
    """The connection ended before the answer arrived."""


class ServerExited(ConnectionLost):
    """The server process ended; its exit status and last stderr lines say why."""

    def __init__(self, message: str, *, status: int | None, stderr: str, sandbox: str = "") -> None:
        """Store the exit status (negative: the signal), the tail of stderr, and what its sandbox hides, as a text."""
        super().__init__(message)
        self.status = status
        self.stderr = stderr
        self.sandbox = sandbox


class SessionExpired(ConnectionLost):
    """The server no longer knows our HTTP session; the request was not executed and may be sent in a new one."""


class HttpError(LinkError):
    """The server, or a proxy in front of it, answered with an HTTP status instead of a protocol message."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        body: str = "",
        challenge: str | None = None,
        retry_after: str | None = None,
    ) -> None:
        """Store the status line, the beginning of the body as text, and the two headers that say what to do."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.body = body
        #: The ``WWW-Authenticate`` header.
        self.challenge = challenge
        #: The ``Retry-After`` header.
        self.retry_after = retry_after


class FetchError(LinkError):
    """An untrusted URL was refused or could not be fetched; the message names the host and the reason."""


class ServerUnavailable(LinkError):
    """The host is not running this server; the message says why, and what the user can do."""


class RequestTimeout(LinkError):
    """No answer in time; ``clock`` names the timeout that fired (connect, idle or total)."""

    def __init__(self, message: str, *, clock: str, seconds: float) -> None:
        """Store the name of the timeout that fired and its length."""
        super().__init__(message)
        self.clock = clock
        self.seconds = seconds


class HandlerError(TrunklineError):
    """Raised by a handler on purpose: its text is shown to the caller."""


class ToolError(HandlerError):
    """A tool failed in a way the model should read; on the client, a result marked ``isError``."""

    def __init__(self, message: str = "", *, result: Any = None) -> None:
        """Store the whole result if it came from a server."""
        super().__init__(message)
        self.result = result


class ResourceError(HandlerError):
    """A resource could not be read, for a reason that the caller may see."""


class PromptError(HandlerError):
    """A prompt could not be rendered, for a reason that the caller may see."""


class InvalidHandle(HandlerError):
    """A handle is invalid, has expired, or belongs to another caller; the message is the same in all cases."""


class HandleConflict(HandlerError):
    """Another call has changed the value of a handle, or is changing it; nothing was saved."""


class HandleStoreFull(HandlerError):
    """A limit for stored handles is reached; the message names the limit."""


class AuthError(TrunklineError):
    """Authorization failed; the message names the party at fault and the next step."""


class AuthRequired(HttpError, AuthError):
    """The server requires authentication, or the token does not allow the request; provide a token that does."""


class PolicyDenied(TrunklineError):
    """The policy or the user denied the action; ``public_message`` is the reason that outsiders may see."""

    def __init__(self, message: str, *, public_message: str | None = None) -> None:
        """Store the reason; without ``public_message`` the reason itself is public."""
        super().__init__(message)
        self.public_message: str = message if public_message is None else public_message


class VerificationError(TrunklineError):
    """Content does not match its manifest, or is not listed there, and was not used; refresh the manifest."""

    def __init__(self, message: str, *, uri: str) -> None:
        """Store the URI of the content."""
        super().__init__(message)
        self.uri = uri


class ConfigError(TrunklineError):
    """A setting is invalid; the message names it and the fix."""


_WITH_CODES = (
    ParseFailed,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    InternalError,
    ResourceNotFound,
    UrlElicitationRequired,
    HeaderMismatch,
    MissingClientCapability,
    UnsupportedProtocolVersion,
    InsufficientScope,
    TooManyRequests,
    StoreUnavailable,
)
_BY_CODE: Mapping[int, type[RequestFailed]] = MappingProxyType({kind.default_code: kind for kind in _WITH_CODES})


def request_failed(code: int, message: str, data: Any = None) -> RequestFailed:
    """Create the exception whose class matches an error code that crossed the wire."""
    return _BY_CODE.get(code, RequestFailed)(message, code=code, data=data)


@contextmanager
def resource_errors(uri: str) -> Iterator[None]:
    """Raise ResourceNotFound if reading a resource fails because there is none, whatever the revision calls that.

    Specification, server/resources, Error Handling: in stateless revisions the code is that of invalid params, and
    ``data`` has the URI.
    """
    try:
        yield
    except InvalidParams as error:
        if not isinstance(error.data, dict) or error.data.get("uri") != uri:
            raise
        raise ResourceNotFound(error.message, code=error.code, data=error.data) from error
