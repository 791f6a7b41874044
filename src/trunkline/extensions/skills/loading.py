"""Loads a skill: files are read on demand, and used only if they match the entry.

The entry is kept while the skill is used: only files that it lists can be read, and each is compared with its size and
digest. A digest comes from the same server as the content: it shows that both match, not that either can be trusted.
The function that reads a file is passed in.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import msgspec

import trunkline.types as t
from trunkline.errors import VerificationError
from trunkline.extensions.skills.folder import MAX_FILES, MAX_TOTAL_BYTES, digest_of
from trunkline.extensions.skills.frontmatter import (
    SKILL_FILE,
    FrontmatterError,
    allowed_tools,
    differing_fields,
    is_skill_name,
    read_frontmatter,
)

__all__ = ["FetchFile", "LoadedSkill", "VerifiedFiles", "check_entry", "listed_paths", "load_skill", "root_of"]

#: Reads a resource of the skill's server.
FetchFile: TypeAlias = Callable[[str], Awaitable[Sequence[t.ResourceContents]]]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_CACHE_BYTES = 32 * 1024 * 1024  # Two skills of the largest size.
_MAX_PATH = 4096  # Characters of a path; the limit of most systems.
_MAIN_SUFFIX = f"/{SKILL_FILE}"
# Bytes of the frontmatter of an entry as JSON: four times the characters that the YAML reader accepts. A larger one
# cannot match its file.
_MAX_FRONTMATTER = 256 * 1024


class VerifiedFiles:
    """Verified files of one server by URI and digest; the least recently used is dropped first."""

    def __init__(self, limit: int = _CACHE_BYTES) -> None:
        """Create the cache; ``limit`` is the maximum number of bytes."""
        self._limit = limit
        self._files: dict[tuple[str, str], bytes] = {}
        self._size = 0

    def get(self, uri: str, digest: str) -> bytes | None:
        """Return the content of a file with this digest."""
        content = self._files.pop((uri, digest), None)
        if content is not None:
            self._files[uri, digest] = content
        return content

    def put(self, uri: str, digest: str, content: bytes) -> None:
        """Store a verified file."""
        if len(content) > self._limit or (uri, digest) in self._files:
            return
        self._files[uri, digest] = content
        self._size += len(content)
        while self._size > self._limit:
            oldest = next(iter(self._files))
            self._size -= len(self._files.pop(oldest))


class LoadedSkill:
    """A skill in use: its text, and its files as the entry lists them."""

    def __init__(self, entry: t.Skill, text: str, read: Callable[[str], Awaitable[bytes]]) -> None:
        """Create the skill from its entry and its verified ``SKILL.md``; ``read`` returns a verified file by URI."""
        #: The entry that the skill was loaded from; it decides which files may be read.
        self.entry: t.Skill = entry
        #: The whole ``SKILL.md``.
        self.text: str = text
        self._read = read
        self._listed = listed_paths(entry)
        self._dynamic_bytes = len(text.encode())

    def __repr__(self) -> str:
        """Return the URI."""
        return f"<LoadedSkill {self.uri}>"

    @property
    def uri(self) -> str:
        """The URI of the ``SKILL.md``."""
        return self.entry.uri

    @property
    def name(self) -> str:
        """The name; it need not be unique."""
        return str(self.frontmatter["name"])

    @property
    def description(self) -> str:
        """What the skill is for."""
        return str(self.frontmatter["description"])

    @property
    def frontmatter(self) -> Mapping[str, Any]:
        """The frontmatter as the entry has it, verified to be that of the ``SKILL.md``."""
        return self.entry.frontmatter

    @property
    def requested_tools(self) -> list[str]:
        """The tools that the skill requests (``allowed-tools``); a request grants nothing."""
        return allowed_tools(self.frontmatter)

    @property
    def is_dynamic(self) -> bool:
        """Whether the content is generated, so that only the frontmatter was verified."""
        return self.entry.resources == "dynamic"

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files, for ``read``; for a generated skill only the ``SKILL.md`` is known."""
        return tuple(self._listed) if self._listed else (SKILL_FILE,)

    async def read(self, path: str) -> str:
        """Read a file of the skill as text; the path is relative to the skill's folder.

        Raises:
            VerificationError: the skill has no such file, or it does not match the entry.
            ValueError: it is not text; use ``read_bytes``.
        """
        content = await self.read_bytes(path)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path!r} of the skill {self.name!r} is not text; use read_bytes") from error

    async def read_bytes(self, path: str) -> bytes:
        """Read a file of the skill; the path is relative to the skill's folder.

        Raises:
            VerificationError: the skill has no such file, or it does not match the entry.
        """
        relative = _relative_path(self.entry, path)
        # A reference in a text may have a fragment.
        plain = relative.partition("#")[0]
        if self._listed is None:
            return await self._read_dynamic(f"{root_of(self.uri)}/{quote(plain, safe=_PATH_SAFE)}")
        names = (relative, unquote(relative), plain, unquote(plain))
        listed = next((self._listed[name] for name in names if name in self._listed), None)
        if listed is None:
            raise VerificationError(
                f"The skill {self.name!r} lists no file {path!r}, so it was not read. If the skill has changed, "
                f"call get_skill({self.uri!r}) for its current entry, and load it again.",
                uri=f"{root_of(self.uri)}/{relative}",
            )
        return await self._read(listed.uri)

    async def _read_dynamic(self, uri: str) -> bytes:
        content = await self._read(uri)
        self._dynamic_bytes += len(content)
        if self._dynamic_bytes > MAX_TOTAL_BYTES:
            raise VerificationError(
                f"The skill {self.name!r} has sent more than {MAX_TOTAL_BYTES} bytes; no more files are read.", uri=uri
            )
        return content


