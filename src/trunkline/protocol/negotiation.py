"""How a client finds out which revision to speak: the era probe and the handshake, as one generator.

``negotiate`` yields what to send and receives the outcome; it knows no connection and no clock. The rule is the
specification's: a server that answers ``server/discover``, or rejects it with an error that only stateless servers
know, is stateless; anything else, silence included, is not, and gets ``initialize``. The particular error code never
matters. Over HTTP the response may not be a message at all; such a failure comes in as its exception, and counts as
"anything else" unless it says more about the network than about the server.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import HttpError, RemoteProtocolError, RequestFailed, RevisionMismatch
from trunkline.protocol.error_codes import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trunkline.protocol.revisions import (
    HANDSHAKE_NAMES,
    NEWEST,
    NEWEST_HANDSHAKE,
    REVISION_NAMES,
    REVISIONS,
    Revision,
    find_revision,
)
from trunkline.types import META_SERVER_INFO, DiscoverResult, Implementation, InitializeResult

__all__ = [
    "NEGOTIATION_FAILURES",
    "Agreement",
    "Negotiation",
    "NegotiationOutcome",
    "NegotiationStep",
    "SendDiscover",
    "SendInitialize",
    "SendInitialized",
    "negotiate",
    "revision_of_late_answer",
]


class SendDiscover(Struct, frozen=True):
    """Send ``server/discover`` in a revision; ``seconds`` limits the wait, None leaves it to the connect timeout."""

    revision: Revision
    seconds: float | None


class SendInitialize(Struct, frozen=True):
    """Send ``initialize`` and request a revision."""

    revision: Revision


class SendInitialized(Struct, frozen=True):
    """Send ``notifications/initialized``; the revision applies from now on."""

    revision: Revision


class Agreement(Struct, frozen=True, kw_only=True):
    """The negotiated revision, and what the server declared about itself."""

    revision: Revision
    server_info: Implementation | None
    capabilities: dict[str, Any]
    instructions: str | None
    #: The revisions that the server says it speaks; for a handshake server only the negotiated one is known.
    supported: tuple[str, ...]


NegotiationStep: TypeAlias = SendDiscover | SendInitialize | SendInitialized
#: The result, the error (as a message or otherwise), or None: no answer to a probe in time, or none was due.
NegotiationOutcome: TypeAlias = Raw | RequestFailed | HttpError | RemoteProtocolError | None
#: The exceptions that are outcomes: the negotiation decides what they mean.
NEGOTIATION_FAILURES = (RequestFailed, HttpError, RemoteProtocolError)
Negotiation: TypeAlias = Generator[NegotiationStep, NegotiationOutcome, Agreement]

# Authentication, rate limits and availability: such statuses say nothing about what the server speaks.
_INCONCLUSIVE_STATUSES = frozenset({401, 403, 407, 408, 421, 425, 429})
_STATELESS_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_discover_decoder = msgspec.json.Decoder(DiscoverResult)
_initialize_decoder = msgspec.json.Decoder(InitializeResult)


def negotiate(
    pinned: Revision | None = None, *, remembered: Revision | None, probe_seconds: float | None
) -> Negotiation:
    """Negotiate a revision with a server: the pinned one alone, or the newest that both speak.

    ``remembered`` is what the same server agreed to before: it saves a handshake server the probe, and a stateless one
    the short timeout, since it is known to answer.

    Raises:
        RevisionMismatch: there is no revision that both speak, or the server does not speak the pinned one.
        RequestFailed, HttpError: the server rejected every request.
        RemoteProtocolError: its answer is invalid.
    """
    if pinned is not None and not pinned.handshake:
        return (yield from _discover(pinned))
    try:
        if pinned is not None:
            return (yield from _initialize(pinned, (pinned.name,)))
        if remembered is not None and remembered.handshake:
            try:
                return (yield from _initialize(remembered))
            except (RequestFailed, HttpError) as failure:
                if not _is_conclusive(failure):
                    raise
                # It may have been replaced by a server without the handshake; the specification says to probe again.
                remembered = None
        return (yield from _probe(None if remembered is not None else probe_seconds))
    except RequestFailed as failure:
        theirs = _versions_in_error(failure)
        if theirs is None:
            raise
        raise _mismatch(REVISION_NAMES if pinned is None else (pinned.name,), theirs) from failure


def revision_of_late_answer(answer: Raw | RequestFailed) -> Revision | None:
    """Return the stateless revision that an answer to ``server/discover`` allows; None if it allows none.

    For an answer that arrived after its timeout: the connection has gone on with the handshake, and the next one can do
    better.
    """
    try:
        theirs = _supported_versions(answer)
    except RequestFailed:
        # Stateless, but it does not say more; the next probe will wait for the same error.
        return NEWEST
    mutual = [revision for revision in REVISIONS if revision.name in (theirs or ()) and not revision.handshake]
    return mutual[-1] if mutual else None


def _probe(seconds: float | None) -> Negotiation:
    outcome = yield SendDiscover(NEWEST, seconds)
    theirs = _supported_versions(outcome)
    if theirs is None:
        try:
            return (yield from _initialize(NEWEST_HANDSHAKE))
        except RequestFailed:
            if outcome is not None or seconds is None:
                raise
            # It may only have been slow to start: it is up now, so a second probe will show whether it can answer one.
            outcome = yield SendDiscover(NEWEST, None)
            theirs = _supported_versions(outcome)
            if theirs is None:
                raise
    best = _newest_of(theirs)
    if isinstance(outcome, Raw) and not best.handshake:
        return _agreement(best, outcome)
    if best.handshake:
        return (yield from _initialize(best))
    return (yield from _discover(best))


def _discover(revision: Revision) -> Negotiation:
    """Insist on one stateless revision."""
    outcome = yield SendDiscover(revision, None)
    if isinstance(outcome, HttpError) or (
        isinstance(outcome, RequestFailed) and (outcome.status in (401, 403) or outcome.code == INTERNAL_ERROR)
    ):
        # A server that denies access, or fails (its lifespan, say), has said nothing about what it speaks.
        raise outcome
    theirs = _supported_versions(outcome)
    if theirs is None:
        failure = outcome if isinstance(outcome, Exception) else None
        raise RevisionMismatch(
            f"The server does not speak {revision.name}, the revision that this client was told to use: "
            f"it answered server/discover with {failure or 'an invalid result'}.",
            ours=(revision.name,),
            theirs=(),
        ) from failure
    if revision.name not in theirs or not isinstance(outcome, Raw):
        raise _mismatch((revision.name,), theirs)
    return _agreement(revision, outcome)


def _initialize(revision: Revision, ours: tuple[str, ...] = HANDSHAKE_NAMES) -> Negotiation:
    outcome = yield SendInitialize(revision)
    if isinstance(outcome, Exception):
        raise outcome
    try:
        result = _initialize_decoder.decode(outcome or b"")
    except _UNREADABLE as error:
        raise RemoteProtocolError(f"The result of initialize is invalid: {error}") from error
    agreed = find_revision(result.protocol_version)
    if agreed is None or agreed.name not in ours:
        # The specification: a client that cannot speak the answered version disconnects. Nothing else is sent.
        raise _mismatch(ours, (result.protocol_version,))
    yield SendInitialized(agreed)
    return Agreement(
        revision=agreed,
        server_info=result.server_info,
        capabilities=result.capabilities,
        instructions=result.instructions,
        supported=(agreed.name,),
    )


def _supported_versions(outcome: NegotiationOutcome) -> tuple[str, ...] | None:
    """Return the revisions that a stateless server says it speaks; None if the outcome shows no such server.

    Raises:
        RequestFailed: the server is stateless but does not even say what it speaks.
        HttpError: the response says nothing about the server.
    """
    if outcome is None or isinstance(outcome, RemoteProtocolError):
        return None
    if isinstance(outcome, HttpError):
        if not _is_conclusive(outcome):
            raise outcome
        return None
    if isinstance(outcome, RequestFailed):
        named = _versions_in_error(outcome)
        if named is None and outcome.code in _STATELESS_ERRORS - {UNSUPPORTED_PROTOCOL_VERSION}:
            raise outcome
        return named
    try:
        return tuple(_discover_decoder.decode(outcome).supported_versions)
    except _UNREADABLE:
        return None


def _is_conclusive(failure: RequestFailed | HttpError) -> bool:
    """Return True if a failure says something about what the server speaks."""
    if isinstance(failure, RequestFailed):
        return True
    return 400 <= failure.status < 500 and failure.status not in _INCONCLUSIVE_STATUSES


def _versions_in_error(failure: RequestFailed) -> tuple[str, ...] | None:
    """Return the list in an error about an unsupported version."""
    supported = failure.data.get("supported") if isinstance(failure.data, dict) else None
    if failure.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(supported, list):
        return None
    return tuple(name for name in supported if isinstance(name, str))


def _newest_of(theirs: Sequence[str]) -> Revision:
    mutual = [revision for revision in REVISIONS if revision.name in theirs]
    if not mutual:
        raise _mismatch(REVISION_NAMES, tuple(theirs))
    return mutual[-1]


def _agreement(revision: Revision, raw: Raw) -> Agreement:
    result = _discover_decoder.decode(raw)
    return Agreement(
        revision=revision,
        server_info=_server_info(result),
        capabilities=result.capabilities,
        instructions=result.instructions,
        supported=tuple(result.supported_versions),
    )


def _server_info(result: DiscoverResult) -> Implementation | None:
    """Return the server's name and version; they are only for display, so invalid data counts as none."""
    try:
        return msgspec.convert((result.meta or {}).get(META_SERVER_INFO), Implementation)
    except msgspec.ValidationError:
        return None


def _mismatch(ours: tuple[str, ...], theirs: tuple[str, ...]) -> RevisionMismatch:
    return RevisionMismatch(
        f"No protocol revision in common: this client speaks {', '.join(ours)}; "
        f"the server speaks {', '.join(theirs) or 'none that it names'}.",
        ours=ours,
        theirs=theirs,
    )
