"""Cached results."""

from __future__ import annotations

from trunkline.client.tool_cache import ResponseCache
from trunkline.types import ListToolsResult, ReadResourceResult


def page(ttl_ms: int | None = 1000) -> ListToolsResult:
    return ListToolsResult(tools=[], ttl_ms=ttl_ms)


def test_a_full_cache_forgets_the_oldest() -> None:
    cache = ResponseCache(2)
    cache.put("tools/list", "1", page(), epoch=0, now=0.0)
    cache.put("tools/list", "2", page(), epoch=0, now=0.0)
    cache.put("tools/list", "1", page(), epoch=0, now=0.0)
    cache.put("tools/list", "3", page(), epoch=0, now=0.0)
    assert cache.get("tools/list", "2", now=0.0) is None
    assert cache.get("tools/list", "1", now=0.0) is not None
    assert len(cache) == 2


def test_a_notification_makes_its_lists_stale_and_no_others() -> None:
    cache = ResponseCache(9)
    cache.put("resources/list", None, page(), epoch=0, now=0.0)
    cache.put("resources/templates/list", None, page(), epoch=0, now=0.0)
    cache.put("tools/list", None, page(), epoch=0, now=0.0)
    cache.invalidate_for("notifications/resources/list_changed")
    assert not cache.has("resources/list")
    assert not cache.has("resources/templates/list")
    assert cache.has("tools/list")


def test_an_update_concerns_one_resource() -> None:
    cache = ResponseCache(9)
    kept = ReadResourceResult(contents=[], ttl_ms=1000)
    cache.put("resources/read", "a:1", kept, epoch=0, now=0.0)
    cache.put("resources/read", "a:2", kept, epoch=0, now=0.0)
    cache.invalidate_for("notifications/resources/updated", "a:1")
    assert cache.get("resources/read", "a:1", now=0.0) is None
    assert cache.get("resources/read", "a:2", now=0.0) is kept


def test_an_answer_that_was_asked_for_before_a_notification_is_not_kept() -> None:
    cache = ResponseCache(9)
    epoch = cache.epoch("tools/list")
    cache.invalidate_for("notifications/tools/list_changed")
    cache.put("tools/list", None, page(), epoch=epoch, now=0.0)
    assert len(cache) == 0


def test_an_answer_that_was_asked_for_before_a_loss_is_not_kept() -> None:
    cache = ResponseCache(9)
    epoch = cache.epoch("tools/list")
    cache.put("tools/list", "1", page(), epoch=epoch, now=0.0)
    cache.clear()
    cache.put("tools/list", None, page(), epoch=epoch, now=0.0)
    assert len(cache) == 0
