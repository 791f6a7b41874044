"""What all model providers share: failures as one sentence with the fix, and the bounds of a turn.

A turn has limits for silence and for size, and is retried only while nothing of it has been delivered. A provider's
words are untrusted: they are reduced to one printable line, cut, and redacted of whatever looks like a key and of the
key itself.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.models.interface import Finished, ModelError, ModelEvent, ModelFault
from trunkline.host.secrets.registry import Redaction

__all__ = [
    "Accumulator",
    "ByteMeter",
    "ModelLimits",
    "Provider",
    "ProviderErrorInfo",
    "SDKClient",
    "SDKOptions",
    "error_text",
    "load_sdk",
    "missing_key_error",
    "refusal_error",
    "retry_after",
    "truncated_error",
    "unreachable_error",
    "with_retries",
]

_SHOWN = 300  # An error of a provider is shown in a few lines.
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|prompt is too long|too many (?:input )?tokens|max_model_len"
    r"|maximum (?:context|prompt|input) length|request_too_large|exceed_context|string_above_max_length",
    re.I,
)
_UNPAID = re.compile(r"insufficient_quota|credit balance|billing|exceeded your current quota", re.I)
_NO_MODEL = re.compile(r"model.{0,80}(?:not found|not_found|does not exist)|model_not_found", re.I)
_NO_TOOLS = re.compile(r"does not support (?:tools|function)", re.I)
_TOO_OFTEN = frozenset({"rate_limit_error", "rate_limit_exceeded"})
_OVERLOADED = frozenset({"overloaded_error", "api_error", "server_error", "server_is_overloaded", "timeout_error"})
# A longer delay is not a delay but a date.
_LONGEST_WAIT = 86_400.0


class Provider(Struct, frozen=True, kw_only=True):
    """What error messages need to know about a provider."""

    #: The display name.
    label: str
    #: The model, as ``provider:model``.
    model: str
    #: The environment variable of its key.
    variable: str
    #: Where keys are created; empty if unknown.
    keys_at: str = ""
    #: The key in use, to be redacted from every message.
    key: str | None = None
    #: What to do if a model is missing.
    missing_model: str = "check its name"


class ProviderErrorInfo(Struct, frozen=True, kw_only=True):
    """A provider's error response."""

    #: The HTTP status; 200 if the error came in the middle of a stream.
    status: int
    words: str = ""
    #: The provider's own name for the kind of failure.
    kind: str = ""
    retry_after: float | None = None


def missing_key_error(provider: Provider) -> ModelError:
    """Return the error for a missing key."""
    where = f" (create one at {provider.keys_at})" if provider.keys_at else ""
    return ModelError(f"{provider.model} needs a key: set {provider.variable}{where}.", fault="no key")


def refusal_error(provider: Provider, refusal: ProviderErrorInfo) -> ModelError:
    """Return the error that describes an error response."""
    status, words, kinds = refusal.status, _shown(refusal.words, provider), set(refusal.kind.split())
    if _TOO_LONG.search(f"{refusal.kind} {refusal.words}") or status == 413:
        fix = "start a new conversation, attach less or choose a model with a larger window"
        return _model_error(provider, "too long", f"The conversation is too long for {provider.model}: {fix}", words)
    if _UNPAID.search(f"{refusal.kind} {refusal.words}"):
        fix = f"the credit at {provider.label} is used up: add credit there or use another model"
        return _model_error(provider, "refused", f"{provider.model} did not answer, as {fix}", words)
    if status in (401, 403):
        return _about_the_key(provider, status, words)
    if status == 429 or kinds & _TOO_OFTEN:
        wait = "in a moment" if refusal.retry_after is None else f"in {refusal.retry_after:.0f} s"
        text = f"{provider.label} is limiting the rate of requests with this key: try again {wait}"
        return _model_error(provider, "rate limited", text, words, retry_after=refusal.retry_after, transient=True)
    if status >= 500 or status == 408 or kinds & _OVERLOADED:
        text = f"{provider.label} cannot answer now ({_status(status) or refusal.kind}): try again in a moment"
        return _model_error(provider, "down", text, words, retry_after=refusal.retry_after, transient=True)
    return _about_the_request(provider, refusal, words)


