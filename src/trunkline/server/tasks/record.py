"""The record of a task, and the changes that it can undergo.

A record holds everything that another process needs to answer for the task or to run it again: the call, its caller,
its state, the questions it waits for, and its journal. Records are frozen; a change is a function that
returns the next one, so that it can be applied to whatever is stored by then. This module has no clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Raw, Struct, field
from msgspec.structs import replace

import trunkline.types as t
from trunkline.protocol.caller import Caller, Origin, Principal, Session, owner_name
from trunkline.protocol.channel import Question
from trunkline.protocol.revisions import NEWEST, Feature, find_revision
from trunkline.protocol.tasks import FINISHED
from trunkline.server.journal import Journal

__all__ = [
    "CallerFacts",
    "Change",
    "TaskRecord",
    "add_question",
    "answer_questions",
    "finish",
    "keep_once",
    "owner_of",
    "start_again",
    "withdraw_question",
]


#: The journal of a task that never asked anything.
NO_JOURNAL = Journal()


class CallerFacts(Struct, frozen=True):
    """The stored facts about the caller of a task, so that the task can run without its connection."""

    revision: str
    capabilities: dict[str, Any]
    client_info: t.Implementation | None = None
    principal: Principal | None = None
    log_level: t.LoggingLevel | None = None
    transport: str = "stdio"
    address: str | None = None

    @classmethod
    def of(cls, caller: Caller) -> CallerFacts:
        """Return the facts of a caller."""
        principal = caller.principal
        return cls(
            caller.revision.name,
            dict(caller.capabilities),
            caller.client_info,
            # Claims can be large and sensitive, and handlers of tasks do not need them.
            None if principal is None else replace(principal, claims=None),
            caller.log_level,
            caller.origin.transport,
            caller.origin.address,
        )

    @property
    def owner(self) -> str:
        """The name under which limits count the caller."""
        return owner_name(self.principal, self.address)

    @property
    def revision_has_core_tasks(self) -> bool:
        """Whether the revision has tasks in its core rather than as an extension."""
        return _has_core_tasks(self.revision)

    def caller(self) -> Caller:
        """Return a caller with these facts; a handshake caller gets a new session."""
        revision = find_revision(self.revision) or NEWEST
        origin = Origin(self.transport, self.principal, None, self.address)
        if not revision.handshake:
            return Caller(revision, self.client_info, self.capabilities, origin, None, self.log_level)
        session = Session(revision, self.client_info, self.capabilities, origin=origin)
        session.initialized = True
        session.log_level = self.log_level
        return session.caller


@lru_cache(maxsize=16)
def _has_core_tasks(revision: str) -> bool:
    return Feature.CORE_TASKS in (find_revision(revision) or NEWEST).features


class TaskRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot of a task; times are wall time in seconds."""

    id: str
    #: The identity of the principal that owns it; None for an anonymous caller.
    owner: str | None
    tool: str
    caller: CallerFacts
    created: float
    updated: float
    #: Seconds that it is kept after it has finished; None for ever.
    ttl: float | None
    #: The advised poll interval in seconds, and whether that of a young task is shorter.
    poll: float
    poll_grows: bool = True
    #: The number of times it may run again if its process dies.
    retry: int = 0
    #: The raw params of the request.
    params: Raw = Raw(b"{}")
    status: t.TaskStatus = "working"
    message: str | None = None
    result: t.OptionalRaw = None
    #: Whether the result has ``isError``; stored here so that the result need not be decoded for that.
    is_error: bool = False
    error: t.ErrorObject | None = None
    #: The open questions by key, as clients fetch them; the journal has their digests.
    requests: dict[str, t.InputRequest] = field(default_factory=dict)
    journal: Journal = NO_JOURNAL
    #: The keys of withdrawn questions.
    withdrawn: list[str] = field(default_factory=list)
    #: The number of times it was started, and the runner that runs it.
    attempts: int = 1
    runner: str = ""

    @property
    def finished(self) -> bool:
        """Whether it is in a final state."""
        return self.status in FINISHED

    @property
    def expires(self) -> float | None:
        """When it may be deleted; None while it is unfinished or if it is kept for ever."""
        return self.updated + self.ttl if self.ttl is not None and self.status in FINISHED else None

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        result = 0 if self.result is None else memoryview(self.result).nbytes
        journal = 0 if self.journal is NO_JOURNAL else self.journal.size
        return memoryview(self.params).nbytes + result + journal

    @property
    def used_keys(self) -> set[str]:
        """The keys of all questions asked so far.

        The specification: a key is unique over the lifetime of a task.
        """
        return {*self.requests, *self.journal.answers, *self.withdrawn}


