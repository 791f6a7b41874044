"""The skills of a host's servers: listed on demand, and loaded only if the policy allows it.

A skill is identified by its server and URI together, never by its name or URI alone. Its files are not read before it
is loaded. Loading is an act that the policy decides about and the audit trail records. An approval is bound to the
digests of all files: a changed skill needs a new approval, and a skill nested in another needs its own. The tools that
a skill requests (``allowed-tools``) are shown to the user who decides, and have no effect unless the user approves them
with the skill; before each use of such an approval the entry of the skill is fetched again, and a change ends it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.request_handlers import all_pages
from trunkline.errors import InvalidParams, PolicyDenied, TrunklineError, VerificationError
from trunkline.extensions.skills.frontmatter import allowed_tools
from trunkline.extensions.skills.loading import LoadedSkill, VerifiedFiles, check_entry, load_skill, root_of
from trunkline.host.authorization.authorizer import ActSubject, act_for_unlisted, may_use
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.authorization.skill_grants import requested_tools
from trunkline.host.integrity.scan.scanner import combine_findings, scan_definition, worst_severity
from trunkline.host.upstreams.catalog.names import item_id, outer_uri
from trunkline.host.upstreams.routing.channels import LocalChannel
from trunkline.host.upstreams.routing.router import UpstreamRequest
from trunkline.protocol.extensions import SKILLS, declared_extension

if TYPE_CHECKING:
    from trunkline.host.config.model import ServerEntry
    from trunkline.host.core import HostCore
    from trunkline.host.requester import Requester
    from trunkline.host.session import HostSession
    from trunkline.host.upstreams.catalog.items import CatalogItem
    from trunkline.host.upstreams.supervision.upstream import Upstream

__all__ = ["HostSkill", "SkillRegistry", "act_for_skill", "manifest_pin", "unlisted_skill"]

log = logging.getLogger("trunkline.host")

_FRESH_SECONDS = 30.0  # Seconds before a list is fetched again; a change notification causes a new fetch at once.
_MOST_PAGES = 100  # Pages of one server's list; each may have a thousand skills.
_MOST_SKILLS = 2000  # Skills of one server: far more than a model can choose from.
_MOST_CACHED = 256  # Cached lists for principals with their own credentials.
_MOST_SHOWN = 100  # Paths shown in an approval request.


class HostSkill(Struct, frozen=True, kw_only=True, eq=False):
    """A skill of one server, as its entry describes it."""

    server: str
    entry: t.Skill
    #: The name for people and models: ``server/name``, or with the whole path if the server has that name twice.
    label: str
    #: The digest over the digests of all files; None if the skill is generated.
    pin: str | None
    #: The findings of the scan, as texts.
    flagged: tuple[str, ...] = ()
    trusted: bool = False

    @property
    def uri(self) -> str:
        """The URI of its ``SKILL.md``."""
        return self.entry.uri

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return root_of(self.entry.uri)

    @property
    def name(self) -> str:
        """The name of the skill at its server; it need not be unique there."""
        return str(self.entry.frontmatter["name"])

    @property
    def description(self) -> str:
        """The description by the server."""
        return str(self.entry.frontmatter["description"])

    @property
    def requested_tools(self) -> list[str]:
        """The tools that the skill requests (``allowed-tools``); a request grants nothing."""
        return allowed_tools(self.entry.frontmatter)


def manifest_pin(entry: t.Skill) -> str | None:
    """Return the digest over all files of a skill and their digests; None if the skill is generated."""
    if entry.resources == "dynamic":
        return None
    pairs = sorted((each.uri, each.digest) for each in entry.resources)
    return f"sha256:{sha256(msgspec.json.encode(pairs)).hexdigest()}"


def unlisted_skill(server: str, uri: str) -> HostSkill:
    """Return a skill of which only the URI is known; ``SkillRegistry.refresh`` fetches its entry."""
    entry = t.Skill(uri=uri, frontmatter={"name": uri, "description": ""}, resources="dynamic")
    return HostSkill(server=server, entry=entry, label=item_id(server, uri), pin=None)


def act_for_skill(
    skill: HostSkill,
    *,
    caller: str,
    session: HostSession | None = None,
    principal: str | None = None,
    profile: str | None = None,
) -> Act:
    """Return the act of loading a skill, to decide whether it is listed; ``SkillRegistry.load`` performs it."""
    act = act_for_unlisted(
        "skill",
        skill.server,
        skill.uri,
        caller=caller,
        trusted=skill.trusted,
        session=session,
        principal=principal,
        profile=profile,
    )
    return replace(act, pin=skill.pin, flagged=bool(skill.flagged))


class _Listing(Struct, frozen=True):
    """The skills of a server, and the time of the list."""

    skills: tuple[HostSkill, ...]
    upstream: Upstream
    at: float


class SkillRegistry:
    """The skills of all servers that declare the extension, by server and URI."""

    def __init__(self, core: HostCore) -> None:
        """Create the registry; lists are fetched on demand."""
        self._core = core
        self._lists: dict[tuple[str, str | None], _Listing] = {}
        #: The verified files of each server.
        self._files: dict[str, VerifiedFiles] = {}
        #: The last loaded entries of each session, to show how a skill has changed since.
        self._loaded: dict[tuple[str, str, str], t.Skill] = {}

    # --- listing ------------------------------------------------------------------------------------------------------

    def servers(self, among: Collection[str] | None = None) -> list[str]:
        """Return the servers that declare the extension."""
        return [
            name
            for name, part in self._core.catalog.parts.items()
            if (among is None or name in among) and declared_extension(part.offering.capabilities, SKILLS) is not None
        ]

    def has_directories(self, server: str) -> bool:
        """Return True if a server supports ``resources/directory/read``."""
        part = self._core.catalog.parts.get(server)
        settings = None if part is None else declared_extension(part.offering.capabilities, SKILLS)
        return settings is not None and settings.get("directoryRead") is True

    async def listed(
        self, session: HostSession, *, servers: Collection[str] | None = None, seconds: float | None = None
    ) -> list[HostSkill]:
        """Return the skills of all servers; a server that does not answer in time is skipped with a warning.

        The policy is not applied here: callers must filter the skills that they show.
        """
        names = self.servers(servers)
        found = await asyncio.gather(*(self._listed_in(name, session, seconds) for name in names))
        return [skill for skills in found for skill in skills]

    def known(self, session: HostSession) -> list[HostSkill]:
        """Return the cached skills, without a request to any server."""
        keys = [self._key(name, session) for name in self.servers()]
        return [skill for key in keys if key in self._lists for skill in self._lists[key].skills]

    def forget(self, server: str) -> bool:
        """Mark the list of a server as outdated; return True if the server has skills."""
        for key, kept in self._lists.items():
            if key[0] == server:
                # Used until it is fetched again, so that the tools of a model stay stable.
                self._lists[key] = replace(kept, at=-math.inf)
        return server in self.servers()

    async def _listed_in(self, server: str, session: HostSession, seconds: float | None) -> tuple[HostSkill, ...]:
        try:
            async with asyncio.timeout(seconds):
                return await self._list_server(server, session)
        except (TrunklineError, TimeoutError) as error:
            self._core.secrets.redact_error(error)
            log.warning("the skills of %s cannot be listed: %s", server, error or "it did not answer in time")
            return ()

    async def _list_server(self, server: str, session: HostSession) -> tuple[HostSkill, ...]:
        upstream = self._core.upstream(server)
        key, now = self._key(server, session), time.monotonic()
        kept = self._lists.get(key)
        if kept is not None and kept.upstream is upstream and now - kept.at < _FRESH_SECONDS:
            return kept.skills

        async def fetch(cursor: str | None) -> Any:
            params = t.PaginatedRequestParams(cursor=cursor)
            return await self._ask(upstream, "skills/list", params, session)

        entries: list[t.Skill] = await all_pages(fetch, "skills", limit=_MOST_PAGES)
        if len(entries) > _MOST_SKILLS:
            log.warning("%s lists %d skills; only the first %d are used", server, len(entries), _MOST_SKILLS)
        skills = self._usable(server, upstream, entries[:_MOST_SKILLS])
        while len(self._lists) >= _MOST_CACHED:
            del self._lists[next(iter(self._lists))]
        self._lists[key] = _Listing(skills, upstream, now)
        return skills

    def _usable(self, server: str, upstream: Upstream, entries: list[t.Skill]) -> tuple[HostSkill, ...]:
        """Return the valid skills; the others are logged with the reason."""
        valid: dict[str, t.Skill] = {}
        for entry in entries:
            try:
                check_entry(entry)
            except VerificationError as problem:
                log.warning("a skill of %s is left out: %s", server, problem)
            else:
                valid.setdefault(entry.uri, entry)
        labels = _labels(server, valid.values())
        found = [self._skill(upstream, entry, labels[entry.uri]) for entry in valid.values()]
        return tuple(skill for skill in found if skill is not None)

    def _skill(self, upstream: Upstream, entry: t.Skill, label: str) -> HostSkill | None:
        server = upstream.entry.name
        flagged = self._scanned(server, entry)
        if flagged is None or self._core.catalog.find_resource(outer_uri(server, entry.uri)) is None:
            return None
        return HostSkill(
            server=server,
            entry=entry,
            label=label,
            pin=manifest_pin(entry),
            flagged=flagged,
            trusted=upstream.entry.settings.trusted,
        )

    def _scanned(self, server: str, entry: t.Skill) -> tuple[str, ...] | None:
        """Return the findings of the scan in the frontmatter; None if the skill is hidden because of them."""
        inspector = self._core.inspector
        if inspector is None or inspector.scanning == "off":
            return ()
        findings = combine_findings(scan_definition(entry.frontmatter, kind="skill"))
        if inspector.scanning == "hide" and worst_severity(findings) == "hide":
            log.warning("the skill %s of %s is hidden: %s", entry.uri, server, findings[-1])
            return None
        return tuple(str(each) for each in findings if each.severity != "info")

    # --- finding ------------------------------------------------------------------------------------------------------

    async def find(self, name: str, session: HostSession) -> HostSkill:
        """Return a skill by its label, or by its server and URI (``server/uri``), with its current entry.

        Raises:
            InvalidParams: there is no such skill; the message names similar ones.
        """
        skills = await self.listed(session)
        named = [each for each in skills if name in (each.label, item_id(each.server, each.uri))]
        if len(named) == 1:
            return await self.refresh(named[0].server, named[0].uri, session, label=named[0].label)
        server, _, uri = name.partition("/")
        if "://" in uri and server in self.servers():
            # A server need not list all its skills.
            return await self.refresh(server, uri, session)
        labels = [each.label for each in skills]
        alike = [label for label in labels if label.rpartition("/")[2] == name.rpartition("/")[2]]
        hint = f"; did you mean {' or '.join(alike)}?" if alike else f"; there are {', '.join(labels[:20]) or 'none'}"
        raise InvalidParams(f"There is no skill {name[:200]!r}{hint}")

    async def refresh(self, server: str, uri: str, session: HostSession, *, label: str | None = None) -> HostSkill:
        """Return a skill with its current entry, from the server.

        Raises:
            InvalidParams: the server has no such skill.
            PolicyDenied: it is hidden, by a filter or the scan.
            VerificationError: the entry breaks a rule of the extension.
        """
        upstream = self._core.upstream(server)
        result = await self._ask(upstream, "skills/get", t.GetSkillRequestParams(uri=uri), session)
        entry: t.Skill = result.skill
        if entry.uri != uri:
            raise VerificationError(f"{server} returned another skill instead of {uri}; it was not used.", uri=uri)
        check_entry(entry)
        skill = self._skill(upstream, entry, label or item_id(server, entry.frontmatter["name"]))
        if skill is None:
            raise PolicyDenied(f"The skill {uri} of {server} is hidden, by a filter or the scan.")
        return skill

    # --- loading ------------------------------------------------------------------------------------------------------

    async def load(self, skill: HostSkill, requester: Requester) -> LoadedSkill:
        """Load a skill if the policy allows it: read and verify its ``SKILL.md``. Each other file is a separate act.

        Raises:
            PolicyDenied: the policy or the user denied it.
            VerificationError: the file does not match the entry.
        """
        loaded, _ = await self._perform(skill, requester)
        return loaded

    async def read_main_file(self, skill: HostSkill, requester: Requester) -> t.ReadResourceResult:
        """Read the ``SKILL.md`` of a skill for a gateway client, judged as loading it; return the server's result."""
        _, result = await self._perform(skill, requester)
        return result

    async def _perform(self, skill: HostSkill, requester: Requester) -> tuple[LoadedSkill, t.ReadResourceResult]:
        core, server = self._core, skill.server
        upstream = core.upstream(server)
        results: list[t.ReadResourceResult] = []
        is_loaded = False

        async def fetch(uri: str) -> list[t.ResourceContents]:
            if is_loaded:
                # Each other file is a separate act, and is read only from the server of the skill.
                found = core.catalog.find_resource(outer_uri(server, uri))
                if found is None:
                    raise InvalidParams(f"A filter hides {uri} of {server}")
                result = await core.read_resource(server, uri, found[2], requester)
            else:
                params = t.ReadResourceRequestParams(uri=uri)
                result, _ = await core.router.send(core.upstream_request(upstream, "resources/read", params, requester))
                results.append(result)
            return result.contents

        async def work(judged: Mapping[str, Any]) -> tuple[Any, Raw]:
            loaded = await load_skill(skill.entry, fetch, self._verified(server))
            return loaded, Raw(loaded.text.encode())

        loaded: LoadedSkill = await core.authorized(
            "skill",
            upstream,
            skill.uri,
            _shown(skill),
            None,
            requester,
            work=work,
            subject=self._subject(skill, requester),
        )
        is_loaded = True
        self._revoke(requester.session, item_id(server, skill.uri), unless=skill.pin)
        self._loaded[requester.session.id, server, skill.uri] = skill.entry
        while len(self._loaded) > _MOST_SKILLS:
            del self._loaded[next(iter(self._loaded))]
        text = t.ResourceContents(uri=skill.uri, mime_type="text/markdown", text=loaded.text)
        return loaded, results[0] if results else t.ReadResourceResult(contents=[text])

    # --- the tools that a skill requests ------------------------------------------------------------------------------

    async def check_grants(self, session: HostSession, item: CatalogItem) -> None:
        """Revoke the approvals of a tool that came with a skill which has changed since, or cannot be checked."""
        skills = {
            (grant.skill, grant.skill_pin)
            for grant in session.grants.all()
            if grant.skill is not None and grant.server == item.server and item.name in (grant.tools or {})
        }
        for id, pin in skills:
            server, _, uri = id.partition("/")
            try:
                current: str | None = (await self.refresh(server, uri, session)).pin
            except TrunklineError as error:
                self._core.secrets.redact_error(error)
                log.warning("the tools approved with the skill %s need approval again: %s", id, error)
                current = None
            if current != pin:
                self._revoke(session, id, unless=current)

    def unload(self, session: HostSession) -> None:
        """Revoke the approvals of tools that came with skills, when their texts are no longer in the conversation."""
        for grant in session.grants.all():
            if grant.skill is not None:
                session.grants.revoke(grant.id)

    def _revoke(self, session: HostSession, skill: str, *, unless: str | None) -> None:
        """Revoke the tools of a skill, unless they were approved with this digest of its files."""
        for grant in session.grants.all():
            if grant.skill == skill and (unless is None or grant.skill_pin != unless):
                session.grants.revoke(grant.id)

    def _subject(self, skill: HostSkill, requester: Requester) -> ActSubject:
        before = self._loaded.get((requester.session.id, skill.server, skill.uri))
        return ActSubject(
            pin=skill.pin,
            title=skill.label,
            description=skill.description,
            definition=skill.entry,
            flagged=skill.flagged,
            changed=() if before is None else _changes(before, skill.entry),
            skill_tools=requested_tools(
                skill.requested_tools, skill.server, self._core.catalog, lambda item: may_use(item, requester)
            ),
        )

    def _verified(self, server: str) -> VerifiedFiles:
        return self._files.setdefault(server, VerifiedFiles())

    # --- asking servers -----------------------------------------------------------------------------------------------

    def _key(self, server: str, session: HostSession) -> tuple[str, str | None]:
        upstream = self._core.supervisor.upstreams.get(server)
        per_user = upstream is not None and upstream.entry.settings.per_user
        return server, session.id if per_user else None

    async def _ask(self, upstream: Upstream, method: str, params: Any, session: HostSession) -> Any:
        """Send a request for skill entries; the server may not send requests back."""

        async def refuse(question: str, asked: Any) -> Raw | None:
            raise PolicyDenied(f"{upstream.entry.name} asks for {question} in {method}, which is not allowed.")

        request = UpstreamRequest(
            upstream=upstream,
            method=method,
            params=params,
            session=session,
            channel=LocalChannel(_NoAnswers(), session),
            review=refuse,
        )
        result, _ = await self._core.router.send(request)
        return result


