"""``server.json`` of the official registry: parsed into entries with blanks, which never run what the file names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.console.support import library, on_console, refused
from trunkline.console.server_json import RegistryChoice, fill_in, parse_server_json
from trunkline.errors import ConfigError


def _parsed(**members: Any) -> RegistryChoice:
    document = {"name": "io.github.ada/weather", "description": "Weather", "version": "1.0.0", **members}
    return parse_server_json(json.dumps(document)).choices[0]


def _package(**members: Any) -> RegistryChoice:
    return _parsed(packages=[{"identifier": "weather", "version": "1.0.2", "transport": {"type": "stdio"}, **members}])


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ({"registryType": "npm", "identifier": "@ada/weather"}, "npx -y @ada/weather@1.0.2"),
        ({"registry_type": "npm"}, "npx -y weather@1.0.2"),
        ({"registry_name": "npm", "identifier": None, "name": "old"}, "npx -y old@1.0.2"),
        ({"registryType": "npm", "runtimeHint": "bunx"}, "bunx weather@1.0.2"),
        ({"registryType": "npm", "runtimeHint": "rm"}, "npx -y weather@1.0.2"),
        ({"registryType": "pypi", "runtimeHint": "uvx"}, "uvx weather@1.0.2"),
        ({"registryType": "pypi", "version": None}, "uvx weather"),
        ({"registryType": "pypi", "runtimeHint": "pipx"}, "pipx run weather==1.0.2"),
        ({"registryType": "oci", "registryBaseUrl": "https://docker.io"}, "docker run -i --rm weather:1.0.2"),
        ({"registryType": "oci", "registryBaseUrl": "https://ghcr.io"}, "docker run -i --rm ghcr.io/weather:1.0.2"),
        ({"registryType": "oci", "identifier": "ghcr.io/a/w:2"}, "docker run -i --rm ghcr.io/a/w:2"),
        ({"registryType": "nuget"}, "dnx weather@1.0.2 --yes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_package_is_run_by_the_runner_of_its_registry(package: dict[str, Any], command: str) -> None:
    entry = _package(**package).entry
    assert " ".join([entry["command"], *entry["args"]]) == command


def test_arguments_and_variables_become_blanks() -> None:
    choice = _package(
        registryType="npm",
        runtimeArguments=[{"type": "named", "name": "--mount", "value": "src={source}", "variables": {
            "source": {"description": "Path here", "isRequired": True}}}],
        packageArguments=[
            {"type": "positional", "value": "start"},
            {"type": "positional", "valueHint": "folder", "isRequired": True, "default": "/srv"},
            {"type": "named", "name": "--port", "format": "number", "valueHint": "port"},
            {"type": "named", "name": "--verbose"},
        ],
        environmentVariables=[
            {"name": "API_KEY", "description": "Your key", "isRequired": True, "isSecret": True},
            {"name": "UNITS", "value": "metric"},
            {"name": "REGION", "default": "eu", "choices": ["eu", "us"]},
        ],
    )  # fmt: skip
    assert choice.entry == {
        "command": "npx",
        "args": [
            "-y",
            "--mount",
            "src={source}",
            "weather@1.0.2",
            "start",
            "{folder}",
            "--port",
            "{port}",
            "--verbose",
        ],
        "env": {"API_KEY": "{API_KEY}", "UNITS": "metric", "REGION": "{REGION}"},
    }
    inputs = {each.name: each for each in choice.inputs}
    assert list(inputs) == ["API_KEY", "REGION", "source", "folder", "port"]
    assert (inputs["API_KEY"].required, inputs["API_KEY"].secret, inputs["API_KEY"].description) == (
        True,
        True,
        "Your key",
    )
    assert (inputs["folder"].default, inputs["port"].required, inputs["REGION"].choices) == (
        "/srv",
        False,
        ("eu", "us"),
    )


def test_blanks_without_a_value_are_left_out_with_their_flags() -> None:
    entry = {
        "command": "npx",
        "args": ["-y", "w", "{folder}", "--port", "{port}", "--at={at}", "--verbose"],
        "env": {"KEY": "{KEY}", "OTHER": "{OTHER}"},
    }
    values = {"folder": "/srv", "port": "", "at": "", "KEY": "k", "OTHER": ""}
    assert fill_in(entry, values) == {
        "command": "npx",
        "args": ["-y", "w", "/srv", "--verbose"],
        "env": {"KEY": "k"},
    }


def test_a_remote_has_headers_and_variables() -> None:
    choice = _parsed(
        remotes=[
            {
                "type": "streamable-http",
                "url": "https://{tenant}.example.com/mcp",
                "variables": {"tenant": {"description": "Tenant", "isRequired": True}},
                "headers": [{"name": "Authorization", "value": "Bearer {token}", "variables": {
                    "token": {"isSecret": True}}}, {"name": "X-Region", "default": "eu"}],
            }
        ]
    )  # fmt: skip
    assert choice.entry == {
        "type": "http",
        "url": "https://{tenant}.example.com/mcp",
        "headers": {"Authorization": "Bearer {token}", "X-Region": "{X-Region}"},
    }
    assert [(each.name, each.required, each.secret) for each in choice.inputs] == [
        ("tenant", True, False),
        ("token", False, True),
        ("X-Region", False, False),
    ]


@pytest.mark.parametrize(
    "package",
    [
        {"registryType": "npm", "environmentVariables": [{"name": "X", "value": "${AWS_SECRET_ACCESS_KEY}"}]},
        {"registryType": "npm", "environmentVariables": [{"name": "X", "value": "secret://github"}]},
        {"registryType": "npm", "packageArguments": [{"type": "positional", "default": "${env:HOME}"}]},
        {"registryType": "npm", "identifier": "--eval=evil"},
        {"registryType": "mcpb"},
        {"registryType": "npm", "transport": {"type": "streamable-http", "url": "http://localhost:{port}/mcp"}},
    ],
    ids=["variable", "secret", "default", "option", "bundle", "service"],
)
def test_what_cannot_be_run_or_reads_the_users_secrets_is_refused(package: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be added"):
        _package(**package)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x"}', "nonsense", '{"servers": []}', '{"name": 7}'])
def test_what_is_no_server_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_server_json(text)


def test_the_answer_of_a_registry_is_unwrapped_and_the_name_fits_a_configuration() -> None:
    server = {"name": "io.github.ada/weather station", "remotes": [{"type": "sse", "url": "https://a.example/sse"}]}
    found = parse_server_json(json.dumps({"server": server, "_meta": {}}))
    assert (found.name, found.id) == ("weather-station", "io.github.ada/weather station")
    assert found.choices[0].entry == {"type": "sse", "url": "https://a.example/sse"}


async def test_the_api_parses_a_text_and_fetches_only_public_addresses(tmp_path: Path) -> None:
    text = json.dumps({"name": "a/b", "packages": [{"registryType": "pypi", "identifier": "b"}]})
    async with on_console({"lib": library()}, tmp_path) as stage:
        client = stage.client()
        found = await client.post("/registry", {"text": text})
        assert (found["name"], found["choices"][0]["entry"]) == ("b", {"command": "uvx", "args": ["b"]})
        failure = await refused(client.post("/registry", {"url": "http://127.0.0.1:1/server.json"}))
        assert (failure.status, failure.code) == (502, "not_fetched")
        failure = await refused(client.post("/registry", {"text": "{"}))
        assert (failure.status, failure.code) == (400, "invalid_server_json")
