"""Which model is opened, and the error if it cannot be."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.host.models.providers import KEY
from trunkline.errors import ConfigError
from trunkline.host.models.interface import ModelError
from trunkline.host.models.selection import PROVIDERS, ModelOptions, choose_model, open_model

BOTH = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}


@pytest.mark.parametrize(
    ("choice", "options", "environ", "name"),
    [
        pytest.param("ollama:a", {"name": "ollama:b"}, {"TRUNKLINE_MODEL": "ollama:c"}, "ollama:a", id="a-flag-first"),
        pytest.param(None, {"name": "ollama:b"}, {"TRUNKLINE_MODEL": "ollama:c"}, "ollama:b", id="then-the-table"),
        pytest.param(None, {}, {"TRUNKLINE_MODEL": "ollama:c", **BOTH}, "ollama:c", id="then-the-variable"),
        pytest.param(None, {}, BOTH, "anthropic:claude-sonnet-5-5", id="then-the-key-of-anthropic"),
        pytest.param(None, {}, {"OPENAI_API_KEY": KEY}, "openai:gpt-6.1-terra", id="then-the-key-of-openai"),
        pytest.param(None, {}, {"OPENAI_API_KEY": "", "TRUNKLINE_MODEL": ""}, None, id="and-nothing-is-nothing"),
    ],
)
def test_a_model_is_chosen_in_this_order(
    choice: str | None, options: dict[str, Any], environ: dict[str, str], name: str | None
) -> None:
    assert choose_model(choice, environ=environ, options=options) == name


@pytest.mark.parametrize("choice", ["claude-sonnet-5", "qwen3:8b", "", "OpenAI:x"])
def test_an_unknown_provider_is_reported_with_the_known_ones(choice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_model(choice or "x", environ={})
    assert [name for name in PROVIDERS if name not in str(caught.value)] == []


@pytest.mark.parametrize("choice", ["anthropic", "openai:", "ollama: "])
def test_a_provider_without_a_model_is_reported(choice: str) -> None:
    with pytest.raises(ConfigError, match="no model"):
        open_model(choice, environ={})


def test_without_a_choice_the_error_lists_the_ways_to_choose() -> None:
    with pytest.raises(ConfigError, match=r"--model.*TRUNKLINE_MODEL.*ANTHROPIC_API_KEY"):
        open_model(environ={})


@pytest.mark.parametrize(
    ("choice", "variable"), [("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"), ("openai:gpt-6-sol", "OPENAI_API_KEY")]
)
def test_a_missing_key_is_reported_with_its_variable(choice: str, variable: str) -> None:
    with pytest.raises(ModelError, match=variable) as caught:
        open_model(choice, environ={"TRUNKLINE_MODEL_KEY": KEY})
    assert caught.value.fault == "no key"


@pytest.mark.parametrize("package", ["anthropic", "openai"])
def test_an_sdk_that_is_not_installed_is_reported_with_the_command(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install 'trunkline\[{package}\]'"):
        open_model(f"{package}:x", environ=BOTH)


def test_an_endpoint_without_a_url_is_reported() -> None:
    with pytest.raises(ConfigError, match="TRUNKLINE_MODEL_URL"):
        open_model("compatible:x", environ={})


@pytest.mark.parametrize(
    ("url", "word"),
    [
        pytest.param("ftp://host/v1", "http", id="another-scheme"),
        pytest.param("localhost:11434", "http", id="no-scheme"),
        pytest.param("http://models.example/v1", "unencrypted", id="a-key-in-the-clear"),
        pytest.param("https://me:pw@models.example/v1", "user", id="a-password-in-the-url"),
    ],
)
def test_an_unusable_url_is_reported(url: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        open_model("compatible:x", environ={"TRUNKLINE_MODEL_URL": url, "TRUNKLINE_MODEL_KEY": KEY})


def test_the_key_of_a_vendor_does_not_go_where_a_file_says() -> None:
    with pytest.raises(ConfigError, match=r"model\.key is required too"):
        open_model("anthropic:claude-sonnet-5", environ=BOTH, options={"url": "https://elsewhere.example"})


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"pace": {"tries": "many"}}, "tries"),
        ({"traits": {"window": 5}}, "window_tokens"),
        ({"traits": {"images": "yes"}}, "images"),
        ({"key": "secret://model"}, "secret"),
    ],
)
def test_an_invalid_table_is_reported(table: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        open_model("ollama:qwen3", environ={}, options=table)


def test_a_secret_is_looked_up() -> None:
    pytest.importorskip("anthropic", reason="the package anthropic is not installed")
    asked: list[str] = []

    def secrets(reference: str) -> str:
        asked.append(reference)
        return KEY

    open_model("anthropic:claude-sonnet-5", environ={}, options={"key": "secret://claude"}, secrets=secrets)
    assert asked == ["secret://claude"]


def test_a_table_is_about_the_model_that_it_names() -> None:
    table = ModelOptions(name="ollama:llava", traits={"images": True}, url="http://gpu.local:11434/v1")
    assert open_model(environ={}, options=table).traits.images
    assert not open_model("ollama:qwen3", environ={}, options=table).traits.images
