"""The gateway's handlers for resources and skills.

A skill keeps the digests that its server published; the URIs of its entry and files are rewritten to URIs of the
gateway. The policy judges reading a ``SKILL.md`` as loading the skill, since the client may pass it to a model; its
other files are resources. A skill that the policy never allows is not listed, and its files cannot be read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams, ResourceNotFound
from trunkline.host.gateway.registry import not_found, without_pages
from trunkline.host.upstreams.catalog.names import inner_uri, outer_uri
from trunkline.protocol.apps import declares_apps
from trunkline.protocol.caller import Caller
from trunkline.protocol.extensions import SKILLS, declared_extension

# The extension and ``host.skills`` are imported when a server has skills.
if TYPE_CHECKING:
    from trunkline.host.gateway.extension_routes import RunFor
    from trunkline.host.gateway.gateway import Gateway
    from trunkline.host.requester import Requester
    from trunkline.host.skills import HostSkill

__all__ = ["outer_entry", "resource_handlers", "skill_settings"]

_LIST_SECONDS = 10.0  # Timeout for a server when skills are listed.


def skill_settings(gateway: Gateway) -> dict[str, Any] | None:
    """Return the settings that the gateway declares for skills; None if none of its servers has skills."""
    parts = gateway.core.catalog.parts
    declared = [declared_extension(parts[each].offering.capabilities, SKILLS) for each in gateway.served()]
    settings = [each for each in declared if each is not None]
    if not settings:
        return None
    return {"directoryRead": True} if any(each.get("directoryRead") is True for each in settings) else {}


def outer_entry(server: str, entry: t.Skill) -> t.Skill:
    """Return the entry of a skill with URIs of the gateway; digests and frontmatter are unchanged."""
    resources: Any = entry.resources
    if resources != "dynamic":
        resources = [replace(each, uri=outer_uri(server, each.uri)) for each in resources]
    return replace(entry, uri=outer_uri(server, entry.uri), resources=resources)


def resource_handlers(gateway: Gateway, run_for: RunFor) -> dict[str, Callable[[Exchange, Any], Awaitable[Any]]]:
    """Return the handlers of a gateway; ``run_for`` runs a function at a server for the caller of a request."""
    routes = _SkillRoutes(gateway, run_for)

    async def read(exchange: Exchange, params: t.ReadResourceRequestParams) -> Any:
        await gateway.wait_for_resource(params.uri)
        server, uri, item = gateway.find_resource(exchange, params.uri)
        await routes.check_file(exchange, server, uri)

        async def perform(requester: Requester) -> Any:
            skill = await routes.main_file_of(server, uri, requester)
            if skill is not None:
                return await gateway.core.skills.read_main_file(skill, requester)
            try:
                return await gateway.core.read_resource(server, uri, item, requester)
            except ResourceNotFound as error:
                raise not_found(exchange.admitted.caller, params.uri) from error

        capabilities = exchange.admitted.caller.capabilities
        found = await run_for(exchange, server, perform)
        result = gateway.routes.forwarded(found, exchange.method, server, capabilities)
        whole = declares_apps(capabilities) or not isinstance(result, t.ReadResourceResult)
        return result if whole else without_pages(result)

    async def skills_list(exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        await gateway.core.first_lists(gateway.options.servers)
        from trunkline.extensions.skills.service import page_of_skills

        entries = [outer_entry(each.server, each.entry) for each in await routes.visible(exchange)]
        page = page_of_skills(entries, params.cursor, size=gateway.limits.page_size)
        return replace(page, ttl_ms=0, cache_scope="private")

    return {
        "resources/read": read,
        "resources/directory/read": routes.read_directory,
        "skills/list": skills_list,
        "skills/get": routes.get,
    }


class _SkillRoutes:
    """Finds the skills behind URIs of the gateway."""

    def __init__(self, gateway: Gateway, run_for: RunFor) -> None:
        self._gateway = gateway
        self._run_for = run_for
        self._core = gateway.core

    async def visible(self, exchange: Exchange, server: str | None = None) -> list[HostSkill]:
        """Return the skills that a caller may see, of one server or of all."""
        session = self._gateway.sessions.session(exchange)
        served = [each for each in self._gateway.served() if server in (None, each)]
        skills = await self._core.skills.listed(session, servers=served, seconds=_LIST_SECONDS)
        return [each for each in skills if self._sees(exchange.admitted.caller, each)]

    def _sees(self, caller: Caller, skill: HostSkill) -> bool:
        from trunkline.host.skills import act_for_skill

        return self._gateway.policy.is_visible(act_for_skill(skill, **self._gateway.asker(caller)))

    def _server_of(self, outer: str) -> tuple[str, str] | None:
        """Return the server and its own URI, if the server has skills and is served."""
        pair = inner_uri(outer, self._core.catalog.parts)
        return pair if pair is not None and pair[0] in self._gateway.served() and self._has_skills(pair[0]) else None

    def _has_skills(self, server: str) -> bool:
        part = self._core.catalog.parts.get(server)
        return part is not None and declared_extension(part.offering.capabilities, SKILLS) is not None

    async def main_file_of(self, server: str, uri: str, requester: Requester) -> HostSkill | None:
        """Return the skill whose ``SKILL.md`` has this URI; None if there is none."""
        if not uri.endswith("/SKILL.md") or not self._has_skills(server):
            return None
        try:
            return await self._core.skills.refresh(server, uri, requester.session)
        except (InvalidParams, ResourceNotFound):
            return None

    async def check_file(self, exchange: Exchange, server: str, uri: str) -> None:
        """Check that a file does not belong to a skill that the caller may not see.

        Raises:
            InvalidParams, ResourceNotFound: it does.
        """
        if not self._has_skills(server):
            return
        session, caller = self._gateway.sessions.session(exchange), exchange.admitted.caller
        skills = await self._core.skills.listed(session, servers=[server], seconds=_LIST_SECONDS)
        owners = [each for each in skills if uri.startswith(f"{each.root}/")]
        if owners and not any(self._sees(caller, each) for each in owners):
            raise not_found(caller, outer_uri(server, uri))

    async def get(self, exchange: Exchange, params: t.GetSkillRequestParams) -> t.GetSkillResult:
        """Serve ``skills/get``."""
        await self._gateway.wait_for_resource(params.uri)
        unknown = InvalidParams(f"No skill is served at {params.uri}", data={"uri": params.uri})
        pair = self._server_of(params.uri)
        if pair is None:
            raise unknown
        server, uri = pair

        async def perform(requester: Requester) -> Any:
            async def work(judged: Mapping[str, Any]) -> tuple[Any, Raw]:
                skill = await self._core.skills.refresh(server, uri, requester.session)
                return skill, Raw(b"{}" if skill.pin is None else skill.pin.encode())

            upstream, arguments = self._core.upstream(server), {"uri": uri, "method": exchange.method}
            try:
                return await self._core.authorized("resource", upstream, uri, arguments, None, requester, work=work)
            except (InvalidParams, ResourceNotFound) as error:
                raise unknown from error

        skill: HostSkill = await self._run_for(exchange, server, perform)
        if not self._sees(exchange.admitted.caller, skill):
            raise unknown
        return t.GetSkillResult(skill=outer_entry(server, skill.entry), ttl_ms=0, cache_scope="private")

    async def read_directory(
        self, exchange: Exchange, params: t.ReadResourceDirectoryRequestParams
    ) -> t.ReadResourceDirectoryResult:
        """Serve ``resources/directory/read``."""
        await self._gateway.wait_for_resource(params.uri)
        unknown = InvalidParams(f"No directory is served at {params.uri}", data={"uri": params.uri})
        pair = self._server_of(params.uri)
        if pair is None:
            return await self._top(exchange, params.uri, unknown)
        server, uri = pair
        if not self._core.skills.has_directories(server):
            raise unknown
        await self.check_file(exchange, server, f"{uri}/")
        upstream = self._core.upstream(server)
        asked = t.ReadResourceDirectoryRequestParams(uri=uri, cursor=params.cursor)

        async def perform(requester: Requester) -> Any:
            async def work(judged: Mapping[str, Any]) -> tuple[Any, Raw]:
                request = self._core.upstream_request(upstream, exchange.method, asked, requester)
                return await self._core.router.send(request)

            arguments = {"uri": uri, "method": exchange.method}
            return await self._core.authorized("resource", upstream, uri, arguments, None, requester, work=work)

        result: t.ReadResourceDirectoryResult = await self._run_for(exchange, server, perform)
        children = [replace(each, uri=outer_uri(server, each.uri)) for each in result.resources]
        return t.ReadResourceDirectoryResult(resources=children, next_cursor=result.next_cursor)

    async def _top(self, exchange: Exchange, uri: str, unknown: InvalidParams) -> t.ReadResourceDirectoryResult:
        """Return the top directories of a server; its name is the first segment of its gateway URIs."""
        inside = f"{uri}/"
        roots = [outer_uri(each.server, each.root) for each in await self.visible(exchange)]
        children = sorted({inside + root[len(inside) :].partition("/")[0] for root in roots if root.startswith(inside)})
        if not children:
            raise unknown
        named = [(each, unquote(each.rpartition("/")[2], errors="replace")) for each in children]
        return t.ReadResourceDirectoryResult(
            resources=[t.Resource(uri=each, name=name, mime_type="inode/directory") for each, name in named]
        )
