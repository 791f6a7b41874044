"""``trunkline-server-openapi``: an OpenAPI document as a server."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import click

from trunkline.errors import ConfigError
from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.openapi.document import MAX_DOCUMENT_BYTES, read_document
from trunkline_servers.openapi.server import MAX_OPERATIONS, make_server

__all__ = ["command", "main"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EPILOG = """\
\b
Examples:
  trunkline-server-openapi pets.json --base-url https://pets.example.com
  trunkline-server-openapi https://api.example.com/openapi.json --read-only
  trunkline-server-openapi tracker.json --tag issues --auth oauth=API_TOKEN
"""


@click.command("trunkline-server-openapi", epilog=_EPILOG)
@click.argument("document", metavar="DOCUMENT|URL")
@click.option("--base-url", metavar="URL", help="Base URL of the API, if it differs from the document's server.")
@click.option("--include", multiple=True, metavar="GLOB", help="Offer only these: name, id, path or 'METHOD /path'.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Do not offer matching operations.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Offer only operations with this tag.")
@click.option("--method", "methods", multiple=True, metavar="METHOD", help="Offer only operations of this method.")
@click.option("--read-only", is_flag=True, help="Offer only GET and HEAD operations.")
@click.option("--resources", is_flag=True, help="Also offer GET operations as resources.")
@click.option("--auth", multiple=True, metavar="SCHEME=VARIABLE", help="Variable with the credential of a scheme.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Send this header with every request.")
@click.option("--header-env", multiple=True, metavar="NAME=VARIABLE", help="The same, with the value from a variable.")
@click.option(
    "--server-variable",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a variable in the document's server URL.",
)
@click.option("--no-output-schemas", is_flag=True, help="Declare no output schemas; some APIs break theirs.")
@click.option(
    "--max-operations",
    type=click.IntRange(1),
    default=MAX_OPERATIONS,
    metavar="OPERATIONS",
    show_default=True,
    help="Fail if more operations than this would be offered.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    default=1024 * 1024,
    metavar="BYTES",
    show_default=True,
    help="Largest response.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=30.0,
    metavar="SECONDS",
    show_default=True,
    help="Longest wait for a response.",
)
@click.option("--allow-private", is_flag=True, help="Allow fetching the document from a private network.")
@with_command_options
def command(
    document: str,
    *,
    base_url: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    tags: tuple[str, ...],
    methods: tuple[str, ...],
    read_only: bool,
    resources: bool,
    auth: tuple[str, ...],
    headers: tuple[str, ...],
    header_env: tuple[str, ...],
    variables: tuple[str, ...],
    no_output_schemas: bool,
    max_operations: int,
    max_bytes: int,
    seconds: float,
    allow_private: bool,
    serving: CommandOptions,
) -> None:
    """Offer the operations of an OpenAPI 3 document as tools.

    DOCUMENT is a JSON file, or a YAML file if PyYAML is installed. Credentials are read from environment variables,
    never from a model: --auth names the document's security scheme and the variable. Options that select operations,
    add headers or give credentials may be repeated.
    """
    server = make_server(
        read_document(document, allow_private=allow_private, max_bytes=MAX_DOCUMENT_BYTES),
        base_url=base_url,
        include=include,
        exclude=exclude,
        tags=tags,
        methods=methods,
        read_only=read_only,
        resources=resources,
        headers={**_pairs(headers, "--header"), **_from_environment(header_env, "--header-env")},
        auth=_from_environment(auth, "--auth"),
        variables=_pairs(variables, "--server-variable"),
        output_schemas=not no_output_schemas,
        max_operations=max_operations,
        max_bytes=max_bytes,
        seconds=seconds,
    )
    serving.run(server)


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            # The value is not repeated: it may be a credential that belongs in a variable.
            raise click.UsageError(f"{option}: write NAME=VALUE.")
        pairs[name] = value
    return pairs


def _from_environment(given: Sequence[str], option: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, variable in _pairs(given, option).items():
        if not _VARIABLE.fullmatch(variable):
            raise click.UsageError(f"{option} {name}=...: name the environment variable that holds the value.")
        value = os.environ.get(variable)
        if not value:
            raise ConfigError(f"{option} {name}={variable}: the variable {variable} is not set in the environment")
        values[name] = value
    return values


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
