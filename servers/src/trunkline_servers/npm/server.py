"""The npm server's tools: queries of the registry, checks of a project, and running its scripts after consent."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from trunkline import ConfigError, Context, MissingCapability, Server, ToolError, __version__
from trunkline_servers.api_client import read_token
from trunkline_servers.npm.config import NpmConfig
from trunkline_servers.npm.dependencies import AuditReport, OutdatedReport, Severity, audit, outdated
from trunkline_servers.npm.project import Project, check_package_name, find_project
from trunkline_servers.npm.registry import Manifest, RegistryClient, RegistryPool, SearchPage
from trunkline_servers.npm.scripts import ScriptResult, plan_script, run_script_plan, script_environment
from trunkline_servers.roots import AllowedFolders

__all__ = ["ScriptOptions", "make_server"]

_INSTRUCTIONS = (
    "Look packages up in the npm registry, check a project's dependencies, and run its scripts. A path is a project "
    "folder inside the allowed folders; without one the first of them is used. Running a script asks the user."
)
_BEAT_SECONDS = 10.0
_LOOKS = MappingProxyType({"readOnlyHint": True, "openWorldHint": True})
_READS = MappingProxyType({"readOnlyHint": True, "openWorldHint": False})
_RUNS = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
)

_Name = Annotated[str, Meta(description="A package, such as react or @types/node")]
_Path = Annotated[str | None, Meta(description="The project folder; the first allowed folder if absent")]
_Of = Annotated[str | None, Meta(description="A project folder whose .npmrc applies too; only the user's if absent")]


class ScriptOptions(Struct, frozen=True, kw_only=True):
    """Options for running scripts."""

    #: Run without asking the user.
    without_asking: bool = False
    #: The npm program, by path or by name on the PATH; ``npm`` if absent.
    npm: str | None = None
    seconds: float = 300.0
    output_bytes: int = 64 * 1024
    #: Additional environment variables that scripts may see.
    passed: tuple[str, ...] = ()


class VersionList(Struct, frozen=True):
    """Versions of a package, newest first."""

    name: str
    total: int
    versions: list[str]
    deprecated: list[str]
    tags: dict[str, str]
    #: The registry that answered.
    registry: str


class ScriptList(Struct, frozen=True):
    """The scripts of a project."""

    folder: str
    scripts: dict[str, str]


def make_server(
    folders: Sequence[str] = (),
    *,
    registry: str | None = None,
    token: str | None = None,
    running: ScriptOptions | None = None,
    environ: Mapping[str, str] | None = None,
) -> Server:
    """Make the server for projects in some folders.

    Args:
        folders: folders whose projects are allowed.
        registry: the only registry to use; by default the user's npm settings, and a project's for that project.
        token: for that registry; by default for the user's own, never for a project's.
        running: how scripts are run.
        environ: replaces the environment of this process.

    Raises:
        ConfigError: the registry's URL, the token or npm is invalid, or none of the folders exists.
    """
    environ = os.environ if environ is None else environ
    token = read_token(token, "NPM_TOKEN")
    if registry is not None:
        RegistryClient(registry, token=token)  # Fail early if it is invalid.
    asked = RegistryPool(NpmConfig(environ, registry=registry, token=token))
    allowed = AllowedFolders(folders)
    server = Server("npm", _INSTRUCTIONS, version=__version__, title="npm", lifespan=lambda _server: aclosing(asked))
    allowed.attach(server)
    _add_looking(server, asked, allowed)
    _add_checking(server, asked, allowed)
    _add_scripts(server, allowed, running or ScriptOptions(), environ)
    return server


def _add_looking(server: Server, registries: RegistryPool, allowed: AllowedFolders) -> None:
    """Add the tools that only query the registry."""

    @server.tool(annotations=dict(_LOOKS))
    async def search(
        ctx: Context,
        query: Annotated[str, Meta(min_length=1, max_length=400, description="Words to look for")],
        limit: Annotated[int, Meta(ge=1, le=100)] = 20,
        offset: Annotated[int, Meta(ge=0, le=10_000)] = 0,
        path: _Of = None,
    ) -> SearchPage:
        """Search the registry for packages."""
        async with registries.chosen(await _folder(ctx, path, allowed)) as chosen:
            return await chosen.of().search(query, limit=limit, offset=offset)

    @server.tool(annotations=dict(_LOOKS))
    async def view(
        ctx: Context,
        name: _Name,
        version: Annotated[str, Meta(description="A version or a tag, not a range")] = "latest",
        path: _Of = None,
    ) -> Manifest:
        """Show one published version of a package: its metadata, dependencies and install scripts."""
        async with registries.chosen(await _folder(ctx, path, allowed)) as chosen:
            return await chosen.of(check_package_name(name)).manifest(name, version)

    @server.tool(annotations=dict(_LOOKS))
    async def versions(
        ctx: Context, name: _Name, limit: Annotated[int, Meta(ge=1, le=1000)] = 50, path: _Of = None
    ) -> VersionList:
        """List the versions of a package, newest first, with its tags."""
        async with registries.chosen(await _folder(ctx, path, allowed)) as chosen:
            registry = chosen.of(check_package_name(name))
            packument = await registry.packument(name)
        newest = sorted(packument.versions, reverse=True)[:limit]
        texts = packument.versions
        deprecated = [texts[each] for each in newest if each in packument.deprecated]
        listed = [texts[each] for each in newest]
        return VersionList(name, len(texts), listed, deprecated, packument.tags, registry.url)


def _add_checking(server: Server, registries: RegistryPool, allowed: AllowedFolders) -> None:
    """Add the tools that compare a project with the registry."""

    @server.tool(name="audit", annotations=dict(_LOOKS))
    async def audit_(
        ctx: Context,
        path: _Path = None,
        production: Annotated[bool, Meta(description="Exclude development dependencies")] = False,
        level: Annotated[Severity, Meta(description="The lowest severity to report")] = "info",
    ) -> AuditReport:
        """Report known vulnerabilities of locked packages; their names and versions are sent to the registry."""
        project = await _project(ctx, path, allowed)
        async with registries.chosen(project.folder) as chosen:
            return await audit(project, chosen, production=production, level=level)

    @server.tool(name="outdated", annotations=dict(_LOOKS))
    async def outdated_(ctx: Context, path: _Path = None) -> OutdatedReport:
        """Report dependencies of package.json that have newer versions."""
        project = await _project(ctx, path, allowed)
        async with registries.chosen(project.folder) as chosen:
            return await outdated(project, chosen)


def _add_scripts(server: Server, allowed: AllowedFolders, running: ScriptOptions, environ: Mapping[str, str]) -> None:
    """Add the tools about a project's scripts."""
    given = None if running.npm is None else _program(running.npm, environ)

    @server.tool(annotations=dict(_READS))
    async def list_scripts(ctx: Context, path: _Path = None) -> ScriptList:
        """List the scripts of package.json."""
        project = await _project(ctx, path, allowed)
        return ScriptList(str(project.folder), project.scripts())

    @server.tool(annotations=dict(_RUNS))
    async def run_script(
        ctx: Context,
        name: Annotated[str, Meta(description="A script of package.json")],
        arguments: Annotated[list[str], Meta(description="Arguments passed to the script after --")] = [],  # noqa: B006
        path: _Path = None,
    ) -> ScriptResult:
        """Run a script of package.json with npm, after the user has agreed; return its exit code and output."""
        project = await _project(ctx, path, allowed)
        plan = plan_script(project, name, arguments)
        if not running.without_asking:
            await _require_consent(ctx, plan.shown())
            # Resolved again: the folder may have become a link.
            if plan_script(await _project(ctx, path, allowed), name, arguments) != plan:
                raise ToolError("package.json was changed while the user was asked; nothing was run. Call again.")
        npm = given or shutil.which("npm", path=environ.get("PATH"))
        if npm is None:
            raise ToolError("npm is not installed here: install Node.js, or start this server with --npm PATH")
        env = script_environment(environ, running.passed)
        work = run_script_plan(plan, npm=npm, env=env, seconds=running.seconds, most_bytes=running.output_bytes)
        return await _with_progress(ctx, work)


