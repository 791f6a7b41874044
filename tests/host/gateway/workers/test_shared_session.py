"""The state of a session at several workers: no use of a grant counts twice, and no answer is lost."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from trunkline.errors import StoreUnavailable
from trunkline.host.authorization.approval import Approver
from trunkline.host.authorization.grants import Grant, make_grant
from trunkline.host.authorization.policy.decisions import Act, Decision
from trunkline.host.gateway.worker_gateway import SharedSession
from trunkline.host.session import HostSession
from trunkline.store.memory import MemoryContents, MemoryEngine

ACT = Act(kind="tool", server="files", name="write", pin="1", arguments={})
ASK = Decision(effect="ask", rule="test", reason="test")


def new_store() -> MemoryContents:
    """Return what the workers share."""
    return MemoryContents(now=time.time, random=os.urandom)


async def session_at_worker(contents: MemoryContents) -> tuple[HostSession, SharedSession]:
    """Return the session as a worker has it."""
    session, store = HostSession(now=time.monotonic), MemoryEngine(contents)
    await store.connect()
    session.share("key" * 20, is_session=True)
    session.shared = SharedSession(session, store)
    session.grants.count_use = session.shared.count_use
    return session, session.shared


def granted(**options: Any) -> Grant:
    """Return a grant for the act."""
    return make_grant(ACT, "session", now=time.time(), **options)


async def is_allowed(session: HostSession) -> bool:
    """Return whether a grant of the session allows the act."""
    result = await Approver(None).resolve(ACT, ASK, question=pytest.fail, session_grants=session.grants)
    return result.allowed


async def test_a_grant_for_one_use_is_used_once_by_requests_at_the_same_time() -> None:
    contents = new_store()
    (one, own), (other, elsewhere) = await session_at_worker(contents), await session_at_worker(contents)
    one.grants.add(granted(uses=1))
    await own.save()

    async def call(session: HostSession, shared: SharedSession) -> bool:
        await shared.load()
        allowed = await is_allowed(session)
        # Another request of the session begins while this one runs.
        await shared.load()
        allowed_again = await is_allowed(session)
        await shared.save()
        return allowed and not allowed_again

    used = await asyncio.gather(*(call(*each) for each in ((one, own), (other, elsewhere)) * 3))
    assert sum(used) == 1
    await elsewhere.load()
    assert [each.uses for each in other.grants.all()] == [0]


async def test_an_answer_is_kept_when_another_request_of_the_session_begins() -> None:
    contents = new_store()
    (one, own), (other, elsewhere) = await session_at_worker(contents), await session_at_worker(contents)
    one.taint.add_source("web", "fetch", trusted=False)
    await own.save()
    one.grants.add(granted())
    await own.load()
    other.grants.add(granted())
    await elsewhere.save()
    await own.save()
    await elsewhere.load()
    assert await is_allowed(one)
    assert len(one.grants.all()) == len(other.grants.all()) == 2
    assert other.taint.sources == {"web"}


async def test_a_grant_that_another_worker_revoked_is_gone() -> None:
    contents = new_store()
    (one, own), (other, elsewhere) = await session_at_worker(contents), await session_at_worker(contents)
    one.grants.add(grant := granted(uses=2))
    await own.save()
    await elsewhere.load()
    assert other.grants.revoke(grant.id)
    await elsewhere.save()
    assert not await is_allowed(one)
    assert not one.grants.all()


async def test_a_counted_grant_allows_nothing_while_its_uses_cannot_be_known() -> None:
    contents = new_store()
    one, own = await session_at_worker(contents)
    one.grants.add(granted(uses=1))
    await own.save()
    contents.set_available(False)
    with pytest.raises(StoreUnavailable):
        await is_allowed(one)
