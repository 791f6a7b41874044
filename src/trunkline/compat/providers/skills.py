"""FastMCP's skills providers: folders with a ``SKILL.md``, served as resources under ``skill://``.

A skill has its main file, a manifest of all its files, and the files themselves: as resources, or through a template.
Nothing outside of the folder is served: each path is resolved, links included, when it is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from trunkline.compat.component_versions import VersionSpec
from trunkline.compat.components import Resource, ResourceTemplate
from trunkline.compat.providers.base import AggregateProvider, Provider
from trunkline.compat.resource_security import PathEscapeError, safe_join

__all__ = [
    "ClaudeSkillsProvider",
    "CodexSkillsProvider",
    "CopilotSkillsProvider",
    "CursorSkillsProvider",
    "GeminiSkillsProvider",
    "GooseSkillsProvider",
    "OpenCodeSkillsProvider",
    "SkillFileInfo",
    "SkillFileResource",
    "SkillFileTemplate",
    "SkillInfo",
    "SkillProvider",
    "SkillResource",
    "SkillsDirectoryProvider",
    "SkillsProvider",
    "VSCodeSkillsProvider",
    "parse_frontmatter",
]

log = logging.getLogger("fastmcp")

SupportingFiles = Literal["template", "resources"]
_MANIFEST = "_manifest"
_LONGEST_DESCRIPTION = 200  # A line of a file may be a whole paragraph.


# --- skills ----------------------------------------------------------------------------------------------------------


@dataclass
class SkillFileInfo:
    """One file of a skill."""

    path: str
    size: int
    hash: str


@dataclass
class SkillInfo:
    """What is known of a skill."""

    name: str
    description: str
    path: Path
    main_file: str
    files: list[SkillFileInfo] = field(default_factory=list)
    frontmatter: dict[str, Any] = field(default_factory=dict)


def parse_frontmatter(content: str) -> tuple[dict[str, Any], str]:
    """Return the members between two lines of dashes, as written, and the text after them."""
    lines = content.split("\n")
    if lines[0].strip() != "---":
        return {}, content
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        return {}, content
    body = "\n".join(lines[end + 1 :]).lstrip("\n")
    return _members(lines[1:end]), body


def _members(lines: list[str]) -> dict[str, Any]:
    """Return YAML members without a guess at their types; lines that are not YAML are read one by one."""
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]

        found = yaml.load("\n".join(lines), Loader=yaml.BaseLoader)
    except ImportError:
        found = None
    except yaml.YAMLError:
        return _line_members(lines)
    else:
        if not isinstance(found, dict):
            return {}
        return {str(key): value.strip() if isinstance(value, str) else value for key, value in found.items()}
    return _line_members(lines)


def _line_members(lines: list[str]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or name != name.strip() or name.startswith(("-", "#")):
            continue
        value = text.strip()
        if value.startswith("[") and value.endswith("]"):
            members[name] = [each.strip().strip("'\"") for each in value[1:-1].split(",") if each.strip()]
        else:
            members[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    return members


def _description(frontmatter: dict[str, Any], body: str, name: str) -> str:
    given = frontmatter.get("description")
    if isinstance(given, str) and given:
        return given
    for line in body.splitlines():
        text = line.strip().lstrip("#").strip()
        if text:
            return text[:_LONGEST_DESCRIPTION]
    return f"Skill: {name}"


def _inside(folder: Path, path: str) -> Path:
    """Return the path of a file of a skill, with all links resolved.

    Raises:
        PathEscapeError: it is outside of the folder, which was resolved when the skill was loaded: a link that took
            the folder's place since then leads outside, too.
    """
    found = safe_join(folder, path)
    if not found.is_relative_to(folder):
        raise PathEscapeError(f"{path!r} escapes {folder}")
    return found


def _load(path: Path, main_file: str) -> SkillInfo:
    """Read a skill.

    Raises:
        FileNotFoundError: there is no such folder, or no main file in it.
        PathEscapeError: the main file is a link to somewhere else.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"Skill directory not found: {path}")
    if not (path / main_file).is_file():
        raise FileNotFoundError(f"Main skill file not found: {path / main_file}")
    text = _inside(path, main_file).read_text(encoding="utf-8").removeprefix("\ufeff")
    frontmatter, body = parse_frontmatter(text)
    return SkillInfo(
        name=path.name,
        description=_description(frontmatter, body, path.name),
        path=path,
        main_file=main_file,
        files=_files(path),
        frontmatter=frontmatter,
    )