def _about_the_key(provider: Provider, status: int, words: str) -> ModelError:
    if provider.key is None:
        return missing_key_error(provider)
    where = f"; create one at {provider.keys_at}" if provider.keys_at else ""
    if status == 401:
        # Some providers repeat the key, or what they believe to be its beginning and end.
        text = f"{provider.label} does not accept the key: set {provider.variable} to a valid one{where}."
        return ModelError(text, fault="refused key")
    text = f"{provider.label} does not allow this key to use {provider.model}: use one that may{where}"
    return _model_error(provider, "refused key", text, words)


def _about_the_request(provider: Provider, refusal: ProviderErrorInfo, words: str) -> ModelError:
    if refusal.status == 404 or _NO_MODEL.search(refusal.words):
        text = f"{provider.label} has no model {provider.model.partition(':')[2]!r} for you: {provider.missing_model}"
    elif _NO_TOOLS.search(refusal.words):
        text = f"{provider.model} cannot use tools: choose a model that can"
    else:
        text = f"{provider.label} did not accept the request to {provider.model}{_in_brackets(refusal.status)}"
    return _model_error(provider, "refused", text, words)


def unreachable_error(provider: Provider, why: str, *, transient: bool = False, fix: str = "") -> ModelError:
    """Return the error for a provider that cannot be reached."""
    fix = fix or "check the network, or use another model"
    return _model_error(
        provider, "down", f"{provider.label} cannot be reached: {fix}", _shown(why, provider), transient=transient
    )


def truncated_error(provider: Provider, why: str) -> ModelError:
    """Return the error for an answer that broke off; what arrived of it was delivered."""
    text = f"The answer of {provider.model} broke off: send a message to let it continue, or ask again"
    return _model_error(provider, "cut off", text, _shown(why, provider))


def _model_error(
    provider: Provider,
    fault: ModelFault,
    text: str,
    words: str,
    *,
    retry_after: float | None = None,
    transient: bool = False,
) -> ModelError:
    said = f' (it said: "{words}")' if words else ""
    return ModelError(f"{text}{said}.", fault=fault, retry_after=retry_after, transient=transient)


def _status(status: int) -> str:
    return "" if status == 200 else str(status)


def _in_brackets(status: int) -> str:
    return "" if status == 200 else f" ({status})"


def _shown(words: str, provider: Provider) -> str:
    line = " ".join(words[: 8 * _SHOWN].split())
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    hidden = Redaction(secrets=frozenset({provider.key} if provider.key else ()), text_length=4 * _SHOWN).text(line)
    return (hidden if len(hidden) <= _SHOWN else hidden[: _SHOWN - 1] + "…").rstrip(".")


# --- parsing error responses -----------------------------------------------------------------------------------------


def error_text(body: Any) -> tuple[str, str]:
    """Return the message and the kind from the body of an error, in any of the common shapes."""
    if isinstance(body, str):
        return body, ""
    if not isinstance(body, Mapping):
        return "", ""
    inner = body.get("error", body)
    if isinstance(inner, str):
        return inner, ""
    if not isinstance(inner, Mapping):
        return "", ""
    words = inner.get("message", inner.get("detail", ""))
    kinds = (inner.get("code"), inner.get("type"))
    kind = " ".join(each for each in kinds if isinstance(each, str))
    return (words if isinstance(words, str) else ""), kind


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the number of seconds to wait; a date is ignored."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / scale
        except ValueError:
            continue
        if 0 <= seconds <= _LONGEST_WAIT:
            return seconds
    return None


class ModelLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a turn."""

    #: The number of attempts as long as nothing arrived.
    tries: int = 4
    #: The delay before the second attempt, in seconds; it doubles with each further one.
    first_wait: float = 0.5
    #: A delay that the provider requests is respected if it is not longer than this.
    longest_wait: float = 20.0
    #: Timeout for silence, including that before the first event.
    idle_seconds: float = 300.0
    #: Timeout for connecting.
    connect_seconds: float = 15.0
    #: Maximum size of one answer in bytes.
    answer_bytes: int = 16 * 1024 * 1024


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ModelEvent, None]], pace: ModelLimits
) -> AsyncGenerator[ModelEvent, None]:
    """Run a turn; if it fails transiently before its first event, retry it after a delay.

    Raises:
        ModelError: the last attempt failed, or one after its first event.
    """
    wait = pace.first_wait
    for left in range(pace.tries - 1, -1, -1):
        begun = False
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ModelError as error:
            asked = error.retry_after
            too_long = asked is not None and asked > pace.longest_wait
            if begun or not left or not error.transient or too_long:
                raise
        # Many clients that were rejected together should not come back together.
        await asyncio.sleep(wait * random.uniform(0.75, 1.25) if asked is None else asked)
        wait *= 2


class ByteMeter:
    """Counts the bytes that a provider sends, and ends an endless answer."""

    # The minimum per event, so that an endless stream of empty events ends as well.
    _LEAST = 64

    def __init__(self, provider: Provider, limit: int) -> None:
        """Start at zero."""
        self._provider = provider
        self._limit = limit
        self._left = limit

    def count(self, size: int) -> None:
        """Count an event of this many bytes.

        Raises:
            ModelError: the limit is exceeded.
        """
        self._left -= max(size, self._LEAST)
        if self._left < 0:
            raise truncated_error(self._provider, f"it was stopped after more than {self._limit} bytes")


# How long to wait for the end of a stream after the answer is complete, so that its connection can be reused.
_TAIL_SECONDS = 1.0


class SDKOptions(Struct, frozen=True, kw_only=True):
    """How a vendor's model is reached."""

    key: str | None = None
    #: The URL, if not the vendor's own.
    url: str | None = None
    pace: ModelLimits = ModelLimits()
    #: Whether the provider is asked to cache the beginning of a conversation, which makes further turns cheaper.
    cache: bool = True
    #: Which of the vendor's APIs is used, if there are two.
    api: str | None = None


class Accumulator(Protocol):
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


class SDKClient:
    """One model of a vendor, through the vendor's client."""

    def __init__(self, sdk: Any, client: Any, *, provider: Provider, pace: ModelLimits) -> None:
        """Store the SDK and a client of it that does not retry."""
        self._sdk = sdk
        self._client = client
        self.provider = provider
        self.pace = pace

    async def read(
        self, opening: Callable[[Any], Awaitable[Any]], answer: Accumulator
    ) -> AsyncGenerator[ModelEvent, None]:
        """Open a stream with the client and yield its events, except the final one.

        Raises:
            ModelError: it failed, or ended early.
        """
        begun = False
        stream: Any = None
        failure: ModelError | None = None
        meter = ByteMeter(self.provider, self.pace.answer_bytes)
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
            raise truncated_error(self.provider, "the stream ended early")

    async def _open(self, opening: Callable[[Any], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(self.pace.idle_seconds):
            return await opening(self._client)

    async def _events(self, stream: Any, answer: Accumulator) -> AsyncGenerator[Mapping[str, Any], None]:
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
            words, kind = error_text(error.body)
            waiting = retry_after(error.response.headers)
            refusal = ProviderErrorInfo(
                status=error.status_code, words=words or error.message, kind=kind, retry_after=waiting
            )
            found = refusal_error(provider, refusal)
            return truncated_error(provider, words) if begun and found.fault == "down" else found
        if isinstance(error, sdk.APIConnectionError | TimeoutError):
            return self._lost(error, begun=begun)
        if isinstance(error, sdk.APIError):
            words, kind = error_text(error.body)
            return refusal_error(provider, ProviderErrorInfo(status=200, words=words or error.message, kind=kind))
        if begun:
            return truncated_error(provider, type(error).__name__)
        return unreachable_error(provider, f"its response is invalid: {type(error).__name__}")

    def _lost(self, error: Exception, *, begun: bool) -> ModelError:
        cause = error.__cause__ or error
        why = str(cause) or type(cause).__name__
        if isinstance(error, self._sdk.APITimeoutError | TimeoutError):
            why = f"no data for {self.pace.idle_seconds:.0f} s"
        if begun:
            return truncated_error(self.provider, why)
        # An unknown name or a closed port does not recover in a second.
        return unreachable_error(
            self.provider, why, transient=type(cause).__name__ not in ("ConnectError", "ConnectTimeout")
        )

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
