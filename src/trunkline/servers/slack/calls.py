"""The client of Slack's Web API: errors become messages, and the list of allowed channels applies to every call.

Slack answers nearly every request with status 200; ``ok`` says whether it succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from trunkline import ConfigError, ToolError
from trunkline.servers.rest import Api, ApiError
from trunkline.servers.tokens import check_line, demanded, read_token, without
from trunkline.servers.wording import one_line

__all__ = ["DEFAULT_URL", "MOST_CHANNELS", "VARIABLE", "Slack"]

DEFAULT_URL = "https://slack.com/api"
VARIABLE = "SLACK_BOT_TOKEN"
MOST_CHANNELS = 100
_ID = re.compile(r"[A-Z][A-Z0-9]{1,30}")

#: Advice for errors that a change of the request or the configuration can fix.
_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "not_authed": "set SLACK_BOT_TOKEN",
        "invalid_auth": "the token in SLACK_BOT_TOKEN is wrong",
        "account_inactive": "the token in SLACK_BOT_TOKEN belongs to a deactivated account",
        "token_revoked": "the token in SLACK_BOT_TOKEN was revoked",
        "token_expired": "the token in SLACK_BOT_TOKEN has expired",
        "missing_scope": "the app behind SLACK_BOT_TOKEN lacks a permission; add it and install the app again",
        "not_in_channel": "invite the bot to the channel first",
        "channel_not_found": "give the id of a channel that the bot can see; slack_list_channels has them",
        "is_archived": "the channel is archived",
        "thread_not_found": "there is no message of that time in the channel",
        "message_not_found": "there is no message of that time in the channel",
        "user_not_found": "give the id of a user; slack_get_users has them",
        "invalid_name": "there is no such emoji",
        "team_access_not_granted": "set SLACK_TEAM_ID to a workspace that the app is installed in",
        "missing_argument": "set SLACK_TEAM_ID if the app is installed for a whole organization",
    }
)


class Slack:
    """API client with the token of one bot, limited to the allowed channels."""

    def __init__(
        self, token: str | None, *, api_url: str = DEFAULT_URL, channels: Iterable[str] = (), seconds: float = 30.0
    ) -> None:
        """Initialize with the token, the URL, and the allowed channels; none means all that the bot can see.

        Raises:
            ConfigError: one of them is invalid.
        """
        self._token = read_token(token, VARIABLE)
        self.channels = tuple(dict.fromkeys(each.strip() for each in channels if each.strip()))
        if wrong := [each for each in self.channels if not _ID.fullmatch(each)]:
            raise ConfigError(f"SLACK_CHANNEL_IDS holds {wrong[0]!r}, which is not a channel id such as C0123ABCD")
        if len(self.channels) > MOST_CHANNELS:
            raise ConfigError(
                f"SLACK_CHANNEL_IDS holds {len(self.channels)} channels; up to {MOST_CHANNELS} are possible"
            )
        headers = {}
        if self._token is not None:
            check_line(api_url, "Slack")
            headers["authorization"] = f"Bearer {self._token}"
        self.api = Api(api_url, service="Slack", headers=headers, seconds=seconds, max_bytes=4 * 1024 * 1024)

    def channel(self, channel_id: str) -> str:
        """Return a channel id if it is valid and allowed.

        Raises:
            ToolError: it is not.
        """
        if self.channels and channel_id not in self.channels:
            raise ToolError(f"This server is limited to the channels {', '.join(self.channels)}, not {channel_id!r}")
        return _checked(channel_id, "channel_id", "C0123ABCD")

    def user(self, user_id: str) -> str:
        """Return a user id if it is valid.

        Raises:
            ToolError: it is not.
        """
        return _checked(user_id, "user_id", "U0123ABCD")

    async def read(self, method: str, query: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method that changes nothing."""
        return self._done(await self._ask("GET", method, query=query))

    async def find(self, method: str, query: Mapping[str, Any]) -> dict[str, Any] | None:
        """Call a method that changes nothing; return None if the channel is not found."""
        answer = await self._ask("GET", method, query=query)
        return None if answer.get("error") == "channel_not_found" else self._done(answer)

    async def write(self, method: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method that changes something."""
        return self._done(await self._ask("POST", method, body=body))

    async def _ask(self, verb: str, method: str, **more: Any) -> dict[str, Any]:
        why = "Slack answers bots of a workspace only"
        demanded(self._token, why, f"{VARIABLE} (the bot token of your app, xoxb-...)")
        try:
            value = (await self.api.request(verb, f"/{method}", **more)).json()
        except ApiError as error:
            raise without(error, self._token) from None
        if not isinstance(value, dict):
            raise ApiError("Slack answered with something that is not an object")
        return value

    def _done(self, answer: dict[str, Any]) -> dict[str, Any]:
        if answer.get("ok") is True:
            return answer
        error = str(answer.get("error", "it does not say why"))
        hint = _HINTS.get(error)
        raise without(ApiError(f"Slack refused: {one_line(error, 100)}"), self._token, f" ({hint})" if hint else "")


def _checked(value: str, what: str, example: str) -> str:
    if not _ID.fullmatch(value):
        raise ToolError(f"{what} must be an id such as {example}, not {value!r}")
    return value