def _files(folder: Path) -> list[SkillFileInfo]:
    """Return the files inside a folder; links that lead outside are left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not path.resolve().is_relative_to(folder):
            continue
        data = path.read_bytes()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        found.append(SkillFileInfo(path.relative_to(folder).as_posix(), len(data), digest))
    return found


# --- resources -------------------------------------------------------------------------------------------------------


def _uri(skill: str, path: str) -> str:
    return f"skill://{quote(skill)}/{quote(path)}"


def _mime_type(path: str) -> str:
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "text/plain"


def _content(folder: Path, path: str) -> str | bytes:
    """Return a file of a skill: text if it is UTF-8.

    Raises:
        ValueError: the path leads outside, or there is no such file.
    """
    try:
        full = _inside(folder, path)
    except PathEscapeError as error:
        raise ValueError(f"Invalid path {path!r}: it escapes the skill's directory") from error
    if not full.is_file():
        raise FileNotFoundError(f"File not found: {path}")
    try:
        return full.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return full.read_bytes()


def _marked(meta: dict[str, Any] | None, about: dict[str, Any]) -> dict[str, Any]:
    given = dict(meta or {})
    return {**given, "fastmcp": {**(given.get("fastmcp") or {}), "skill": about}}


class SkillResource(Resource):
    """The main file of a skill, or its manifest."""

    skill_info: Any = None
    is_manifest: bool = False

    async def read(self) -> Any:
        """Return the file, or the manifest as JSON."""
        info = self.skill_info
        if not self.is_manifest:
            return _inside(info.path, info.main_file).read_text(encoding="utf-8")
        files = [{"path": each.path, "size": each.size, "hash": each.hash} for each in info.files]
        return json.dumps({"skill": info.name, "files": files}, indent=2)


class SkillFileResource(Resource):
    """Another file of a skill."""

    skill_info: Any = None
    file_path: str = ""

    async def read(self) -> Any:
        """Return the file."""
        return _content(self.skill_info.path, self.file_path)


class SkillFileTemplate(ResourceTemplate):
    """The other files of a skill."""

    skill_info: Any = None

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Return a file."""
        return _content(self.skill_info.path, arguments.get("path", ""))

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Resource:
        """Return the resource of a file.

        Raises:
            ValueError: the path leads outside.
        """
        path = params.get("path", "")
        try:
            _inside(self.skill_info.path, path)
        except PathEscapeError as error:
            raise ValueError(f"Invalid path {path!r}: it escapes the skill's directory") from error
        return _file_resource(self.skill_info, path, uri)


def _file_resource(info: SkillInfo, path: str, uri: str | None = None) -> SkillFileResource:
    return SkillFileResource(
        uri=uri or _uri(info.name, path),
        name=f"{info.name}/{path}",
        description=f"File of the skill {info.name}",
        mime_type=_mime_type(path),
        meta=_marked(None, {"name": info.name}),
        skill_info=info,
        file_path=path,
    )


# --- providers -------------------------------------------------------------------------------------------------------


class SkillProvider(Provider):
    """One skill."""

    def __init__(
        self,
        skill_path: str | Path,
        main_file_name: str = "SKILL.md",
        supporting_files: SupportingFiles = "template",
    ) -> None:
        """Read the skill.

        Raises:
            FileNotFoundError: there is no such folder, or no main file in it.
        """
        super().__init__()
        self._skill_path = Path(skill_path).resolve()
        self._main_file_name = main_file_name
        self._supporting_files = supporting_files
        self.skill_info = _load(self._skill_path, main_file_name)

    def __repr__(self) -> str:
        """Show the skill."""
        return f"{type(self).__name__}(skill={self.skill_info.name!r})"

    async def _list_resources(self) -> Sequence[Any]:
        info = self.skill_info
        found: list[Any] = [
            SkillResource(
                uri=_uri(info.name, info.main_file),
                name=f"{info.name}/{info.main_file}",
                description=info.description,
                mime_type="text/markdown",
                meta=_marked(None, {"name": info.name, "is_manifest": False}),
                skill_info=info,
            ),
            SkillResource(
                uri=_uri(info.name, _MANIFEST),
                name=f"{info.name}/{_MANIFEST}",
                description=f"Files of the skill {info.name}",
                mime_type="application/json",
                meta=_marked(None, {"name": info.name, "is_manifest": True}),
                skill_info=info,
                is_manifest=True,
            ),
        ]
        if self._supporting_files == "resources":
            found += [_file_resource(info, each.path) for each in info.files if each.path != info.main_file]
        return found

    async def _list_resource_templates(self) -> Sequence[Any]:
        if self._supporting_files != "template":
            return []
        info = self.skill_info
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        return [
            SkillFileTemplate(
                uri_template=f"skill://{quote(info.name)}/{{path*}}",
                name=f"{info.name}_files",
                description=f"Files of the skill {info.name}",
                mime_type="application/octet-stream",
                parameters=parameters,
                meta=_marked(None, {"name": info.name}),
                skill_info=info,
            )
        ]


