"""Selects and opens a model: ``provider:model`` by flag, configuration or environment; nothing is sent yet.

In this order: the explicit choice (a flag), the ``model`` table of the configuration, ``TRUNKLINE_MODEL``, and last the
vendor whose key is in the environment. A key is sent to its own vendor and nowhere else: a custom endpoint gets the key
that was given for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.models.interface import Model
from trunkline.host.models.known import traits_of
from trunkline.host.models.pacing import Pace
from trunkline.net.addresses import is_loopback

__all__ = ["PROVIDERS", "ModelOptions", "choose_model", "open_model"]

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
    pace: Pace = Pace()
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
        from trunkline.host.models.script_files import read_script

        return read_script(model, traits=given.traits)
    key = _key(given.key, secrets)
    if provider in _VENDORS:
        return _vendor(provider, model, given, env=env, key=key)
    return _endpoint(provider, model, given, env=env, key=key)


def _vendor(provider: str, model: str, given: ModelOptions, *, env: Mapping[str, str], key: str | None) -> Model:
    from trunkline.host.models.anthropic import AnthropicModel
    from trunkline.host.models.openai import OpenAIModel
    from trunkline.host.models.vendors import VendorOptions

    key_variable, url_variable = _VENDORS[provider]
    if given.url and not key:
        raise ConfigError(
            f"model.url sets the address of {provider}:{model}, so model.key is required too: the key in "
            f"{key_variable} is only sent to {provider}, or to the address in {url_variable}."
        )
    url = given.url or env.get(url_variable) or None
    options = VendorOptions(
        key=key or env.get(key_variable) or None, url=url, pace=given.pace, cache=given.cache, api=given.api
    )
    if url is not None:
        _check_url(url, with_key=options.key is not None)
    traits = traits_of(f"{provider}:{model}", given.traits)
    if provider == "anthropic":
        return AnthropicModel(model, options, traits=traits)
    return OpenAIModel(model, options, traits=traits)


def _endpoint(provider: str, model: str, given: ModelOptions, *, env: Mapping[str, str], key: str | None) -> Model:
    from trunkline.host.models.compatible import CompatibleModel, CompatibleOptions

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
