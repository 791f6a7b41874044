"""The keyword arguments of a client."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from trunkline.client import ServerNotification
from trunkline.client.options import ClientOptions, ClientSettings, resolve_settings
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits

FORM = t.ElicitRequestParams(message="Who?", requested_schema={"type": "object"})
PAGE = t.ElicitRequestParams(message="Log in", mode="url", url="https://x")


def test_the_typed_options_equal_the_settings() -> None:
    aliases = {name for name in ClientOptions.__annotations__ if name.endswith("_handler")}
    kept = set(ClientSettings.__struct_fields__) - {"handshake", "pinned", "extension_objects", "tap"}
    assert set(ClientOptions.__annotations__) - aliases - {"revision"} == kept


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        resolve_settings({"colour": "red"})


def test_an_alias_and_its_name_together_are_an_error() -> None:
    with pytest.raises(ConfigError, match="log_handler"):
        resolve_settings({"log_handler": print, "logging": print})


def test_a_sampling_handler_is_called_the_way_it_expects() -> None:
    def handler(messages: Any, params: Any, context: Any) -> Any:
        return messages, params.max_tokens, context

    wish = t.CreateMessageRequestParams(messages=[], max_tokens=5)
    assert resolve_settings({"sampling_handler": handler}).sampling(wish) == ([], 5, None)


@pytest.mark.parametrize(
    ("question", "answer"), [(FORM, ("Who?", {"name": "Ada"})), (PAGE, ("Log in", None))], ids=["form", "page"]
)
def test_an_elicitation_handler_gets_the_type_of_its_answer(question: t.ElicitRequestParams, answer: Any) -> None:
    def handler(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return message, response_type and response_type(name="Ada")

    assert resolve_settings({"elicitation_handler": handler}).elicitation(question) == answer


def test_a_message_handler_gets_one_record() -> None:
    heard: list[ServerNotification] = []
    resolve_settings({"message_handler": heard.append}).on_notification("acme/x", {"a": 1})
    assert heard == [ServerNotification("acme/x", {"a": 1})]


def test_a_handler_or_alias_of_none_is_as_if_left_out() -> None:
    handlers = {"sampling_handler": None, "elicitation_handler": None, "message_handler": None}
    assert resolve_settings(handlers) == resolve_settings({})
    # In either order, the one that is not None counts.
    assert resolve_settings({"log_handler": None, "logging": print}).logging is print
    assert resolve_settings({"log_handler": print, "logging": None}).logging is print


def test_a_callback_may_say_itself_that_it_takes_pages() -> None:
    def ask(params: t.ElicitRequestParams) -> bool:
        return True

    ask.takes_urls = True  # type: ignore[attr-defined]
    assert resolve_settings({"elicitation": ask}).elicitation_urls is True
    assert resolve_settings({"elicitation": print}).elicitation_urls is False


def test_an_entry_of_mcp_servers_may_set_limits_unless_they_are_given() -> None:
    entry = {"command": "server", "limits": {"idle_seconds": 5, "depth": 16}}
    own, given = resolve_settings({}, entry).limits, resolve_settings({"limits": Limits(depth=8)}, entry).limits
    assert (own.idle_seconds, own.depth, given.depth) == (5, 16, 8)


@pytest.mark.parametrize("limits", [{"dept": 16}, {"depth": "deep"}, 3], ids=["unknown", "no number", "no table"])
def test_a_limit_that_does_not_exist_is_rejected(limits: object) -> None:
    with pytest.raises(ConfigError, match="limits of the mcpServers entry"):
        resolve_settings({}, {"command": "server", "limits": limits})