class SkillsDirectoryProvider(AggregateProvider):
    """All skills of one or more folders; of two with one name the first."""

    def __init__(
        self,
        roots: str | Path | Sequence[str | Path],
        reload: bool = False,
        main_file_name: str = "SKILL.md",
        supporting_files: SupportingFiles = "template",
    ) -> None:
        """Find the skills; with ``reload`` again at each request."""
        super().__init__()
        given = [roots] if isinstance(roots, str | Path) else roots
        self._roots = [Path(each).resolve() for each in given]
        self._reload = reload
        self._main_file_name = main_file_name
        self._supporting_files = supporting_files
        self._discover_skills()

    def __repr__(self) -> str:
        """Show the folders."""
        return f"{type(self).__name__}(roots={self._roots}, skills={len(self.providers)})"

    def _discover_skills(self) -> None:
        """Find the skills; one that cannot be read is left out."""
        found: dict[str, SkillProvider] = {}
        for folder in (each for root in self._roots if root.is_dir() for each in sorted(root.iterdir())):
            try:
                if not (folder / self._main_file_name).is_file():
                    continue
                provider = SkillProvider(folder, self._main_file_name, self._supporting_files)
            except (OSError, ValueError, RuntimeError) as error:
                log.warning("The skill %s cannot be read: %s", folder, error)
                continue
            found.setdefault(provider.skill_info.name, provider)
        self.providers = list(found.values())

    async def _every(self, verb: str) -> Sequence[Any]:
        if self._reload:
            self._discover_skills()
        return await super()._every(verb)

    async def _any(self, verb: str, key: str, version: VersionSpec | None) -> Any:
        if self._reload:
            self._discover_skills()
        return await super()._any(verb, key, version)


#: The name that the class had first.
SkillsProvider = SkillsDirectoryProvider


class _VendorProvider(SkillsDirectoryProvider):
    """The skills of an application, in the folder where it keeps them."""

    _folder: tuple[str, ...] = ()

    def __init__(self, reload: bool = False, supporting_files: SupportingFiles = "template") -> None:
        """Find the skills."""
        super().__init__(self._places(), reload, "SKILL.md", supporting_files)

    def _places(self) -> list[Path]:
        return [Path.home().joinpath(*self._folder)]


class ClaudeSkillsProvider(_VendorProvider):
    """The skills of Claude."""

    _folder = (".claude", "skills")


class CursorSkillsProvider(_VendorProvider):
    """The skills of Cursor."""

    _folder = (".cursor", "skills")


class VSCodeSkillsProvider(_VendorProvider):
    """The skills of VS Code."""

    _folder = (".copilot", "skills")


class CopilotSkillsProvider(_VendorProvider):
    """The skills of Copilot."""

    _folder = (".copilot", "skills")


class GeminiSkillsProvider(_VendorProvider):
    """The skills of Gemini."""

    _folder = (".gemini", "skills")


class GooseSkillsProvider(_VendorProvider):
    """The skills of Goose."""

    _folder = (".config", "agents", "skills")


class OpenCodeSkillsProvider(_VendorProvider):
    """The skills of OpenCode."""

    _folder = (".config", "opencode", "skills")


class CodexSkillsProvider(_VendorProvider):
    """The skills of Codex: those of the system, and the user's."""

    def _places(self) -> list[Path]:
        return [Path("/etc/codex/skills"), Path.home() / ".codex" / "skills"]