#: Returns the changed record; returning the same one changes nothing.
Change: TypeAlias = Callable[[TaskRecord], TaskRecord]


def owner_of(principal: Principal | None) -> str | None:
    """Return the owner of the tasks of a principal."""
    return None if principal is None else "\0".join(part or "" for part in principal.identity)


def finish(
    record: TaskRecord,
    status: t.TaskStatus,
    now: float,
    *,
    result: Raw | None = None,
    is_error: bool = False,
    error: t.ErrorObject | None = None,
    message: str | None = None,
) -> TaskRecord:
    """Return a record in a final state; one that is final already is not changed."""
    if record.finished:
        return record
    return replace(
        record,
        status=status,
        updated=now,
        result=result,
        is_error=is_error,
        error=error,
        message=message or record.message,
        **_without_questions(record),
    )


def _without_questions(record: TaskRecord) -> dict[str, Any]:
    """Return the members of a record whose open questions are withdrawn."""
    if not record.requests:
        return {}
    journal = record.journal.withdraw(record.requests)
    return {"requests": {}, "journal": journal, "withdrawn": [*record.withdrawn, *record.requests]}


def add_question(record: TaskRecord, key: str, question: Question, now: float) -> TaskRecord:
    """Return a record with one more open question; one that was asked before is not asked again."""
    if record.finished or key in record.journal.answers or key in record.withdrawn:
        return record
    return replace(
        record,
        status="input_required",
        updated=now,
        requests={**record.requests, key: question.request},
        journal=record.journal.ask(key, question.digest),
    )


def answer_questions(record: TaskRecord, answers: dict[str, Raw], now: float) -> TaskRecord:
    """Return a record with the answers to its open questions; others are ignored, as the specification recommends."""
    journal = record.journal.answer(answers)
    return record if record.finished or journal is record.journal else _with_open(record, journal, now)


def withdraw_question(record: TaskRecord, key: str, now: float) -> TaskRecord:
    """Return a record without an open question, when its handler no longer waits for the answer."""
    if record.finished or key not in record.requests:
        return record
    after = _with_open(record, record.journal.withdraw([key]), now)
    return replace(after, withdrawn=[*record.withdrawn, key])


def _with_open(record: TaskRecord, journal: Journal, now: float) -> TaskRecord:
    """Return a record with only those open questions that its new journal has."""
    requests = {key: request for key, request in record.requests.items() if key in journal.asked}
    status: t.TaskStatus = "input_required" if requests else "working"
    return replace(record, status=status, updated=now, requests=requests, journal=journal)


def keep_once(record: TaskRecord, key: str, result: Raw) -> TaskRecord:
    """Return a record with the result of a ``once`` call, as JSON."""
    return record if record.finished else replace(record, journal=record.journal.keep_once(key, result))


def start_again(record: TaskRecord, runner: str, now: float) -> TaskRecord:
    """Return the record of a task whose process has ended: taken over, or failed if it may not run again."""
    if record.finished:
        return record
    if record.attempts <= record.retry:
        # Unanswered questions are asked again under new keys.
        return replace(
            record,
            status="working",
            updated=now,
            **_without_questions(record),
            attempts=record.attempts + 1,
            runner=runner,
        )
    reason = "The server stopped while the task was running, and the tool does not declare that it may run again."
    return finish(record, "failed", now, error=t.ErrorObject(code=-32603, message=reason), message=reason)
