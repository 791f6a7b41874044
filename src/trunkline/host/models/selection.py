"""Known models with their windows, capabilities and prices, and the choice and opening of one; nothing is sent yet.

Prices and windows are the vendors' own, as published when this file was last changed. No model needs to be listed here:
one that is not gets cautious traits of its provider, and the user's own traits override any of them.

A model is named ``provider:model`` and chosen in this order: the explicit choice (a flag), the ``model`` table of the
configuration, ``TRUNKLINE_MODEL``, and last the vendor whose key is in the environment. A key is sent to its own vendor
and nowhere else: a custom endpoint gets the key that was given for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.models.interface import Model, Traits
from trunkline.host.models.provider import ModelLimits
from trunkline.net.addresses import is_loopback

__all__ = ["PROVIDERS", "ModelOptions", "choose_model", "is_known", "known_models", "open_model", "traits_of"]

_MILLION = 1_000_000  # Tokens.
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
    return _lookup_key(name) in _KNOWN


def traits_of(name: str, given: Mapping[str, Any] | None = None) -> Traits:
    """Return what a ``provider:model`` can do: the user's values, else the known ones, else cautious ones.

    Raises:
        ConfigError: the given traits are invalid.
    """
    provider = name.partition(":")[0]
    found = _KNOWN.get(_lookup_key(name)) or _CAUTIOUS.get(provider, _LOCAL)
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


def _lookup_key(name: str) -> str:
    return name if name in _KNOWN else _SNAPSHOT.sub("", name)


_HOW = (
    "name one as provider:model with --model, in TRUNKLINE_MODEL or in the configuration, such as "
    "anthropic:claude-sonnet-5-5, openai:gpt-6.1-terra or ollama:qwen3"
)


class _Endpoint(Struct, frozen=True):
    """A model server that users run themselves."""

    label: str
    url: str
    start: str
    missing_model: str


_ENDPOINTS: Mapping[str, _Endpoint] = MappingProxyType(
    {
        "ollama": _Endpoint(
            "Ollama", "http://localhost:11434/v1", "start it with: ollama serve", "get it with: ollama pull {model}"
        ),
        "llamacpp": _Endpoint(
            "llama.cpp",
            "http://localhost:8080/v1",
            "start it with: llama-server -m MODEL.gguf --jinja",
            "start it with that model",
        ),
        "vllm": _Endpoint(
            "vLLM", "http://localhost:8000/v1", "start it with: vllm serve {model}", "start it with that model"
        ),
        "lmstudio": _Endpoint("LM Studio", "http://localhost:1234/v1", "start its server", "load it there"),
        "compatible": _Endpoint("The endpoint", "", "check its URL, and that it runs", "check its name"),
    }
)
#: The known providers: the word before the colon.
PROVIDERS: tuple[str, ...] = ("anthropic", "openai", *_ENDPOINTS, "scripted")
# The default model if a vendor's key is in the environment.
_BY_KEY: Mapping[str, str] = MappingProxyType(
    {"ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5", "OPENAI_API_KEY": "openai:gpt-6.1-terra"}
)
_VENDORS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    }
)


class ModelOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``model`` table of a configuration."""

    #: The model, as ``provider:model``.
    name: str | None = None
    #: Its URL, if not the provider's usual one; for endpoints including ``/v1``.
    url: str | None = None
    #: The key, or better a ``secret://`` reference to it; without it, the provider's environment variable.
    key: str | None = None
    #: What the model can do, where that is unknown or wrong.
    traits: dict[str, Any] = {}
    #: Timeouts, retries and the maximum size of an answer.
    pace: ModelLimits = ModelLimits()
    #: For OpenAI: ``responses`` or ``chat``.
    api: str | None = None
    #: For Anthropic: whether the beginning of a conversation is cached at the provider.
    cache: bool = True
    #: For endpoints: the proxy's URL, the empty string for none.
    proxy: str | None = None
    #: For endpoints: a file with the certificates to trust.
    ca_file: str | None = None


def choose_model(
    choice: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    options: ModelOptions | Mapping[str, Any] | None = None,
) -> str | None:
    """Return the model that would be opened, as ``provider:model``; None if none was chosen.

    Raises:
        ConfigError: the choice is invalid.
    """
    env = os.environ if environ is None else environ
    chosen = choice or _options(options).name or env.get("TRUNKLINE_MODEL")
    if chosen:
        return _checked(chosen)
    return next((name for variable, name in _BY_KEY.items() if env.get(variable)), None)


