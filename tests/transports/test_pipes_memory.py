"""Memory while large messages are exchanged."""

from __future__ import annotations

import asyncio
import platform

import pytest

from trunkline.transports import pipes
from trunkline.transports.pipes import MemoryTuner, keep_freed_memory, trim_memory

GLIBC = platform.libc_ver()[0] == "glibc"


def test_freed_memory_is_kept_where_the_c_library_supports_it() -> None:
    assert keep_freed_memory() is GLIBC


async def test_memory_is_returned_after_a_while_without_large_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    monkeypatch.setattr(pipes, "_QUIET_SECONDS", 0.01)
    monkeypatch.setattr(pipes, "keep_freed_memory", lambda: True)
    quiet = asyncio.Event()

    def trim() -> None:
        given.append(True)
        quiet.set()

    monkeypatch.setattr(pipes, "trim_memory", trim)
    messages = MemoryTuner()
    messages.large_message_seen(asyncio.get_running_loop())
    messages.large_message_seen(asyncio.get_running_loop())
    await quiet.wait()
    assert given == [True]


async def test_a_c_library_without_mallopt_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "keep_freed_memory", lambda: False)
    messages = MemoryTuner()
    messages.large_message_seen(asyncio.get_running_loop())
    assert messages._scheduled is False


@pytest.mark.skipif(not GLIBC, reason="glibc alone has malloc_trim")
def test_trimming_memory_is_harmless() -> None:
    trim_memory()