class _NoAnswers:
    """Rejects every request of a server."""

    capabilities: Mapping[str, Any] = {}

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        raise PolicyDenied(f"{entry.name} asks for {method}, which is not allowed here.")


def _labels(server: str, entries: Collection[t.Skill]) -> dict[str, str]:
    """Return the label of each skill by URI; skills with the same name are labelled by their paths."""
    names = Counter(str(entry.frontmatter["name"]) for entry in entries)
    paths = {entry.uri: _readable(root_of(entry.uri).partition("://")[2] or root_of(entry.uri)) for entry in entries}
    labels = {
        entry.uri: item_id(server, name if names[name] == 1 else paths[entry.uri])
        for entry in entries
        for name in [str(entry.frontmatter["name"])]
    }
    counts = Counter(labels.values())
    # Skills under two schemes may still share a path.
    return {uri: label if counts[label] == 1 else item_id(server, uri) for uri, label in labels.items()}


def _readable(path: str) -> str:
    """Return a decoded path; one with line breaks or invisible characters stays encoded, since labels are one line."""
    decoded = unquote(path)
    return decoded if decoded.isprintable() else path


def _shown(skill: HostSkill) -> dict[str, Any]:
    """Return the details of a skill for the approval request, and for the audit trail."""
    shown: dict[str, Any] = {"uri": skill.uri}
    resources = skill.entry.resources
    if resources == "dynamic":
        shown["files"] = "generated: it cannot be verified, and the answer cannot be remembered"
    else:
        skip = len(root_of(skill.uri)) + 1
        paths = [unquote(each.uri[skip:], errors="replace") for each in resources]
        shown["files"] = paths[:_MOST_SHOWN]
        if len(paths) > _MOST_SHOWN:
            shown["more files"] = len(paths) - _MOST_SHOWN
        shown["bytes"] = sum(each.size for each in resources)
    if skill.requested_tools:
        shown["requested tools"] = skill.requested_tools[:_MOST_SHOWN]
    return shown


def _changes(before: t.Skill, after: t.Skill) -> tuple[str, ...]:
    """Return how the files of a skill changed, a line for each."""
    old, new = _digests(before), _digests(after)
    lines = [f"{uri} was {'changed' if uri in old else 'added'}" for uri in new if old.get(uri) != new[uri]]
    lines += [f"{uri} was removed" for uri in old if uri not in new]
    return tuple(lines[:_MOST_SHOWN])


def _digests(entry: t.Skill) -> dict[str, str]:
    return {} if entry.resources == "dynamic" else {each.uri: each.digest for each in entry.resources}
