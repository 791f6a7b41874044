"""The client's part of the extension ``io.modelcontextprotocol/skills``.

Skills are parsed and verified by ``trunkline.extensions.skills``, which is imported when the first skill is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.client.request_handlers import all_pages
from trunkline.errors import MissingCapability, VerificationError
from trunkline.protocol.caller import EXTENSIONS
from trunkline.protocol.extensions import SKILLS, declared_extension

if TYPE_CHECKING:
    from trunkline.client.connector import Connector
    from trunkline.extensions.skills.loading import LoadedSkill, VerifiedFiles

__all__ = ["SkillMethods"]


class SkillMethods:
    """The methods of a client that concern skills."""

    _core: Connector
    #: The verified files of skills; created on first use.
    _skill_files: VerifiedFiles | None = None

    async def list_skills(self) -> list[t.Skill]:
        """List the server's skills, all pages, without reading their files. A server need not list all its skills.

        Raises:
            MissingCapability: the server has no skills.
        """
        return await self._all("skills/list", "skills")

    async def get_skill(self, uri: str) -> t.Skill:
        """Fetch the current entry of one skill, by the URI of its ``SKILL.md``.

        Raises:
            MissingCapability: the server has no skills.
            InvalidParams: it has no such skill.
        """
        params = t.GetSkillRequestParams(uri=str(uri))
        # Not from the cache: this is how an entry that does not match its files is replaced.
        result, _ = await self._core.call("skills/get", params)
        skill: t.Skill = result.skill
        return skill

    async def load_skill(self, skill: str | t.Skill) -> LoadedSkill:
        """Read the ``SKILL.md`` of a skill, by its URI or its entry; other files are read on demand.

        Raises:
            VerificationError: the entry is that of another skill, or the text is not what the entry says.
            MissingCapability: the server has no skills.
            ConfigError: PyYAML is not installed.
        """
        from trunkline.extensions.skills.loading import VerifiedFiles, check_entry, load_skill

        async def fetch(uri: str) -> list[t.ResourceContents]:
            # Never from the cache of responses: what it holds may be older than the entry of the skill.
            return await self.read_resource(uri, meta={})

        entry = skill if isinstance(skill, t.Skill) else await self.get_skill(skill)
        check_entry(entry)
        if not isinstance(skill, t.Skill) and entry.uri != str(skill):
            raise VerificationError(f"The server returned another skill than {skill}; it was not used.", uri=str(skill))
        if self._skill_files is None:
            self._skill_files = VerifiedFiles()
        return await load_skill(entry, fetch, self._skill_files)

    async def read_directory(self, uri: str) -> list[t.Resource]:
        """List the direct children of a directory of the server, all pages; the URI has no trailing slash.

        Raises:
            MissingCapability: the server did not declare that it has directories; nothing was sent.
        """
        core = self._core
        session = await core.get_session()
        session.row("resources/directory/read")
        settings = None if session.agreement is None else declared_extension(session.agreement.capabilities, SKILLS)
        if settings is None or settings.get("directoryRead") is not True:
            capability = f"{EXTENSIONS}{SKILLS}.directoryRead"
            raise MissingCapability(
                f"The server did not declare {capability}, so resources/directory/read was not sent.",
                capability=capability,
            )

        async def fetch(cursor: str | None) -> Any:
            params = t.ReadResourceDirectoryRequestParams(uri=str(uri), cursor=cursor)
            page, _ = await core.call("resources/directory/read", params)
            return page

        return await all_pages(fetch, "resources", limit=core.limits.pages)

    if TYPE_CHECKING:
        # Provided by the client.
        async def read_resource(self, uri: str, *, meta: Mapping[str, Any] | None = None) -> list[t.ResourceContents]:
            """Read a resource."""
            ...

        async def _all(self, method: str, member: str) -> list[Any]: ...
