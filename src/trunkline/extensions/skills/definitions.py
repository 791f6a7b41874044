"""Skills as a server registers them: each is the resource of its ``SKILL.md``, and has the files beside it.

As resources they are mounted, hidden, protected by scopes and listed like any other. Mounting a server makes copies
under other URIs, and the files of a copy are under its URI.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import ResourceError, ResourceNotFound
from trunkline.extensions.skills.folder import ListedFile, SkillFolder, SkillManifest
from trunkline.extensions.skills.frontmatter import SKILL_FILE, write_frontmatter
from trunkline.server.dispatch import runtime_of
from trunkline.server.resources import ResourceDefinition, ResourceOptions
from trunkline.server.skill_options import SkillDefinition

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["FolderSkill", "GeneratedSkill", "SkillFileDefinition", "file_contents", "mime_type_of"]

MARKDOWN = "text/markdown"


class FolderSkill(SkillDefinition):
    """A skill from a folder on disk."""

    __slots__ = ("folder", "manifest")

    def __init__(self, folder: SkillFolder, manifest: SkillManifest) -> None:
        """Create the definition of the skill in a manifest."""
        self.folder = folder
        self.manifest = manifest
        self.frontmatter = manifest.frontmatter
        self.uri = f"skill://{manifest.path}/{SKILL_FILE}"
        self.name = manifest.frontmatter["name"]
        self.options = ResourceOptions(
            name=self.name,
            description=manifest.frontmatter["description"],
            mime_type=MARKDOWN,
            size=manifest.files[SKILL_FILE].size,
        )
        self.scopes = ()
        self.mounted_by = ()
        self.source = None
        # Changed definitions are detected by the identity of their function; here it is the manifest.
        self.function = manifest  # type: ignore[assignment]

    @property
    def files(self) -> Mapping[str, ListedFile]:
        """The files that the manifest lists, by path."""
        return self.manifest.files

    @property
    def folders(self) -> tuple[str, ...]:
        """The paths of the folders inside the skill."""
        return self.manifest.folders

    def entry(self) -> t.Skill:
        """Return the skill as ``skills/list`` and ``skills/get`` describe it."""
        root = self.root
        files = [
            t.SkillResource(uri=f"{root}/{path}", digest=each.digest, size=each.size)
            for path, each in self.manifest.files.items()
        ]
        return t.Skill(uri=self.uri, frontmatter=dict(self.frontmatter), resources=files)

    def listed(self) -> t.Resource:
        """Return the ``SKILL.md`` as it is listed."""
        options = self.options
        return t.Resource(
            uri=self.uri,
            name=self.name,
            description=options.description,
            mime_type=options.mime_type,
            size=options.size,
        )

    async def read(self, exchange: Exchange) -> t.ReadResourceResult:
        """Read the ``SKILL.md``."""
        return await self.read_file(exchange, SKILL_FILE)

    async def read_file(self, exchange: Exchange, path: str) -> t.ReadResourceResult:
        """Read a file of the skill.

        Raises:
            ResourceNotFound: it is no longer part of the skill.
            ResourceError: it is being written.
        """
        uri = f"{self.root}/{path}"
        arguments = {"skill": self.manifest.path, "file": path}
        try:
            content: bytes = await runtime_of(exchange).submit(self.folder.read, arguments)
        except FileNotFoundError as error:
            raise ResourceNotFound(f"Resource not found: {uri}") from error
        except OSError as error:
            raise ResourceError(f"{uri} is being changed; read it again") from error
        return t.ReadResourceResult(contents=[file_contents(uri, content)])


class GeneratedSkill(SkillDefinition):
    """A skill whose text a function generates; it has no digests."""

    __slots__ = ()

    def __init__(
        self, path: str, function: Callable[..., object], frontmatter: Mapping[str, Any], *, owner: Server
    ) -> None:
        """Define a skill; the function returns the text below the frontmatter."""
        options = ResourceOptions(name=frontmatter["name"], description=frontmatter["description"], mime_type=MARKDOWN)
        super().__init__(f"skill://{path}/{SKILL_FILE}", function, options, owner=owner)
        self.frontmatter = frontmatter

    async def read(self, exchange: Exchange) -> t.ReadResourceResult:
        """Generate the text."""
        body = await self.function.run(exchange, {})
        if not isinstance(body, str):
            raise TypeError(f"the function of the skill {self.name!r} must return a text, not a {type(body).__name__}")
        text = f"{write_frontmatter(self.frontmatter)}\n{body}"
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=self.uri, mime_type=MARKDOWN, text=text)])


class SkillFileDefinition(ResourceDefinition):
    """A file beside a ``SKILL.md``: it can be read, but is not listed."""

    __slots__ = ("path", "skill")

    def __init__(self, skill: FolderSkill, path: str) -> None:
        """Create the definition of a file in the manifest of a skill."""
        self.skill = skill
        self.path = path
        self.uri = f"{skill.root}/{path}"
        self.scopes = skill.scopes
        self.mounted_by = skill.mounted_by

    def listed(self) -> t.Resource:
        """Return the file as a directory lists it."""
        name = unquote(self.path.rpartition("/")[2], errors="replace")
        size = self.skill.files[self.path].size
        return t.Resource(uri=self.uri, name=name, mime_type=mime_type_of(self.path), size=size)

    async def read(self, exchange: Exchange) -> t.ReadResourceResult:
        """Read the file."""
        return await self.skill.read_file(exchange, self.path)


def file_contents(uri: str, content: bytes) -> t.ResourceContents:
    """Return a file as the contents of a resource: text if it is UTF-8, which preserves the bytes, else a blob."""
    mime_type = mime_type_of(uri)
    try:
        return t.ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=content.decode("utf-8"))
    except UnicodeDecodeError:
        import base64

        blob = base64.b64encode(content).decode("ascii")
        return t.ResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)


def mime_type_of(path: str) -> str | None:
    """Return the type of a file by its name; None if it is unknown."""
    kind, packed = _types().guess_type(path.rpartition("/")[2])
    return f"application/{packed}" if packed else kind


@cache
def _types() -> mimetypes.MimeTypes:
    """The media types that Python knows, without those of the system: a file has the same type on every machine."""
    types = mimetypes.MimeTypes()
    for ending, kind in ((".md", MARKDOWN), (".yaml", "application/yaml"), (".yml", "application/yaml")):
        types.add_type(kind, ending)
    return types