def open_model(
    choice: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    options: ModelOptions | Mapping[str, Any] | None = None,
    secrets: Callable[[str], str] | None = None,
) -> Model:
    """Open the chosen model; ``secrets`` resolves a ``secret://`` reference.

    Raises:
        ConfigError: no model was chosen, it is unknown, or what it needs is not installed.
        ModelError: there is no key for it.
    """
    env = os.environ if environ is None else environ
    given = _options(options)
    name = choose_model(choice, environ=env, options=given)
    if name is None:
        raise ConfigError(f"No model was chosen: {_HOW}; or set ANTHROPIC_API_KEY or OPENAI_API_KEY.")
    if given.name is not None and name != given.name:
        # The other settings of the table apply to the model that it names.
        given = ModelOptions(pace=given.pace)
    provider, _, model = name.partition(":")
    if provider == "scripted":
        from trunkline.host.models.scripted import read_script

        return read_script(model, traits=given.traits)
    key = _key(given.key, secrets)
    if provider in _VENDORS:
        return _vendor(provider, model, given, env=env, key=key)
    return _endpoint(provider, model, given, env=env, key=key)


def _vendor(provider: str, model: str, given: ModelOptions, *, env: Mapping[str, str], key: str | None) -> Model:
    from trunkline.host.models.anthropic import AnthropicModel
    from trunkline.host.models.openai import OpenAIModel
    from trunkline.host.models.provider import SDKOptions

    key_variable, url_variable = _VENDORS[provider]
    if given.url and not key:
        raise ConfigError(
            f"model.url sets the address of {provider}:{model}, so model.key is required too: the key in "
            f"{key_variable} is only sent to {provider}, or to the address in {url_variable}."
        )
    url = given.url or env.get(url_variable) or None
    options = SDKOptions(
        key=key or env.get(key_variable) or None, url=url, pace=given.pace, cache=given.cache, api=given.api
    )
    if url is not None:
        _check_url(url, with_key=options.key is not None)
    traits = traits_of(f"{provider}:{model}", given.traits)
    if provider == "anthropic":
        return AnthropicModel(model, options, traits=traits)
    return OpenAIModel(model, options, traits=traits)


def _endpoint(provider: str, model: str, given: ModelOptions, *, env: Mapping[str, str], key: str | None) -> Model:
    from trunkline.host.models.openai_compatible import CompatibleModel, CompatibleOptions

    usual = _ENDPOINTS[provider]
    name = f"{provider}:{model}"
    url = given.url or env.get("TRUNKLINE_MODEL_URL") or usual.url
    if not url:
        raise ConfigError(
            f"{name} needs the URL of its endpoint: set TRUNKLINE_MODEL_URL, such as http://host:8000/v1."
        )
    if not given.url:
        # A key from the environment goes to the URL from the environment, or to this machine.
        key = key or env.get("TRUNKLINE_MODEL_KEY") or None
    _check_url(url, with_key=key is not None)
    options = CompatibleOptions(
        url=url,
        key=key,
        pace=given.pace,
        proxy=given.proxy,
        ca_file=given.ca_file,
        label=usual.label,
        key_from="model.key" if given.url else "TRUNKLINE_MODEL_KEY",
        start=usual.start.format(model=model),
        missing_model=usual.missing_model.format(model=model),
    )
    return CompatibleModel(name, options, traits=traits_of(name, given.traits))


# --- checks ----------------------------------------------------------------------------------------------------------


def _options(options: ModelOptions | Mapping[str, Any] | None) -> ModelOptions:
    if options is None:
        return ModelOptions()
    if isinstance(options, ModelOptions):
        return options
    try:
        return msgspec.convert(dict(options), ModelOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The model table of the configuration is invalid: {error}") from error


def _checked(chosen: str) -> str:
    provider, colon, model = chosen.partition(":")
    if provider not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        raise ConfigError(f"{chosen!r} names no known model: {_HOW}. Providers are: {known}.")
    if not colon or not model.strip():
        raise ConfigError(f"{chosen!r} names a provider but no model: write {provider}:MODEL.")
    return chosen


def _key(given: str | None, secrets: Callable[[str], str] | None) -> str | None:
    if given is None or not given.startswith("secret://"):
        return given
    if secrets is None:
        raise ConfigError("model.key is a secret:// reference, which cannot be resolved here: set the key's variable.")
    return secrets(given)


def _check_url(url: str, *, with_key: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("The URL of the model must use http or https, such as http://localhost:11434/v1.")
    if parts.username or parts.password or parts.query:
        raise ConfigError("The URL of the model contains a user or a query: pass a key with TRUNKLINE_MODEL_KEY.")
    if with_key and parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(f"The key would be sent to {parts.hostname} unencrypted: use https, or remove the key.")
