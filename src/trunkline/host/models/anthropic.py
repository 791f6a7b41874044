"""Anthropic's models, through its own SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from trunkline.host.models.anthropic_wire import MessagesAnswer, messages_body
from trunkline.host.models.blocks import check_media
from trunkline.host.models.echoes import Echoes
from trunkline.host.models.failures import Provider, no_key
from trunkline.host.models.interface import ModelError, ModelEvent, ModelRequest, Traits
from trunkline.host.models.pacing import patiently
from trunkline.host.models.vendors import VendorClient, VendorOptions, load_sdk

__all__ = ["AnthropicModel"]

_URL = "https://api.anthropic.com"
# Parameters that the SDK lacks in one release or another.
_EXTRA = ("cache_control", "temperature")


class AnthropicModel:
    """A model of Anthropic."""

    def __init__(self, model: str, options: VendorOptions, *, traits: Traits) -> None:
        """Create the client; nothing is sent yet.

        Raises:
            ConfigError: the SDK is not installed.
            ModelError: there is no key.
        """
        self.name = f"anthropic:{model}"
        self.traits = traits
        provider = Provider(
            label="Anthropic",
            model=self.name,
            variable="ANTHROPIC_API_KEY",
            keys_at="https://platform.claude.com/settings/keys",
            key=options.key,
            missing_model="its models are listed at https://platform.claude.com/docs/en/about-claude/models",
        )
        if not options.key:
            raise no_key(provider)
        sdk = load_sdk("anthropic")
        client = sdk.AsyncAnthropic(
            api_key=options.key,
            base_url=options.url or _URL,
            max_retries=0,
            timeout=sdk.Timeout(options.pace.idle_seconds, connect=options.pace.connect_seconds),
        )
        self._model = model
        self._cache = options.cache
        self._client = VendorClient(sdk, client, provider=provider, pace=options.pace)
        self._echoes = Echoes()

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Run a turn; closing the iterator stops it at the provider.

        Raises (while iterating):
            ModelError: there is no answer, or it is incomplete.
        """
        return patiently(lambda: self._attempt(request), self._client.pace)

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_media(request.messages, name=self.name, traits=self.traits)
        body, trail = messages_body(
            request, model=self._model, traits=self.traits, echoes=self._echoes, cache=self._cache
        )
        extra = {name: body.pop(name) for name in _EXTRA if name in body}

        async def opening(client: Any) -> Any:
            return await client.messages.create(**body, stream=True, extra_body=extra)

        answer = MessagesAnswer()
        try:
            async with aclosing(self._client.read(opening, answer)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            self._distrust(error)
            raise
        finished = answer.finished()
        echo = answer.echo()
        if echo is not None:
            self._echoes.keep(trail.key(finished.message.content), echo)
        yield finished

    def _distrust(self, error: ModelError) -> None:
        """Stop returning reasoning blocks if they were what was rejected: the conversation goes on without them."""
        if error.fault == "refused" and len(self._echoes) and "thinking" in str(error):
            self._echoes.forget()
            error.passing = True

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
