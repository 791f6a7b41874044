"""An OpenAPI document: read within limits, with references that stay inside it, and the servers that it names.

A document may come from anyone. It is never allowed to fetch or open anything: a reference that leaves the document is
rejected by name. Depth, size and reference chains are bounded, also where YAML aliases expand a small file.

A document that was fetched over the network may name only the server it came from: otherwise its author would decide
which machine near us is called, and with which credentials. For any other server the user gives ``--base-url``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError, FetchError
from trunkline.net import ParsedURL, parse_url, special_range
from trunkline_servers.untrusted import as_dict, as_list, one_line, printable, truncate

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "Document",
    "base_url_of",
    "clean_text",
    "fetch_document",
    "is_url",
    "operation_base_url",
    "read_document",
]

#: Largest document that is read, in bytes.
MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
_MAX_DEPTH = 100
_MAX_NODES = 3_000_000
_MAX_CHAIN = 32
_CHOICES_SHOWN = 20
_VERSION = re.compile(r"3\.(\d+)(?:\.|$)")
_BUNDLE = "bundle the document into one file first, for example with: npx @redocly/cli bundle openapi.yaml -o one.json"


class Document(Struct, frozen=True):
    """A validated document and its origin."""

    root: dict[str, Any]
    #: The name used in messages.
    name: str
    #: The URL it was fetched from, if any.
    url: str | None = None

    @property
    def is_3_0(self) -> bool:
        """Whether its schemas use the dialect of 3.0, which is not quite JSON Schema."""
        return str(self.root["openapi"]).startswith("3.0")

    def follow(self, node: Any, what: str) -> dict[str, Any]:
        """Return the object that a node is, or refers to.

        Raises:
            ConfigError: a reference leaves the document, is circular, or has no target.
        """
        for _ in range(_MAX_CHAIN):
            if not isinstance(node, dict):
                raise ConfigError(f"{self.name}: {what} must be an object")
            if "$ref" not in node:
                return node
            node = self.target(node["$ref"], what)
        raise ConfigError(f"{self.name}: {what} is a chain of references without an end")

    def target(self, reference: Any, what: str) -> Any:
        """Return the target of a reference inside the document.

        Raises:
            ConfigError: it leaves the document or has no target.
        """
        if not isinstance(reference, str) or not reference.startswith("#"):
            shown = repr(reference)[:120]
            raise ConfigError(
                f"{self.name}: {what} refers to {shown}, outside the document, which is never fetched: {_BUNDLE}"
            )
        node: Any = self.root
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            raise ConfigError(f"{self.name}: {what} refers to the anchor {reference[:120]!r}: use a path such as #/a/b")
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(step)] if isinstance(node, list) else node[step]
            except (IndexError, KeyError, TypeError, ValueError):
                raise ConfigError(f"{self.name}: {what} refers to {reference[:120]!r}, which is not there") from None
        return node


# --- reading ---------------------------------------------------------------------------------------------------------


def is_url(source: object) -> bool:
    """Return True if a source is an http or https URL rather than a file name."""
    return isinstance(source, str) and re.match(r"https?://", source, re.IGNORECASE) is not None


def read_document(
    source: Mapping[str, Any] | str | Path, *, allow_private: bool = False, max_bytes: int = MAX_DOCUMENT_BYTES
) -> Document:
    """Load a document from a file, a URL or a mapping; a URL only outside of an event loop.

    Raises:
        ConfigError: it cannot be read, is too large, or is not an OpenAPI 3.x document.
    """
    if isinstance(source, Mapping):
        return _checked(dict(source), name="The document")
    if is_url(source):
        import asyncio

        work = fetch_document(str(source), allow_private=allow_private, max_bytes=max_bytes)
        try:
            return asyncio.run(work)
        except RuntimeError as error:
            work.close()
            raise ConfigError(f"{source}: inside an event loop, use `await fetch_document(url)`") from error
    path = Path(source)
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read ({reason}): give the file or URL of an OpenAPI document") from error
    return _parsed(data, name=path.name, max_bytes=max_bytes)


async def fetch_document(
    url: str, *, allow_private: bool = False, max_bytes: int = MAX_DOCUMENT_BYTES, seconds: float = 30.0
) -> Document:
    """Fetch a document; plain http only from this machine, private networks only if allowed.

    Raises:
        ConfigError: it cannot be fetched, is too large, or is not an OpenAPI 3.x document.
    """
    from trunkline.net import Fetcher

    accept = {"accept": "application/json, application/yaml;q=0.9, */*;q=0.1"}
    try:
        async with Fetcher(allow_loopback=True, allow_private=allow_private) as fetcher:
            answer = await fetcher.fetch("GET", url, headers=accept, max_bytes=max_bytes, seconds=seconds)
    except FetchError as error:
        hint = (
            "; --allow-private lets it be fetched from a private network" if "not on the public" in str(error) else ""
        )
        raise ConfigError(f"The document cannot be fetched. {error}{hint}") from error
    except ImportError as error:
        raise ConfigError("A document is fetched with aiohttp: pip install 'trunkline[servers]'") from error
    if answer.status != 200:
        raise ConfigError(f"The document cannot be fetched: the server answered {answer.status}")
    return _parsed(answer.body, name="The fetched document", url=answer.url, max_bytes=max_bytes)


def _parsed(data: bytes, *, name: str, url: str | None = None, max_bytes: int) -> Document:
    if len(data) > max_bytes:
        raise ConfigError(f"{name} is larger than {max_bytes} bytes")
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value = msgspec.json.decode(data) if data.lstrip()[:1] in (b"{", b"[") else _yaml(data, name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON: {error}") from error
    return _checked(value, name=name, url=url)


def _checked(value: Any, *, name: str, url: str | None = None) -> Document:
    """Validate that a value is a document of a supported version, not too deep and not too large."""
    _check_size(value, name)
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is not an OpenAPI document: it must be an object")
    if "swagger" in value:
        raise ConfigError(
            f"{name} is Swagger {str(value['swagger'])[:10]}, not OpenAPI 3: convert it, for example with: "
            "npx swagger2openapi swagger.json -o openapi.json"
        )
    version = value.get("openapi")
    if not isinstance(version, str) or not _VERSION.match(version):
        raise ConfigError(f'{name} is not an OpenAPI 3 document: "openapi" must be a version such as "3.1.0"')
    return Document(_with_text_keys(value), name, url)


def _check_size(value: Any, name: str) -> None:
    """Reject a value that is too deep, or too large once its aliases are expanded."""
    count, level = 0, [value]
    for _ in range(_MAX_DEPTH):
        count += len(level)
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict | list):
                below.extend(node.values() if isinstance(node, dict) else node)
            if count + len(below) > _MAX_NODES:
                raise ConfigError(f"{name} has more than {_MAX_NODES} values in it")
        if not below:
            return
        level = below
    raise ConfigError(f"{name} is nested deeper than {_MAX_DEPTH} levels")


def _with_text_keys(value: Any) -> Any:
    """Return a copy in which every key is a string: YAML reads a status such as 200 as a number."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else msgspec.json.encode(key).decode(): _with_text_keys(item)
            for key, item in value.items()
        }
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


