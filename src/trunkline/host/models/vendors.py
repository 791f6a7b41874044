"""A vendor's SDK as a source of plain events: opened, read within limits, closed, and its failures in our words.

The SDKs of Anthropic and OpenAI are alike in what is used here: exceptions of the same names, streams that are iterated
and closed, events that convert themselves to dictionaries. They are imported when a model of theirs is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.models.failures import Provider, Refusal, cut_off, down, refused, retry_after, words_of
from trunkline.host.models.interface import Finished, ModelError, ModelEvent
from trunkline.host.models.pacing import Meter, Pace

__all__ = ["Answer", "VendorClient", "VendorOptions", "load_sdk"]

# How long to wait for the end of a stream after the answer is complete, so that its connection can be reused.
_TAIL_SECONDS = 1.0


class VendorOptions(Struct, frozen=True, kw_only=True):
    """How a vendor's model is reached."""

    key: str | None = None
    #: The URL, if not the vendor's own.
    url: str | None = None
    pace: Pace = Pace()
    #: Whether the provider is asked to cache the beginning of a conversation, which makes further turns cheaper.
    cache: bool = True
    #: Which of the vendor's APIs is used, if there are two.
    api: str | None = None


class Answer(Protocol):
    """Accumulates the events of a stream to an answer."""

    done: bool

    def feed(self, event: Mapping[str, Any]) -> Any:
        """Process an event; return the events that it means to us."""

    def finished(self) -> Finished:
        """Return the complete answer."""


def load_sdk(package: str) -> Any:
    """Import a vendor's SDK.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ConfigError(
            f"{package} models need the {package} SDK, which is not installed: pip install 'trunkline[{package}]'."
        ) from None


class VendorClient:
    """One model of a vendor, through the vendor's client."""

    def __init__(self, sdk: Any, client: Any, *, provider: Provider, pace: Pace) -> None:
        """Store the SDK and a client of it that does not retry."""
        self._sdk = sdk
        self._client = client
        self.provider = provider
        self.pace = pace

    async def read(self, opening: Callable[[Any], Awaitable[Any]], answer: Answer) -> AsyncGenerator[ModelEvent, None]:
        """Open a stream with the client and yield its events, except the final one.

        Raises:
            ModelError: it failed, or ended early.
        """
        begun = False
        stream: Any = None
        failure: ModelError | None = None
        meter = Meter(self.provider, self.pace.answer_bytes)
        try:
            stream = await self._open(opening)
            async for event in self._events(stream, answer):
                meter.count(_size(event))
                for each in answer.feed(event):
                    begun = True
                    yield each
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an SDK raises, its HTTP library's exceptions included
            failure = self._failure(error, begun=begun)
        finally:
            if stream is not None:
                await stream.close()
        # Not in the handler: the SDK's exception may hold what a provider said of the key, and must not be shown.
        if failure is not None:
            raise failure
        if not answer.done:
            raise cut_off(self.provider, "the stream ended early")

    async def _open(self, opening: Callable[[Any], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(self.pace.idle_seconds):
            return await opening(self._client)

    async def _events(self, stream: Any, answer: Answer) -> AsyncGenerator[Mapping[str, Any], None]:
        events = aiter(stream)
        clock = asyncio.get_running_loop().time
        last: float | None = None
        while True:
            if answer.done and last is None:
                last = clock() + _TAIL_SECONDS
            until = clock() + self.pace.idle_seconds if last is None else last
            try:
                async with asyncio.timeout_at(until):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if last is not None:
                    return
                raise
            as_dict = getattr(event, "to_dict", None)
            if as_dict is not None:
                yield as_dict()

    def _failure(self, error: Exception, *, begun: bool) -> ModelError:
        sdk, provider = self._sdk, self.provider
        if isinstance(error, sdk.APIStatusError):
            words, kind = words_of(error.body)
            waiting = retry_after(error.response.headers)
            refusal = Refusal(status=error.status_code, words=words or error.message, kind=kind, retry_after=waiting)
            found = refused(provider, refusal)
            return cut_off(provider, words) if begun and found.fault == "down" else found
        if isinstance(error, sdk.APIConnectionError | TimeoutError):
            return self._lost(error, begun=begun)
        if isinstance(error, sdk.APIError):
            words, kind = words_of(error.body)
            return refused(provider, Refusal(status=200, words=words or error.message, kind=kind))
        if begun:
            return cut_off(provider, type(error).__name__)
        return down(provider, f"its response is invalid: {type(error).__name__}")

    def _lost(self, error: Exception, *, begun: bool) -> ModelError:
        cause = error.__cause__ or error
        why = str(cause) or type(cause).__name__
        if isinstance(error, self._sdk.APITimeoutError | TimeoutError):
            why = f"no data for {self.pace.idle_seconds:.0f} s"
        if begun:
            return cut_off(self.provider, why)
        # An unknown name or a closed port does not recover in a second.
        return down(self.provider, why, passing=type(cause).__name__ not in ("ConnectError", "ConnectTimeout"))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _size(event: Mapping[str, Any]) -> int:
    """Estimate the size of an event by its strings."""
    return sum(
        len(value) if isinstance(value, str) else _size(value)
        for value in event.values()
        if isinstance(value, str | Mapping)
    )