#: The characters that a path in a URI may have unencoded.
_PATH_SAFE = "/-._~!$&'()*+,;=:@"


def root_of(uri: str) -> str:
    """Return the URI of the folder of a skill."""
    return uri.removesuffix(_MAIN_SUFFIX)


async def load_skill(entry: t.Skill, fetch: FetchFile, cache: VerifiedFiles) -> LoadedSkill:
    """Read the ``SKILL.md`` of an entry, verify it, and return the skill; nothing else is read.

    Raises:
        VerificationError: the entry is invalid, or the file does not match it.
    """
    check_entry(entry)
    listed = {each.uri: each for each in entry.resources} if entry.resources != "dynamic" else {}

    async def read(uri: str) -> bytes:
        if uri in listed:
            return await _fetch_verified(entry, listed[uri], fetch, cache)
        return _content_of(uri, await fetch(uri))

    content = await read(entry.uri)
    if len(content) > MAX_TOTAL_BYTES:
        raise VerificationError(f"{entry.uri} has {len(content)} bytes, too many for a skill.", uri=entry.uri)
    _check_frontmatter(entry, content)
    return LoadedSkill(entry, content.decode("utf-8"), read)


def check_entry(entry: t.Skill) -> None:
    """Check that an entry may be loaded, without reading any file.

    Raises:
        VerificationError: it breaks a rule of the extension, or exceeds its limits.
    """
    problem = _problem(entry)
    if problem is not None:
        raise VerificationError(f"The entry of the skill {entry.uri} cannot be used: {problem}.", uri=entry.uri)


def _problem(entry: t.Skill) -> str | None:
    name, description = entry.frontmatter.get("name"), entry.frontmatter.get("description")
    if not entry.uri.endswith(_MAIN_SUFFIX):
        return f"its URI does not end in {_MAIN_SUFFIX}"
    if not _is_plain(entry.uri):
        return "its URI has a control character, a space, or a segment . or .."
    if not is_skill_name(name) or not isinstance(description, str):
        return "its frontmatter has no valid name and description"
    if root_of(entry.uri).rpartition("/")[2] != name:
        return f"its URI does not name the folder {name!r}"
    if len(msgspec.json.encode(entry.frontmatter)) > _MAX_FRONTMATTER:
        return f"its frontmatter has more than {_MAX_FRONTMATTER} bytes"
    if entry.resources == "dynamic":
        return None
    if len(entry.resources) > MAX_FILES:
        return f"it lists {len(entry.resources)} files, but the limit is {MAX_FILES}"
    if any(each.size < 0 for each in entry.resources) or sum(each.size for each in entry.resources) > MAX_TOTAL_BYTES:
        return f"its files have more than {MAX_TOTAL_BYTES} bytes, which is the limit"
    if any(not _DIGEST.match(each.digest) for each in entry.resources):
        return "a digest is not sha256: and 64 hexadecimal digits"
    inside = f"{root_of(entry.uri)}/"
    if any(not each.uri.startswith(inside) or not _is_clean(each.uri[len(inside) :]) for each in entry.resources):
        return "it lists a file that is outside its folder"
    paths = listed_paths(entry) or {}
    if len(paths) != len(entry.resources):
        return "it lists a file twice"
    return None if SKILL_FILE in paths else f"it does not list its {SKILL_FILE}"


