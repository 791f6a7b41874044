"""Memory while large messages pass."""

from __future__ import annotations

import asyncio
import platform

import pytest

from tests.support import run_async
from trunkline.transports import large
from trunkline.transports.large import LargeMessages, give_back, keep_freed_memory

GLIBC = platform.libc_ver()[0] == "glibc"


def test_freed_memory_is_kept_where_the_c_library_can() -> None:
    assert keep_freed_memory() is GLIBC


def test_memory_is_given_back_once_no_large_message_has_come_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    monkeypatch.setattr(large, "_QUIET_SECONDS", 0.01)
    monkeypatch.setattr(large, "keep_freed_memory", lambda: True)

    async def main() -> None:
        quiet = asyncio.Event()

        def trim() -> None:
            given.append(True)
            quiet.set()

        monkeypatch.setattr(large, "give_back", trim)
        messages = LargeMessages()
        messages.came(asyncio.get_running_loop())
        messages.came(asyncio.get_running_loop())
        await quiet.wait()

    run_async(main())
    assert given == [True]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "keep_freed_memory", lambda: False)

    async def main() -> bool:
        messages = LargeMessages()
        messages.came(asyncio.get_running_loop())
        return messages._looking

    assert run_async(main()) is False


@pytest.mark.skipif(not GLIBC, reason="glibc alone has malloc_trim")
def test_giving_back_is_harmless() -> None:
    give_back()
