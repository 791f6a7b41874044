"""What the page on migrating says is accepted, is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import run_async
from trunkline import Client, Server


def rejected(accept: Callable[..., object], options: dict[str, Any]) -> dict[str, str]:
    """Pass each option by itself; return those that raise, with the reason."""
    reasons = {}
    for option, value in options.items():
        try:
            accept(**{option: value})
        except Exception as error:  # noqa: BLE001 - every reason is listed
            reasons[option] = repr(error)
    return reasons


async def _answer(*given: Any) -> None:
    """Stand for any callback."""


@pytest.mark.filterwarnings("ignore::trunkline.server.CompatibilityWarning")
def test_a_constructor_argument_of_the_others_is_accepted() -> None:
    options: dict[str, Any] = {
        "instructions": "x",
        "version": "1",
        "title": "t",
        "description": "d",
        "website_url": "https://example.com",
        "icons": [],
        "auth": None,
        "middleware": [],
        "tools": [],
        "on_duplicate": "warn",
        "mask_error_details": False,
        "dereference_schemas": True,
        "strict_input_validation": True,
        "list_page_size": 50,
        "cache_ttl": 1,
        "experimental_capabilities": {},
        "resource_security": object(),
        "dependencies": ["httpx"],
        "debug": True,
        "log_level": "INFO",
        "warn_on_duplicate_tools": True,
        "warn_on_duplicate_resources": True,
        "warn_on_duplicate_prompts": True,
    }
    assert rejected(lambda **given: Server("moved", **given), options) == {}


@pytest.mark.parametrize("option", ["providers", "transforms", "session_state_store", "extensions", "subscriptions"])
def test_a_constructor_argument_that_cannot_be_honoured_is_refused_by_name(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        Server("moved", **{option: [object()]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "instead"),
    [("sampling_callback", "sampling="), ("list_roots_callback", "roots="), ("init_timeout", "connect_seconds")],
)
def test_an_argument_of_a_client_that_cannot_be_honoured_says_what_to_write(option: str, instead: str) -> None:
    with pytest.raises(TypeError, match=f"option '{option}': use .*{instead}"):
        Client(Server("moved"), **{option: _answer})  # type: ignore[arg-type]


def test_an_argument_of_http_is_kept_until_the_server_is_run() -> None:
    options: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 9000,
        "streamable_http_path": "/here",
        "sse_path": "/events",
        "message_path": "/post",
        "json_response": True,
        "stateless_http": True,
    }
    assert Server("moved", **options).settings.http == options


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_a_server_runs_by_the_names_of_the_others(transport: str) -> None:
    async def main() -> str:
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(Server("moved").run_async(transport, port=0, started=listening.set_result))
        async with Client(f"{await listening}/mcp") as client:
            info = client.server_info
        running.cancel()
        await asyncio.wait([running])
        return "" if info is None else info.name

    assert run_async(main()) == "moved"


@pytest.mark.filterwarnings("ignore::trunkline.server.CompatibilityWarning")
def test_an_option_of_a_tool_is_accepted() -> None:
    options: dict[str, Any] = {
        "name": "n",
        "version": "1",
        "title": "t",
        "description": "d",
        "icons": [],
        "tags": {"a"},
        "output_schema": None,
        "annotations": {"readOnlyHint": True},
        "meta": {"a": 1},
        "app": None,
        "task": False,
        "timeout": 3,
        "auth": None,
        "run_in_thread": False,
        "structured_output": True,
        "enabled": True,
        "exclude_args": ["times"],
        "serializer": None,
    }

    def greet(times: int = 1) -> str:
        return "hello" * times

    assert rejected(lambda **given: Server("moved").tool(**given)(greet), options) == {}


@pytest.mark.filterwarnings("ignore::trunkline.server.CompatibilityWarning")
def test_an_option_of_a_resource_is_accepted() -> None:
    options: dict[str, Any] = {
        "name": "n",
        "version": "1",
        "title": "t",
        "description": "d",
        "icons": [],
        "mime_type": "text/plain",
        "tags": {"a"},
        "annotations": {"audience": ["user"]},
        "meta": {"a": 1},
        "security": object(),
        "enabled": True,
    }

    def note() -> str:
        return "one"

    assert rejected(lambda **given: Server("moved").resource("note://one", **given)(note), options) == {}


def test_an_option_of_a_client_is_accepted() -> None:
    options: dict[str, Any] = {
        "sampling_handler": _answer,
        "elicitation_handler": _answer,
        "log_handler": _answer,
        "progress_handler": _answer,
        "message_handler": _answer,
        "mode": "legacy",
        "roots": ["/"],
        "timeout": 3,
        "read_timeout_seconds": 3,
        "client_info": None,
        "cache": True,
        "log_level": "info",
        "logging_callback": _answer,
    }
    assert rejected(lambda **given: Client(Server("moved"), **given), options) == {}
