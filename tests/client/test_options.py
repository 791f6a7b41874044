"""The keyword arguments of a client."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from trunkline.client import ServerNotification
from trunkline.client.options import ClientOptions, ClientSettings, resolve_settings
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST

FORM = t.ElicitRequestParams(message="Who?", requested_schema={"type": "object"})
PAGE = t.ElicitRequestParams(message="Log in", mode="url", url="https://x")


def test_the_typed_options_equal_the_settings() -> None:
    aliases = {name for name in ClientOptions.__annotations__ if name.endswith("_handler")}
    kept = set(ClientSettings.__struct_fields__) - {"handshake", "pinned", "extension_objects", "tap"}
    assert set(ClientOptions.__annotations__) - aliases - {"revision"} == kept


def test_omitted_options_have_defaults() -> None:
    settings = resolve_settings({})
    assert settings.pinned is None
    assert settings.limits == Limits()
    assert settings.client_info.name == "trunkline"


def test_a_revision_is_found_by_its_name() -> None:
    assert resolve_settings({"revision": NEWEST.name}).pinned is NEWEST


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


def test_an_elicitation_handler_makes_its_answer_with_the_type_it_is_given() -> None:
    def handler(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return response_type(name="Ada")

    assert resolve_settings({"elicitation_handler": handler}).elicitation(FORM) == {"name": "Ada"}


def test_an_elicitation_handler_gets_no_type_for_a_page() -> None:
    def handler(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return (message, response_type)

    assert resolve_settings({"elicitation_handler": handler}).elicitation(PAGE) == ("Log in", None)


def test_a_message_handler_gets_one_record() -> None:
    heard: list[ServerNotification] = []
    resolve_settings({"message_handler": heard.append}).on_notification("acme/x", {"a": 1})
    assert heard == [ServerNotification("acme/x", {"a": 1})]


def test_the_other_handlers_are_called_as_ours_are() -> None:
    settings = resolve_settings({"log_handler": print, "progress_handler": repr})
    assert (settings.logging, settings.on_progress) == (print, repr)


def test_a_callback_may_say_itself_that_it_takes_pages() -> None:
    def ask(params: t.ElicitRequestParams) -> bool:
        return True

    ask.takes_urls = True  # type: ignore[attr-defined]
    assert resolve_settings({"elicitation": ask}).elicitation_urls is True
    assert resolve_settings({"elicitation": print}).elicitation_urls is False


def test_an_entry_of_mcp_servers_may_set_limits() -> None:
    settings = resolve_settings({}, {"command": "server", "limits": {"idle_seconds": 5, "depth": 16}})
    assert (settings.limits.idle_seconds, settings.limits.depth) == (5, 16)


def test_limits_that_are_given_beat_those_of_the_entry() -> None:
    settings = resolve_settings({"limits": Limits(depth=8)}, {"command": "server", "limits": {"depth": 16}})
    assert settings.limits.depth == 8


@pytest.mark.parametrize("limits", [{"dept": 16}, {"depth": "deep"}, 3], ids=["unknown", "no number", "no table"])
def test_a_limit_that_does_not_exist_is_rejected(limits: object) -> None:
    with pytest.raises(ConfigError, match="limits of the mcpServers entry"):
        resolve_settings({}, {"command": "server", "limits": limits})
