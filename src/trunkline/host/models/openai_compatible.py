"""Any endpoint that speaks OpenAI's chat completions, without OpenAI's SDK: Ollama, llama.cpp, vLLM, LM Studio.

One POST per turn, answered by an event stream. The key, if there is one, is sent to that endpoint alone: redirects to
other origins are not followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError, HttpError, LinkError, RemoteProtocolError
from trunkline.host.models.chat_completions import ChatAccumulator, chat_body, chunk_error
from trunkline.host.models.interface import ModelError, ModelEvent, ModelRequest, Traits, check_media, encode_json
from trunkline.host.models.provider import (
    ByteMeter,
    ModelLimits,
    Provider,
    ProviderErrorInfo,
    error_text,
    refusal_error,
    retry_after,
    truncated_error,
    unreachable_error,
    with_retries,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import EventReader

if TYPE_CHECKING:
    import aiohttp

    from trunkline.transports.http.client.http_client import HttpClient

__all__ = ["CompatibleModel", "CompatibleOptions"]

_LONGEST_EVENT = 4 * 1024 * 1024  # An event holds a piece of an answer; some servers send a whole tool call in one.
# After the answer is complete, wait this long for its usage.
_TAIL_SECONDS = 2.0
_END = b"[DONE]"


class CompatibleOptions(Struct, frozen=True, kw_only=True):
    """How an endpoint is reached."""

    #: Including ``/v1``.
    url: str
    key: str | None = None
    pace: ModelLimits = ModelLimits()
    #: The proxy's URL; None uses the environment, the empty string means no proxy.
    proxy: str | None = None
    #: A file with the certificates to trust instead of the system's.
    ca_file: str | None = None
    #: Where the key comes from.
    key_from: str = "TRUNKLINE_MODEL_KEY"
    #: The display name.
    label: str = "The endpoint"
    #: What to do if nothing listens there.
    start: str = "check its URL, and that it runs"
    #: What to do if the model is missing.
    missing_model: str = "check its name"


class CompatibleModel:
    """A model behind an endpoint that speaks chat completions."""

    def __init__(self, name: str, options: CompatibleOptions, *, traits: Traits) -> None:
        """Store the options of ``provider:model``; nothing is opened yet.

        Raises:
            ConfigError: a required package is not installed.
        """
        self.name = name
        self.traits = traits
        self._model = name.partition(":")[2]
        self._options = options
        self._web: HttpClient | None = None
        self._provider = Provider(
            label=f"{options.label} at {_shown(options.url)}",
            model=name,
            variable=options.key_from,
            key=options.key,
            missing_model=options.missing_model,
        )
        try:
            import aiohttp  # noqa: F401 - reported now rather than in the middle of the first turn
        except ImportError:
            raise ConfigError(f"{name} needs aiohttp, which is not installed: pip install 'trunkline[http]'.") from None

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Run a turn; closing the iterator stops it at the provider.

        Raises (while iterating):
            ModelError: there is no answer, or it is incomplete.
        """
        return with_retries(lambda: self._attempt(request), self._options.pace)

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_media(request.messages, name=self.name, traits=self.traits)
        body = chat_body(request, model=self._model, traits=self.traits, limit_member="max_tokens")
        answer = ChatAccumulator()
        response = await self._post(encode_json(body))
        try:
            async with aclosing(self._chunks(response, answer)) as chunks:
                async for chunk in chunks:
                    for event in answer.feed(chunk):
                        yield event
        finally:
            # Unlike `release`, this ends a response that is still being sent.
            response.close()
        if not answer.done:
            raise truncated_error(self._provider, "the stream ended early")
        yield answer.finished()

    async def aclose(self) -> None:
        """Close the connections."""
        web, self._web = self._web, None
        if web is not None:
            await web.aclose()

    # --- the request -------------------------------------------------------------------------------------------------

    async def _post(self, body: bytes) -> aiohttp.ClientResponse:
        """Send a request and return the response if its status is 200."""
        head = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "trunkline",
        }
        if self._options.key:
            head["Authorization"] = f"Bearer {self._options.key}"
        why: str
        try:
            async with asyncio.timeout(self._options.pace.idle_seconds):
                response = await self._opened().open("POST", head, body=body)
        except TimeoutError:
            why = f"no data for {self._options.pace.idle_seconds:.0f} s"
        except HttpError as error:
            raise refusal_error(self._provider, ProviderErrorInfo(status=error.status, words=str(error))) from None
        except (LinkError, RemoteProtocolError) as error:
            why = str(error)
        else:
            if response.status == 200:
                return response
            raise await self._refusal(response)
        raise unreachable_error(self._provider, why, fix=self._options.start)

    def _opened(self) -> HttpClient:
        if self._web is None:
            from trunkline.transports.http.client.http_client import HttpClient, HttpClientOptions

            options = self._options
            url = f"{options.url.rstrip('/')}/chat/completions"
            reach = HttpClientOptions(url=url, proxy=options.proxy, ca_file=options.ca_file)
            self._web = HttpClient(reach, Limits(connect_seconds=options.pace.connect_seconds))
        return self._web

    async def _refusal(self, response: aiohttp.ClientResponse) -> ModelError:
        headers = {name.lower(): value for name, value in response.headers.items()}
        status = response.status
        body = await self._whole(response)
        words, kind = error_text(body)
        provider = self._provider
        if status == 404 and "model" not in words.lower():
            # The path is missing, not the model.
            provider = msgspec.structs.replace(provider, missing_model="is the URL right? It often ends in /v1")
        refusal = ProviderErrorInfo(status=status, words=words, kind=kind, retry_after=retry_after(headers))
        return refusal_error(provider, refusal)

    # --- the answer --------------------------------------------------------------------------------------------------

    async def _chunks(
        self, response: aiohttp.ClientResponse, answer: ChatAccumulator
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the chunks of an answer; a whole completion, from a server that does not stream, is one chunk."""
        kind = response.content_type
        if kind == "application/json":
            body = await self._whole(response)
            if isinstance(body, Mapping):
                yield self._sound(body, begun=False)
        elif kind != "text/event-stream":
            raise unreachable_error(
                self._provider, f"it responds with {kind}", fix="is the URL right? It often ends in /v1"
            )
        else:
            meter = ByteMeter(self._provider, self._options.pace.answer_bytes)
            reader = EventReader(max_event=_LONGEST_EVENT)
            begun = False
            while data := await self._more(response, answer):
                meter.count(len(data))
                for event in self._cut(reader, data):
                    if event == _END:
                        return
                    yield self._sound(_decoded(event), begun=begun)
                    begun = True

    async def _more(self, response: aiohttp.ClientResponse, answer: ChatAccumulator) -> bytes:
        """Read on; once the answer is complete, a timeout counts as its end."""
        why: str
        seconds = _TAIL_SECONDS if answer.done else self._options.pace.idle_seconds
        try:
            async with asyncio.timeout(seconds):
                return await response.content.readany()
        except TimeoutError:
            why = f"no data for {seconds:.0f} s"
        except Exception as error:  # noqa: BLE001 - exceptions of the HTTP client and of the system
            why = str(error) or type(error).__name__
        if answer.done:
            return b""
        raise truncated_error(self._provider, why)

    def _cut(self, reader: EventReader, data: bytes) -> list[bytes]:
        try:
            return [event.data for event in reader.feed(data)]
        except RemoteProtocolError as error:
            raise truncated_error(self._provider, str(error)) from error

    def _sound(self, chunk: Any, *, begun: bool) -> Mapping[str, Any]:
        """Return a chunk that is part of an answer.

        Raises:
            ModelError: it is an error, or not an object.
        """
        if not isinstance(chunk, Mapping):
            raise truncated_error(self._provider, "it sent something that is not a JSON object")
        error = chunk_error(chunk)
        if error is None:
            return chunk
        words, kind = error_text(error)
        failure = refusal_error(self._provider, ProviderErrorInfo(status=200, words=words, kind=kind))
        raise truncated_error(self._provider, words) if begun and failure.fault == "refused" else failure

    async def _whole(self, response: aiohttp.ClientResponse) -> Any:
        """Read a whole body as JSON, or as text if it is not JSON."""
        from trunkline.transports.http.client.http_client import SMALL
        from trunkline.transports.http.client.response_body import read_body

        limit = self._options.pace.answer_bytes if response.status == 200 else SMALL
        why: str
        try:
            async with asyncio.timeout(self._options.pace.idle_seconds):
                data = await read_body(response, limit)
        except Exception as error:  # noqa: BLE001 - exceptions of the HTTP client and of the system
            why = str(error) or type(error).__name__
        else:
            decoded = _decoded(data)
            return data.decode(errors="replace") if decoded is None else decoded
        finally:
            response.close()
        raise truncated_error(self._provider, why)


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _shown(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
