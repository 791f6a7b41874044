"""Collecting the pages of a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.support import run_async
from trunkline.client.request_handlers import all_pages
from trunkline.errors import RemoteProtocolError
from trunkline.types import ListPromptsResult, Prompt


def endless(step: int) -> Callable[[str | None], Awaitable[ListPromptsResult]]:
    async def fetch(cursor: str | None) -> ListPromptsResult:
        number = int(cursor or 0)
        return ListPromptsResult(prompts=[Prompt(name=str(number))], next_cursor=str(number + step))

    return fetch


def test_more_pages_than_the_limit_are_an_error_that_names_it() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 4 pages"):
        run_async(all_pages(endless(1), "prompts", limit=4))


def test_a_repeated_cursor_is_found_at_once() -> None:
    with pytest.raises(RemoteProtocolError, match="repeated the cursor '0'"):
        run_async(all_pages(endless(0), "prompts", limit=1000))
