"""The errors that a client of the gateway gets when a request to a server fails, without internals of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trunkline.errors import (
    InvalidParams,
    LinkError,
    MissingCapability,
    PolicyDenied,
    RemoteProtocolError,
    RequestFailed,
    ResourceNotFound,
    UrlElicitationRequired,
)
from trunkline.host.audit.trail import AuditFailed
from trunkline.host.passing.labels import label_pages
from trunkline.protocol.caller import Caller
from trunkline.protocol.revisions import Feature

__all__ = ["answered", "is_not_found", "not_found"]


@contextmanager
def answered(server: str) -> Iterator[None]:
    """Turn every failure of a request to a server into the error for the client.

    Raises:
        RequestFailed: the failure, for the client.
    """
    try:
        yield
    except RequestFailed as error:
        # A new error: the transport's details (a challenge, a status) are not for the client.
        raise type(error)(error.message, code=error.code, data=_outer_data(error, server)) from error
    except PolicyDenied as error:
        raise RequestFailed(error.told) from error
    except AuditFailed as error:
        raise RequestFailed("The gateway cannot write its audit trail, so the request was not carried out") from error
    except (LinkError, RemoteProtocolError, MissingCapability) as error:
        raise RequestFailed(f"Server {server!r}: {_reason(error)}") from error


def is_not_found(error: RequestFailed, uri: str) -> bool:
    """Return True if an error means, in either era, that the server has no such resource."""
    said = error.data.get("uri") if isinstance(error.data, dict) else None
    return isinstance(error, ResourceNotFound) or (isinstance(error, InvalidParams) and said == uri)


def not_found(caller: Caller, outer: str) -> RequestFailed:
    """Return the error for an unknown resource; it is the same for one that the caller may not see."""
    kind = InvalidParams if Feature.NOT_FOUND_IS_INVALID_PARAMS in caller.revision.features else ResourceNotFound
    return kind(f"Resource not found: {outer}", data={"uri": outer})


def _outer_data(error: RequestFailed, server: str) -> Any:
    return label_pages(error.data, server) if isinstance(error, UrlElicitationRequired) else error.data


def _reason(error: Exception) -> str:
    """Return the first line of an error: what follows is the server's own stderr."""
    text = str(error).partition("\n")[0]
    return text[:300] or type(error).__name__
