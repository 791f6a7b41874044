"""The npm registry's API and the registries of one server.

Bounded requests, plain records from untrusted responses, and connections that are kept or closed with the call.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline_servers.api_client import (
    ApiClient,
    ApiError,
    ApiResponse,
    redact_token,
    redacted_url,
    require_secure_url,
)
from trunkline_servers.npm.config import ConfigLayers, NpmConfig, RegistryEndpoint
from trunkline_servers.npm.project import check_package_name
from trunkline_servers.npm.semver import Version, parse_version
from trunkline_servers.untrusted import as_dict, as_list, as_text

__all__ = [
    "Advisory",
    "CallRegistries",
    "Manifest",
    "PackageSummary",
    "Packument",
    "RegistryClient",
    "RegistryPool",
    "SearchPage",
]

_ABBREVIATED = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8"
_PACKUMENT_BYTES = 64 * 1024 * 1024
_MOST_MEMBERS = 300
_NOT_OFFERED = frozenset({404, 405, 501})
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


class PackageSummary(Struct, frozen=True):
    """A search result."""

    name: str
    version: str
    description: str = ""
    date: str = ""
    license: str = ""
    homepage: str = ""
    publisher: str = ""


class SearchPage(Struct, frozen=True):
    """A page of search results, and their total number."""

    total: int
    packages: list[PackageSummary]
    #: The registry that answered.
    registry: str


class Manifest(Struct, frozen=True):
    """One published version of a package."""

    name: str
    version: str
    description: str = ""
    license: str = ""
    homepage: str = ""
    repository: str = ""
    deprecated: str = ""
    engines: dict[str, str] = {}
    dependencies: dict[str, str] = {}
    peer_dependencies: dict[str, str] = {}
    maintainers: list[str] = []
    install_scripts: list[str] = []
    unpacked_size: int | None = None
    tarball: str = ""
    integrity: str = ""
    #: The registry that answered.
    registry: str = ""


class Packument(Struct, frozen=True):
    """All versions of a package, the deprecated ones, and the tags."""

    versions: dict[Version, str]
    deprecated: frozenset[Version]
    tags: dict[str, str]


class Advisory(Struct, frozen=True):
    """A known vulnerability of some versions of a package."""

    id: str
    title: str
    severity: str
    url: str
    vulnerable_versions: str


class RegistryClient:
    """Client of one registry."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        """Initialize with the registry's URL, and a token that is sent only there.

        Raises:
            ConfigError: the URL is invalid, or the token would be sent in the clear.
        """
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            self._api = ApiClient(url, service="The npm registry", headers=headers)
        except ConfigError as error:
            raise ConfigError(str(error).replace("of The", "of the")) from error
        if token:
            require_secure_url(url, "the npm registry")
        self._token = token
        #: Its URL, reported with every result.
        self.url = redacted_url(self._api.base)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._api.aclose()

    async def search(self, text: str, *, limit: int, offset: int) -> SearchPage:
        """Search by words."""
        query = {"text": text, "size": limit, "from": offset}
        answer = as_dict((await self._service("searches", "GET", "/-/v1/search", query=query)).json())
        packages = [_found(as_dict(as_dict(row).get("package"))) for row in as_list(answer.get("objects"))[:limit]]
        total = _number(answer.get("total"))
        return SearchPage(len(packages) if total is None else total, packages, self.url)

    async def manifest(self, name: str, version: str) -> Manifest:
        """Look up one version, by number or by tag."""
        if not _TAG.fullmatch(version):
            raise ToolError(f"{version[:100]!r} is not a version or tag: give one such as 1.2.3 or latest, not a range")
        path = self._api.path(check_package_name(name), version)
        return _manifest(as_dict((await self._request("GET", path, name=name)).json()), self.url)

    async def packument(self, name: str) -> Packument:
        """Look up all versions."""
        path = self._api.path(check_package_name(name))
        reply = await self._request("GET", path, name=name, headers={"accept": _ABBREVIATED})
        answer = as_dict(reply.json())
        versions: dict[Version, str] = {}
        deprecated: set[Version] = set()
        for text, row in as_dict(answer.get("versions")).items():
            if (version := parse_version(text)) is not None:
                versions[version] = text
                if as_dict(row).get("deprecated"):
                    deprecated.add(version)
        return Packument(versions, frozenset(deprecated), _texts(answer.get("dist-tags")))

    async def advisories(self, packages: Mapping[str, Sequence[str]]) -> dict[str, list[Advisory]]:
        """Query known vulnerabilities of these packages and versions."""
        path = "/-/npm/v1/security/advisories/bulk"
        answer = as_dict((await self._service("audits", "POST", path, body=packages)).json())
        return {name: [_advisory(as_dict(row)) for row in as_list(rows)] for name, rows in answer.items()}

    async def _service(self, what: str, method: str, path: str, **options: Any) -> ApiResponse:
        """Send a request that not every registry supports: mirrors often serve packages only."""
        try:
            return await self._api.request(method, path, **options)
        except ApiError as error:
            if error.status in _NOT_OFFERED:
                fix = "start this server with --registry and one that does"
                raise ToolError(f"The npm registry {self.url} does not offer {what} ({error.status}): {fix}") from error
            raise redact_token(error, self._token) from None

    async def _request(
        self, method: str, path: str, *, name: str, headers: Mapping[str, str] | None = None
    ) -> ApiResponse:
        try:
            return await self._api.request(method, path, headers=headers, max_bytes=_PACKUMENT_BYTES)
        except ApiError as error:
            if error.status == 404:
                raise ToolError(f"The npm registry {self.url} has no such package or version: {name}") from error
            raise redact_token(error, self._token) from None


# --- untrusted JSON --------------------------------------------------------------------------------------------------


def _number(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _texts(value: Any) -> dict[str, str]:
    pairs = [(name, text) for name, text in as_dict(value).items() if isinstance(text, str)]
    return {as_text(name): as_text(text) for name, text in pairs[:_MOST_MEMBERS]}


def _name_of(value: Any) -> str:
    record = as_dict(value)
    return as_text(record.get("username")) or as_text(record.get("name"))


def _licence(value: Any) -> str:
    return as_text(value) or as_text(as_dict(value).get("type"))


def _found(row: Mapping[str, Any]) -> PackageSummary:
    return PackageSummary(
        name=as_text(row.get("name")),
        version=as_text(row.get("version")),
        description=as_text(row.get("description")),
        date=as_text(row.get("date")),
        license=_licence(row.get("license")),
        homepage=as_text(as_dict(row.get("links")).get("homepage")),
        publisher=_name_of(row.get("publisher")),
    )


def _manifest(row: Mapping[str, Any], registry: str) -> Manifest:
    dist, repository = as_dict(row.get("dist")), row.get("repository")
    scripts = as_dict(row.get("scripts"))
    return Manifest(
        name=as_text(row.get("name")),
        version=as_text(row.get("version")),
        description=as_text(row.get("description")),
        license=_licence(row.get("license")),
        homepage=as_text(row.get("homepage")),
        repository=as_text(repository) or as_text(as_dict(repository).get("url")),
        deprecated=as_text(row.get("deprecated")),
        engines=_texts(row.get("engines")),
        dependencies=_texts(row.get("dependencies")),
        peer_dependencies=_texts(row.get("peerDependencies")),
        maintainers=[name for each in as_list(row.get("maintainers"))[:50] if (name := _name_of(each))],
        install_scripts=[name for name in ("preinstall", "install", "postinstall") if name in scripts],
        unpacked_size=_number(dist.get("unpackedSize")),
        tarball=as_text(dist.get("tarball")),
        integrity=as_text(dist.get("integrity")),
        registry=registry,
    )


def _advisory(row: Mapping[str, Any]) -> Advisory:
    number, versions = row.get("id"), row.get("vulnerable_versions")
    return Advisory(
        id=str(number) if isinstance(number, int) else as_text(number),
        title=as_text(row.get("title")),
        severity=as_text(row.get("severity")),
        url=as_text(row.get("url")),
        vulnerable_versions=versions if isinstance(versions, str) else "*",
    )


class CallRegistries:
    """The registries of one call."""

    def __init__(
        self, settings: NpmConfig, folder: Path | None, shared: dict[RegistryEndpoint, RegistryClient]
    ) -> None:
        """Initialize with the settings, and the folder of the project if there is one."""
        self._settings = settings
        self._folder = folder
        self._shared_clients = shared
        self._own: dict[RegistryEndpoint, RegistryClient] = {}
        self._layers: ConfigLayers | None = None

    def of(self, package: str | None = None) -> RegistryClient:
        """Return the registry of a package, or the default one without a package.

        Raises:
            ToolError: the configured registry cannot be used.
        """
        if self._layers is None:
            self._layers = self._settings.read(self._folder)
        place = self._layers.place(package)
        clients = self._own if place.from_project else self._shared_clients
        if place not in clients:
            try:
                clients[place] = RegistryClient(place.url, token=place.token)
            except ConfigError as error:
                raise ToolError(str(error)) from error
        return clients[place]

    async def aclose(self) -> None:
        """Close the registries named by a project."""
        for registry in self._own.values():
            await registry.aclose()


class RegistryPool:
    """The registries of one server."""

    def __init__(self, settings: NpmConfig) -> None:
        """Start without connections."""
        self._settings = settings
        self._shared_clients: dict[RegistryEndpoint, RegistryClient] = {}

    @asynccontextmanager
    async def chosen(self, folder: Path | None = None) -> AsyncIterator[CallRegistries]:
        """Provide the registries for one call, for the project in a folder if there is one."""
        chosen = CallRegistries(self._settings, folder, self._shared_clients)
        try:
            yield chosen
        finally:
            await chosen.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        # A call that is still running may add one.
        for registry in list(self._shared_clients.values()):
            await registry.aclose()
