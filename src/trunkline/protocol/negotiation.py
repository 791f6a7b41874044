"""How a client finds out which revision to speak: the era probe and the handshake, as one generator.

``negotiate`` yields what to send and is sent what came of it; it knows no connection and no clock. The rule is the
specification's: a server that answers ``server/discover``, or refuses it with an error only stateless servers know, is
stateless; anything else, silence included, is not, and gets ``initialize``. Which error code it was never matters.
Over HTTP an answer may be no message at all; such a failure comes in as the exception it is, and counts as "anything
else" unless it says more about the network than about the server.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import HttpError, RemoteProtocolError, RequestFailed, RevisionMismatch
from trunkline.protocol.codes import HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION
from trunkline.protocol.revisions import (
    ALL_NAMES,
    HANDSHAKE_NAMES,
    NEWEST,
    NEWEST_HANDSHAKE,
    REVISIONS,
    Revision,
    find,
)
from trunkline.types import META_SERVER_INFO, DiscoverResult, Implementation, InitializeResult

__all__ = [
    "FAILURES",
    "Agreement",
    "Announce",
    "Handshake",
    "Negotiation",
    "Outcome",
    "Probe",
    "Step",
    "late_revision",
    "negotiate",
]


class Probe(Struct, frozen=True):
    """Send ``server/discover`` in a revision; ``seconds`` bounds the wait, None leaves it to the connect clock."""

    revision: Revision
    seconds: float | None


class Handshake(Struct, frozen=True):
    """Send ``initialize`` and ask for a revision."""

    revision: Revision


class Announce(Struct, frozen=True):
    """Send ``notifications/initialized``; from now on the revision holds."""

    revision: Revision


class Agreement(Struct, frozen=True, kw_only=True):
    """What both sides will speak, and what the server said of itself."""

    revision: Revision
    server_info: Implementation | None
    capabilities: dict[str, Any]
    instructions: str | None
    #: The revisions the server said it speaks; of a handshake server only the one agreed on is known.
    supported: tuple[str, ...]


Step: TypeAlias = Probe | Handshake | Announce
#: The result, the error they answered with (as a message or otherwise), or None: no answer within the seconds of a
#: probe, or none was due.
Outcome: TypeAlias = Raw | RequestFailed | HttpError | RemoteProtocolError | None
#: The exceptions that are outcomes: a negotiation decides what they mean.
FAILURES = (RequestFailed, HttpError, RemoteProtocolError)
Negotiation: TypeAlias = Generator[Step, Outcome, Agreement]

# Who asks, how often, and whether the server is there: such statuses say nothing of what it speaks.
_SAYS_NOTHING = frozenset({401, 403, 407, 408, 421, 425, 429})
_MODERN_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_discover_decoder = msgspec.json.Decoder(DiscoverResult)
_initialize_decoder = msgspec.json.Decoder(InitializeResult)


def negotiate(
    pinned: Revision | None = None, *, remembered: Revision | None, probe_seconds: float | None
) -> Negotiation:
    """Agree with a server on a revision: on the pinned one alone, or on the newest that both speak.

    ``remembered`` is what the same server agreed to before: it saves a handshake server the probe, and a stateless one
    the short wait, since it is known to answer.

    Raises:
        RevisionMismatch: there is no revision that both speak, or the server does not speak the pinned one.
        RequestFailed, HttpError: the server refused to talk at all.
        RemoteProtocolError: what it answered makes no sense.
    """
    if pinned is not None and not pinned.handshake:
        return (yield from _discover(pinned))
    try:
        if pinned is not None:
            return (yield from _shake_hands(pinned, (pinned.name,)))
        if remembered is not None and remembered.handshake:
            try:
                return (yield from _shake_hands(remembered))
            except (RequestFailed, HttpError) as failure:
                if not _tells(failure):
                    raise
                # It may have been replaced by one that knows no handshake; the specification: re-probe.
                remembered = None
        return (yield from _probe(None if remembered is not None else probe_seconds))
    except RequestFailed as failure:
        theirs = _named(failure)
        if theirs is None:
            raise
        raise _mismatch(ALL_NAMES if pinned is None else (pinned.name,), theirs) from failure


def late_revision(answer: Raw | RequestFailed) -> Revision | None:
    """Return the stateless revision that an answer to ``server/discover`` allows; None if it allows none.

    For an answer that came after the wait for it was over: the connection has gone on with the handshake, and the
    next one can do better.
    """
    try:
        theirs = _supported(answer)
    except RequestFailed:
        # Stateless, and it refuses to say more; the next probe will wait for the same refusal.
        return NEWEST
    mutual = [revision for revision in REVISIONS if revision.name in (theirs or ()) and not revision.handshake]
    return mutual[-1] if mutual else None


def _probe(seconds: float | None) -> Negotiation:
    outcome = yield Probe(NEWEST, seconds)
    theirs = _supported(outcome)
    if theirs is None:
        try:
            return (yield from _shake_hands(NEWEST_HANDSHAKE))
        except RequestFailed:
            if outcome is not None or seconds is None:
                raise
            # It may only have been slow to start: it is up now, so whether it can answer a probe will show.
            outcome = yield Probe(NEWEST, None)
            theirs = _supported(outcome)
            if theirs is None:
                raise
    best = _newest_of(theirs)
    if isinstance(outcome, Raw) and not best.handshake:
        return _agreement(best, outcome)
    if best.handshake:
        return (yield from _shake_hands(best))
    return (yield from _discover(best))


def _discover(revision: Revision) -> Negotiation:
    """Insist on one stateless revision."""
    outcome = yield Probe(revision, None)
    if isinstance(outcome, HttpError) or (isinstance(outcome, RequestFailed) and outcome.status in (401, 403)):
        # One that does not let us in has said nothing of what it speaks.
        raise outcome
    theirs = _supported(outcome)
    if theirs is None:
        failure = outcome if isinstance(outcome, Exception) else None
        raise RevisionMismatch(
            f"The server does not speak {revision.name}, the revision this client was told to speak: "
            f"it answered server/discover with {failure or 'something else than what it supports'}.",
            ours=(revision.name,),
            theirs=(),
        ) from failure
    if revision.name not in theirs or not isinstance(outcome, Raw):
        raise _mismatch((revision.name,), theirs)
    return _agreement(revision, outcome)


def _shake_hands(revision: Revision, ours: tuple[str, ...] = HANDSHAKE_NAMES) -> Negotiation:
    outcome = yield Handshake(revision)
    if isinstance(outcome, Exception):
        raise outcome
    try:
        result = _initialize_decoder.decode(outcome or b"")
    except _BROKEN as error:
        raise RemoteProtocolError(f"The answer to initialize is none: {error}") from error
    agreed = find(result.protocol_version)
    if agreed is None or agreed.name not in ours:
        # The specification: a client that cannot speak the answered version disconnects. Nothing else is sent.
        raise _mismatch(ours, (result.protocol_version,))
    yield Announce(agreed)
    return Agreement(
        revision=agreed,
        server_info=result.server_info,
        capabilities=result.capabilities,
        instructions=result.instructions,
        supported=(agreed.name,),
    )


def _supported(outcome: Outcome) -> tuple[str, ...] | None:
    """Give the revisions a stateless server says it speaks; None if what came shows no such server.

    Raises:
        RequestFailed: the server is stateless and refuses even to say what it speaks.
        HttpError: it cannot be told what the server is.
    """
    if outcome is None or isinstance(outcome, RemoteProtocolError):
        return None
    if isinstance(outcome, HttpError):
        if not _tells(outcome):
            raise outcome
        return None
    if isinstance(outcome, RequestFailed):
        named = _named(outcome)
        if named is None and outcome.code in _MODERN_ERRORS - {UNSUPPORTED_PROTOCOL_VERSION}:
            raise outcome
        return named
    try:
        return tuple(_discover_decoder.decode(outcome).supported_versions)
    except _BROKEN:
        return None


def _tells(failure: RequestFailed | HttpError) -> bool:
    """Tell whether a failure says something of what the server speaks."""
    if isinstance(failure, RequestFailed):
        return True
    return 400 <= failure.status < 500 and failure.status not in _SAYS_NOTHING


def _named(failure: RequestFailed) -> tuple[str, ...] | None:
    """Read the list that comes with an error about an unsupported version."""
    supported = failure.data.get("supported") if isinstance(failure.data, dict) else None
    if failure.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(supported, list):
        return None
    return tuple(name for name in supported if isinstance(name, str))


def _newest_of(theirs: Sequence[str]) -> Revision:
    mutual = [revision for revision in REVISIONS if revision.name in theirs]
    if not mutual:
        raise _mismatch(ALL_NAMES, tuple(theirs))
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
    """Read who the server says it is; it is only for show, so nonsense there is the same as nothing."""
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
