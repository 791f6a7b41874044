"""Addresses that are typed behind ``--http``, and how people call what listens there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

__all__ = ["Address", "http_option", "read_address", "shown_url"]

Function = TypeVar("Function", bound=Callable[..., Any])

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):)?(?P<port>[0-9]{1,5})")
# What a server is bound to when it listens on every address; it is called by another name.
_EVERYWHERE = ("0.0.0.0", "[::]")


class Address(NamedTuple):
    """What was typed; what was not is left to whoever serves."""

    host: str | None = None
    port: int | None = None


def read_address(text: str) -> Address | None:
    """Read ``[HOST:]PORT``, or nothing; None if it is neither."""
    if not text:
        return Address()
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    host = found["host"]
    return Address(None if host is None else host.strip("[]"), int(found["port"]))


def _read(context: click.Context, option: click.Parameter, value: str | None) -> Address | None:
    address = None if value is None else read_address(value)
    if value is not None and address is None:
        raise click.BadParameter(
            f"{value!r} is no [HOST:]PORT; --http alone goes behind the file, or last.", context, option
        )
    return address


def http_option(function: Function) -> Function:
    """Add ``--http [HOST:]PORT`` as ``address``."""
    option = click.option(
        "--http",
        "address",
        metavar="[HOST:]PORT",
        is_flag=False,
        flag_value="",
        callback=_read,
        help="Serve over HTTP; without an address at 127.0.0.1:8000.",
    )
    return option(function)


def shown_url(origin: str, path: str) -> tuple[str, str]:
    """Give the URL by which this machine calls an address, and a remark if others can, too."""
    scheme, _, where = origin.partition("://")
    host, _, port = where.rpartition(":")
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    everywhere = " (and every other address of this machine)" if host in _EVERYWHERE else ""
    return f"{scheme}://{here}:{port}{path}", everywhere
