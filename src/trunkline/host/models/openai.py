"""OpenAI's models, through its own SDK.

They are called by the Responses API: current models reject tools in chat completions unless reasoning is turned off.
Audio models exist only in chat completions, and are called there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from trunkline.errors import ConfigError
from trunkline.host.models.blocks import check_media
from trunkline.host.models.chat_wire import ChatAnswer, chat_body
from trunkline.host.models.echoes import Echoes
from trunkline.host.models.failures import Provider, Refusal, cut_off, no_key, refused, words_of
from trunkline.host.models.interface import ModelError, ModelEvent, ModelRequest, Traits
from trunkline.host.models.pacing import Pace, patiently
from trunkline.host.models.responses_wire import ResponsesAnswer, responses_body
from trunkline.host.models.vendors import VendorClient, VendorOptions, load_sdk

__all__ = ["OpenAIModel"]

_URL = "https://api.openai.com/v1"
_APIS = ("responses", "chat")
# These have no reasoning to return, and reject requests for it.
_THOUGHTLESS = ("gpt-3", "gpt-4", "chatgpt-")


class OpenAIModel:
    """A model of OpenAI."""

    def __init__(self, model: str, options: VendorOptions, *, traits: Traits) -> None:
        """Create the client; nothing is sent yet.

        Raises:
            ConfigError: the SDK is not installed, or the API is unknown.
            ModelError: there is no key.
        """
        self.name = f"openai:{model}"
        self.traits = traits
        if options.api is not None and options.api not in _APIS:
            raise ConfigError(f"model.api is {options.api!r}; it can be {' or '.join(map(repr, _APIS))}")
        provider = Provider(
            label="OpenAI",
            model=self.name,
            variable="OPENAI_API_KEY",
            keys_at="https://platform.openai.com/api-keys",
            key=options.key,
            missing_model="its models are listed at https://developers.openai.com/api/docs/models",
        )
        if not options.key:
            raise no_key(provider)
        self._model = model
        self._api = options.api or ("chat" if traits.audio else "responses")
        self._thinks = not model.startswith(_THOUGHTLESS)
        self._client = _client(options, provider)
        self._echoes = Echoes()

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Run a turn; closing the iterator stops it at the provider.

        Raises (while iterating):
            ModelError: there is no answer, or it is incomplete.
        """
        attempt = self._by_chat if self._api == "chat" else self._by_responses
        return patiently(lambda: attempt(request), self._client.pace)

    async def _by_chat(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_media(request.messages, name=self.name, traits=self.traits)
        body = chat_body(request, model=self._model, traits=self.traits, limit_member="max_completion_tokens")

        async def opening(client: Any) -> Any:
            return await client.chat.completions.create(**body)

        answer = ChatAnswer()
        async with aclosing(self._client.read(opening, answer)) as events:
            async for event in events:
                yield event
        yield answer.finished()

    async def _by_responses(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_media(request.messages, name=self.name, traits=self.traits)
        body, trail = responses_body(
            request, model=self._model, traits=self.traits, echoes=self._echoes, thinks=self._thinks
        )

        async def opening(client: Any) -> Any:
            return await client.responses.create(**body)

        answer = ResponsesAnswer(request.stop_sequences)
        begun = False
        try:
            async with aclosing(self._client.read(opening, answer)) as events:
                async for event in events:
                    begun = True
                    yield event
        except ModelError as error:
            raise self._better(error, answer, begun=begun) from None
        finished = answer.finished()
        echo = answer.echo()
        if echo is not None:
            self._echoes.keep(trail.key(finished.message.content), echo)
        yield finished

    def _better(self, error: ModelError, answer: ResponsesAnswer, *, begun: bool) -> ModelError:
        """Return a better error for a stream that ended early, if the stream contained one."""
        if answer.failure is not None:
            words, kind = words_of(answer.failure)
            failure = refused(self._client.provider, Refusal(status=200, words=words, kind=kind))
            return cut_off(self._client.provider, words) if begun and failure.fault == "down" else failure
        if error.fault == "refused" and len(self._echoes) and "reasoning" in str(error):
            # The conversation goes on without the reasoning.
            self._echoes.forget()
            error.passing = True
        return error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _client(options: VendorOptions, provider: Provider) -> VendorClient:
    sdk = load_sdk("openai")
    pace: Pace = options.pace
    client = sdk.AsyncOpenAI(
        api_key=options.key,
        base_url=options.url or _URL,
        max_retries=0,
        timeout=sdk.Timeout(pace.idle_seconds, connect=pace.connect_seconds),
    )
    return VendorClient(sdk, client, provider=provider, pace=pace)
