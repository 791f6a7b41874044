"""A provider's or the network's failures as one sentence with the fix; no I/O.

A provider's words are untrusted: they are reduced to one printable line, cut, and redacted of whatever looks like a key
and of the key itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from trunkline.host.models.interface import ModelError, ModelFault
from trunkline.host.secrecy.redaction import Redaction

__all__ = ["Provider", "Refusal", "cut_off", "down", "no_key", "refused", "retry_after", "words_of"]

_SHOWN = 300
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


class Refusal(Struct, frozen=True, kw_only=True):
    """A provider's error response."""

    #: The HTTP status; 200 if the error came in the middle of a stream.
    status: int
    words: str = ""
    #: The provider's own name for the kind of failure.
    kind: str = ""
    retry_after: float | None = None


def no_key(provider: Provider) -> ModelError:
    """Return the error for a missing key."""
    where = f" (create one at {provider.keys_at})" if provider.keys_at else ""
    return ModelError(f"{provider.model} needs a key: set {provider.variable}{where}.", fault="no key")


def refused(provider: Provider, refusal: Refusal) -> ModelError:
    """Return the error that describes an error response."""
    status, words, kinds = refusal.status, _shown(refusal.words, provider), set(refusal.kind.split())
    if _TOO_LONG.search(f"{refusal.kind} {refusal.words}") or status == 413:
        fix = "start a new conversation, attach less or choose a model with a larger window"
        return _made(provider, "too long", f"The conversation is too long for {provider.model}: {fix}", words)
    if _UNPAID.search(f"{refusal.kind} {refusal.words}"):
        fix = f"the credit at {provider.label} is used up: add credit there or use another model"
        return _made(provider, "refused", f"{provider.model} did not answer, as {fix}", words)
    if status in (401, 403):
        return _about_the_key(provider, status, words)
    if status == 429 or kinds & _TOO_OFTEN:
        wait = "in a moment" if refusal.retry_after is None else f"in {refusal.retry_after:.0f} s"
        text = f"{provider.label} is limiting the rate of requests with this key: try again {wait}"
        return _made(provider, "rate limited", text, words, retry_after=refusal.retry_after, passing=True)
    if status >= 500 or status == 408 or kinds & _OVERLOADED:
        text = f"{provider.label} cannot answer now ({_status(status) or refusal.kind}): try again in a moment"
        return _made(provider, "down", text, words, retry_after=refusal.retry_after, passing=True)
    return _about_the_request(provider, refusal, words)


def _about_the_key(provider: Provider, status: int, words: str) -> ModelError:
    if provider.key is None:
        return no_key(provider)
    where = f"; create one at {provider.keys_at}" if provider.keys_at else ""
    if status == 401:
        # Some providers repeat the key, or what they believe to be its beginning and end.
        text = f"{provider.label} does not accept the key: set {provider.variable} to a valid one{where}."
        return ModelError(text, fault="refused key")
    text = f"{provider.label} does not allow this key to use {provider.model}: use one that may{where}"
    return _made(provider, "refused key", text, words)


def _about_the_request(provider: Provider, refusal: Refusal, words: str) -> ModelError:
    if refusal.status == 404 or _NO_MODEL.search(refusal.words):
        text = f"{provider.label} has no model {provider.model.partition(':')[2]!r} for you: {provider.missing_model}"
    elif _NO_TOOLS.search(refusal.words):
        text = f"{provider.model} cannot use tools: choose a model that can"
    else:
        text = f"{provider.label} did not accept the request to {provider.model}{_in_brackets(refusal.status)}"
    return _made(provider, "refused", text, words)


def down(provider: Provider, why: str, *, passing: bool = False, fix: str = "") -> ModelError:
    """Return the error for a provider that cannot be reached."""
    fix = fix or "check the network, or use another model"
    return _made(provider, "down", f"{provider.label} cannot be reached: {fix}", _shown(why, provider), passing=passing)


def cut_off(provider: Provider, why: str) -> ModelError:
    """Return the error for an answer that broke off; what arrived of it was delivered."""
    text = f"The answer of {provider.model} broke off: send a message to let it continue, or ask again"
    return _made(provider, "cut off", text, _shown(why, provider))


def _made(
    provider: Provider,
    fault: ModelFault,
    text: str,
    words: str,
    *,
    retry_after: float | None = None,
    passing: bool = False,
) -> ModelError:
    said = f' (it said: "{words}")' if words else ""
    return ModelError(f"{text}{said}.", fault=fault, retry_after=retry_after, passing=passing)


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


def words_of(body: Any) -> tuple[str, str]:
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