def _is_plain(uri: str) -> bool:
    """Return True if a URI has no spaces, invisible characters or dot segments, which could hide what it names."""
    return uri.isprintable() and " " not in uri and not any(unquote(part) in (".", "..") for part in uri.split("/"))


def _is_clean(path: str) -> bool:
    """Return True if an encoded path names a file and has no ``.`` or ``..`` segments, also after decoding."""
    parts = path.split("/")
    return all(unquote(part) not in ("", ".", "..") and "/" not in unquote(part) for part in parts) and not (
        "?" in path or "#" in path
    )


def listed_paths(entry: t.Skill) -> dict[str, t.SkillResource] | None:
    """Return the files of an entry by their paths, decoded; None if the skill is generated."""
    if entry.resources == "dynamic":
        return None
    skip = len(root_of(entry.uri)) + 1
    return {_decoded(each.uri[skip:]): each for each in entry.resources}


def _decoded(path: str) -> str:
    """Return a decoded path; one that is not UTF-8 stays encoded."""
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        return path


def _relative_path(entry: t.Skill, path: str) -> str:
    """Return a reference inside a skill as a path from its folder.

    Raises:
        VerificationError: it points outside the folder.
    """
    root = root_of(entry.uri)
    given = path[len(root) + 1 :] if path.startswith(f"{root}/") else path
    relative = posixpath.normpath(given) if given else "."
    outside = relative.startswith(("/", "../")) or relative in (".", "..") or "://" in given or "\0" in given
    if outside or len(given) > _MAX_PATH:
        raise VerificationError(
            f"{path[:200]!r} is not a file in the folder of the skill {root}, so it was not read.", uri=entry.uri
        )
    return relative


async def _fetch_verified(entry: t.Skill, listed: t.SkillResource, fetch: FetchFile, cache: VerifiedFiles) -> bytes:
    kept = cache.get(listed.uri, listed.digest)
    content = _content_of(listed.uri, await fetch(listed.uri)) if kept is None else kept
    # Also for a kept file: it was compared with the size in another entry.
    if len(content) != listed.size:
        raise _mismatch(entry, listed.uri, f"it has {len(content)} bytes, but the entry says {listed.size}")
    if kept is None and digest_of(content) != listed.digest:
        raise _mismatch(entry, listed.uri, "its digest is not the one in the entry")
    cache.put(listed.uri, listed.digest, content)
    return content


def _check_frontmatter(entry: t.Skill, content: bytes) -> None:
    try:
        fields = differing_fields(read_frontmatter(content), entry.frontmatter)
    except FrontmatterError as error:
        raise _mismatch(entry, entry.uri, str(error)) from error
    if fields:
        raise _mismatch(entry, entry.uri, f"its frontmatter differs from the entry in {', '.join(fields)}")


def _mismatch(entry: t.Skill, uri: str, reason: str) -> VerificationError:
    return VerificationError(
        f"{uri} was not used: {reason}. If the skill has changed, call get_skill({entry.uri!r}) for its current entry, "
        "and load it again.",
        uri=uri,
    )


def _content_of(uri: str, contents: Sequence[t.ResourceContents]) -> bytes:
    """Return the bytes of the file that was read."""
    own = [each for each in contents if each.uri == uri] if len(contents) > 1 else contents
    if len(own) != 1:
        raise VerificationError(f"{uri} was not used: the server sent {len(own)} files for it.", uri=uri)
    only = own[0]
    try:
        return only.text.encode() if only.text is not None else base64.b64decode(only.blob or "", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise VerificationError(f"{uri} was not used: its content cannot be decoded.", uri=uri) from error