# --- YAML ------------------------------------------------------------------------------------------------------------

#: The plain scalars that YAML 1.2 does not read as strings; no dates, no "no", no merge keys.
_PLAIN = (
    ("tag:yaml.org,2002:null", r"(?:~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("tag:yaml.org,2002:bool", r"(?:true|True|TRUE|false|False|FALSE)$", tuple("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?(?:0|[1-9][0-9]*)$", tuple("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$",
        tuple("-+.0123456789"),
    ),
)


def _yaml(data: bytes, name: str) -> Any:
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise ConfigError(
            f"{name} is not JSON. If it is YAML, install PyYAML (pip install pyyaml), or convert it, for example with: "
            "npx js-yaml openapi.yaml > openapi.json"
        ) from None
    loader: Any = type("_PlainLoader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    for tag, pattern, first in _PLAIN:
        loader.add_implicit_resolver(tag, re.compile(pattern), list(first))
    try:
        return yaml.load(data, Loader=loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{name} is neither JSON nor YAML: {one_line(str(error), 200)}") from error


# --- untyped members -------------------------------------------------------------------------------------------------


def clean_text(value: Any, most: int = 10_000) -> str:
    """Return text without unprintable characters, truncated; an empty string for anything but text."""
    if not isinstance(value, str):
        return ""
    text = printable(value, replacement="nothing", keep="\n\t").strip()
    return text if len(text) <= most else truncate(text, most - 1)


_VARIABLE = re.compile(r"\{([^{}]*)\}")
_FIX = "give the URL of the API with --base-url"
_DOTS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
#: Address ranges where clouds and networks serve data for this machine only, such as its credentials.
_REFUSED_RANGES = (
    "a link-local address",
    "an IPv4 address in an IPv6 one",
    "an address of a cloud's own services",
    "an unspecified address",
)


#: Metadata services of clouds at other than link-local addresses.
_METADATA_HOSTS = frozenset(
    {
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.goog",
        "metadata.google.internal",
    }
)


def base_url_of(document: Document, given: str | None, *, variables: Mapping[str, str] | None = None) -> str:
    """Return the base URL of the API: the one given by the user, else the first server of the document.

    Raises:
        ConfigError: there is none, or the document may not choose it.
    """
    if given is not None:
        return _target(given, "--base-url").url.rstrip("/")
    servers = as_list(document.root.get("servers")) or [{"url": "/"}]
    target = _named(document, servers[0], variables or {})
    if document.url is not None and target.origin != parse_url(document.url).origin:
        raise ConfigError(
            f"{document.name} names the server {target.scheme}://{target.where}, which is not where it was fetched "
            f"from; if that is right, {_FIX}"
        )
    return target.url.rstrip("/")


def operation_base_url(
    document: Document, servers: Any, base: str, *, variables: Mapping[str, str] | None = None
) -> str | None:
    """Return the base URL of an operation that names its own servers; None if that is another origin.

    Raises:
        ConfigError: the named server is not a valid URL.
    """
    target = _named(document, (as_list(servers) or [{}])[0], variables or {}, near=f"{base}/")
    return target.url.rstrip("/") if target.origin == parse_url(base).origin else None


def _named(document: Document, server: Any, variables: Mapping[str, str], near: str | None = None) -> ParsedURL:
    entry = as_dict(server)
    known = as_dict(entry.get("variables"))

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in known:
            raise ConfigError(
                f"{document.name}: its server has the variable {name!r}, which it does not define; {_FIX}"
            )
        allowed = as_list(as_dict(known[name]).get("enum"))
        chosen = variables.get(name, as_dict(known[name]).get("default"))
        if not isinstance(chosen, str):
            raise ConfigError(f"The server variable {name!r} has no default; set --server-variable {name}=VALUE")
        if allowed and chosen not in allowed:
            choices = ", ".join(str(each)[:100] for each in allowed[:_CHOICES_SHOWN])
            raise ConfigError(f"The server variable {name!r} cannot be {chosen[:100]!r}; allowed: {choices}")
        return chosen

    url = _VARIABLE.sub(value, str(entry.get("url", "/")))
    if not urlsplit(url).scheme:
        known_from = document.url or near
        if known_from is None:
            raise ConfigError(f"{document.name} does not say at which host its server {url[:100]!r} is; {_FIX}")
        url = urljoin(known_from, url)
    target = _target(url, f"The server of {document.name}")
    special = special_range(target.host) if target.is_address else None
    if target.host.lower().strip("[].") in _METADATA_HOSTS:
        special = "an address of a cloud's own services"
    if special in _REFUSED_RANGES:
        raise ConfigError(f"{document.name} names the server {target.where}, {special}; if that is right, {_FIX}")
    return target


def _target(url: str, what: str) -> ParsedURL:
    try:
        target = parse_url(url)
    except FetchError as error:
        raise ConfigError(f"{what} must be an http or https URL. {error}") from error
    if "?" in target.rest or _DOTS.search(target.rest):
        raise ConfigError(f'{what} must be a plain URL, without a query and without ".."')
    return target
