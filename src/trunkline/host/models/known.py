"""Known models: context windows, capabilities and prices; data, and the look-up in it.

Prices and windows are the vendors' own, as published when this file was last changed. No model needs to be listed here:
one that is not gets cautious traits of its provider, and the user's own traits override any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from trunkline.errors import ConfigError
from trunkline.host.models.interface import Traits

__all__ = ["is_known", "known_models", "traits_of"]

_MILLION = 1_000_000
# A suffix that a vendor adds to the name of the same model: a date, or "latest".
_SNAPSHOT = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


def _claude(dollars: float, *, speed: float, intelligence: float, **more: Any) -> Traits:
    """Return the traits of a Claude model by its input price: output costs five times that, cached input a tenth."""
    usual = {"window_tokens": _MILLION, "output_tokens": 128_000, "temperature": False}
    return Traits(
        images=True,
        input_price=dollars,
        output_price=5 * dollars,
        cached_price=dollars / 10,
        written_price=dollars * 1.25,
        speed=speed,
        intelligence=intelligence,
        schemas="anthropic",
        **{**usual, **more},
    )


def _gpt(input_price: float, output_price: float, cached_price: float, *, speed: float, intelligence: float) -> Traits:
    """Return the traits of a current GPT model: they differ in price, speed and intelligence."""
    return Traits(
        images=True,
        window_tokens=1_050_000,
        output_tokens=128_000,
        temperature=False,
        input_price=input_price,
        output_price=output_price,
        cached_price=cached_price,
        written_price=input_price * 1.25,
        long_tokens=272_000,
        long_input_factor=2.0,
        long_output_factor=1.5,
        speed=speed,
        intelligence=intelligence,
        schemas="openai",
    )


_OLDER_CLAUDE: Mapping[str, Any] = MappingProxyType(
    {"window_tokens": 200_000, "output_tokens": 64_000, "temperature": True}
)
_TEMPERED: Mapping[str, Any] = MappingProxyType({"temperature": True})
_DEARER_HAIKU: Mapping[str, Any] = MappingProxyType(
    {"long_tokens": 100_000, "long_input_factor": 5.0, "long_output_factor": 5.0}
)

_KNOWN: Mapping[str, Traits] = MappingProxyType(
    {
        "anthropic:claude-fable-5-1": _claude(10.0, speed=0.2, intelligence=1.0),
        "anthropic:claude-opus-5-5": _claude(4.0, speed=0.5, intelligence=0.95),
        "anthropic:claude-opus-5": _claude(5.0, speed=0.5, intelligence=0.9),
        "anthropic:claude-opus-4-8": _claude(5.0, speed=0.45, intelligence=0.85),
        "anthropic:claude-opus-4-7": _claude(5.0, speed=0.45, intelligence=0.85),
        "anthropic:claude-opus-4-6": _claude(5.0, speed=0.45, intelligence=0.8, **_TEMPERED),
        "anthropic:claude-opus-4-5": _claude(5.0, speed=0.45, intelligence=0.75, **_OLDER_CLAUDE),
        "anthropic:claude-sonnet-5-5": _claude(2.0, speed=0.7, intelligence=0.85),
        "anthropic:claude-sonnet-5": _claude(2.0, speed=0.7, intelligence=0.8),
        "anthropic:claude-sonnet-4-6": _claude(3.0, speed=0.65, intelligence=0.75, **_TEMPERED),
        "anthropic:claude-sonnet-4-5": _claude(3.0, speed=0.65, intelligence=0.7, **_OLDER_CLAUDE),
        "anthropic:claude-haiku-5-5": _claude(0.1, speed=0.95, intelligence=0.65, **_DEARER_HAIKU),
        "anthropic:claude-haiku-4-5": _claude(1.0, speed=0.9, intelligence=0.55, **_OLDER_CLAUDE),
        "openai:gpt-6-astra": _gpt(10.0, 50.0, 1.0, speed=0.2, intelligence=1.0),
        "openai:gpt-6.1-sol": _gpt(2.0, 10.0, 0.1, speed=0.5, intelligence=0.95),
        "openai:gpt-6.1-terra": _gpt(1.0, 5.0, 0.05, speed=0.8, intelligence=0.85),
        "openai:gpt-6-sol": _gpt(2.0, 10.0, 0.2, speed=0.5, intelligence=0.9),
        "openai:gpt-6-luna": _gpt(0.1, 0.5, 0.01, speed=0.95, intelligence=0.7),
        "openai:gpt-5.6-terra": _gpt(2.0, 12.0, 0.2, speed=0.7, intelligence=0.75),
        "openai:gpt-5.6-luna": _gpt(0.2, 1.2, 0.02, speed=0.9, intelligence=0.6),
        "openai:gpt-4.1": Traits(
            images=True,
            window_tokens=1_047_576,
            output_tokens=32_768,
            input_price=2.0,
            output_price=8.0,
            cached_price=0.5,
            speed=0.6,
            intelligence=0.5,
            schemas="openai",
        ),
        "openai:gpt-audio": Traits(audio=True, output_tokens=16_384, speed=0.6, intelligence=0.5, schemas="openai"),
    }
)

# The traits of models that are not in the table, by provider.
_CAUTIOUS: Mapping[str, Traits] = MappingProxyType(
    {
        "anthropic": Traits(
            images=True, window_tokens=200_000, output_tokens=32_000, temperature=False, schemas="anthropic"
        ),
        "openai": Traits(images=True, window_tokens=128_000, output_tokens=16_384, temperature=False, schemas="openai"),
        "scripted": Traits(images=True, audio=True, schemas="plain", input_price=0.0, output_price=0.0),
    }
)
# Anything behind a custom endpoint. Servers of local models silently truncate a prompt that is too long.
_LOCAL = Traits(window_tokens=32_768, output_tokens=4096, schemas="openai")


def known_models() -> Mapping[str, Traits]:
    """Return the table: traits by ``provider:model``."""
    return _KNOWN


def is_known(name: str) -> bool:
    """Return True if a model is in the table, with or without a date suffix."""
    return _key(name) in _KNOWN


def traits_of(name: str, given: Mapping[str, Any] | None = None) -> Traits:
    """Return what a ``provider:model`` can do: the user's values, else the known ones, else cautious ones.

    Raises:
        ConfigError: the given traits are invalid.
    """
    provider = name.partition(":")[0]
    found = _KNOWN.get(_key(name)) or _CAUTIOUS.get(provider, _LOCAL)
    if not given:
        return found
    unknown = sorted(set(given) - set(Traits.__struct_fields__))
    if unknown:
        members = ", ".join(Traits.__struct_fields__)
        raise ConfigError(f"model.traits has {unknown[0]!r}, which is not a trait of a model; use: {members}")
    try:
        return msgspec.convert({**msgspec.to_builtins(found), **given}, Traits)
    except msgspec.ValidationError as error:
        raise ConfigError(f"model.traits of {name} is invalid: {error}") from error


def _key(name: str) -> str:
    return name if name in _KNOWN else _SNAPSHOT.sub("", name)