def _program(npm: str, environ: Mapping[str, str]) -> str:
    found = shutil.which(npm, path=environ.get("PATH"))
    if found is None:
        raise ConfigError(f"--npm {npm!r} is not an executable program: give the path of npm")
    return os.path.abspath(found)


async def _project(ctx: Context, path: str | None, allowed: AllowedFolders) -> Project:
    return find_project(path, await allowed.folders(ctx))


async def _folder(ctx: Context, path: str | None, allowed: AllowedFolders) -> Path | None:
    """Return the project folder whose settings apply in addition to the user's; None without a project."""
    return None if path is None else (await _project(ctx, path, allowed)).folder


async def _with_progress(ctx: Context, work: Coroutine[Any, Any, ScriptResult]) -> ScriptResult:
    """Report progress while a script runs: clients give up on silent calls."""

    async def report() -> None:
        for beat in itertools.count(1):
            await asyncio.sleep(_BEAT_SECONDS)
            await ctx.report_progress(beat * _BEAT_SECONDS, message="the script is running")

    reporting = asyncio.ensure_future(report())
    try:
        return await work
    finally:
        reporting.cancel()


async def _require_consent(ctx: Context, question: str) -> None:
    """Raise a ToolError unless the user agrees."""
    try:
        answer = await ctx.elicit(question, bool)
    except MissingCapability as error:
        fix = "Use one that can, or start this server with --allow-scripts."
        raise ToolError(f"Nothing was run: this client cannot ask its user. {fix}") from error
    if not answer.accepted or answer.data is not True:
        raise ToolError("Nothing was run: the user did not agree.")
