"""Check built distributions before they are published: ``python -m tests.release.check dist [--tag vVERSION]``.

Reads the files in the folder alone, as PyPI will serve them; ``make dist`` builds them and runs this after
``twine check``, which sees whether PyPI accepts the metadata and can show the description.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import NamedTuple

__all__ = ["Archive", "faults", "faults_of_tag", "read", "relative_links", "wrong_pins"]

_NEEDED = ("Summary", "License-Expression", "License-File", "Requires-Python", "Description-Content-Type")
_LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)|(?:src|href)=\"(?!https?://|#)([^\"]+)\"")


class Archive(NamedTuple):
    """A wheel or sdist: its metadata, and its files by their path in the project."""

    file: str
    metadata: Message
    members: frozenset[str]

    @property
    def is_wheel(self) -> bool:
        """Whether this is a wheel."""
        return self.file.endswith(".whl")

    @property
    def name(self) -> str:
        """The name of the distribution."""
        return str(self.metadata["Name"])

    @property
    def version(self) -> str:
        """The version of the distribution."""
        return str(self.metadata["Version"])


def read(path: Path) -> Archive:
    """Read a wheel or an sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            names = frozenset(wheel.namelist())
            [file] = [name for name in names if name.endswith(".dist-info/METADATA")]
            return Archive(path.name, message_from_bytes(wheel.read(file)), names)
    with tarfile.open(path) as sdist:
        top = path.name.removesuffix(".tar.gz")
        content = sdist.extractfile(f"{top}/PKG-INFO")
        assert content is not None
        names = frozenset(member.name.removeprefix(f"{top}/") for member in sdist if member.isfile())
        return Archive(path.name, message_from_bytes(content.read()), names)


def faults(archives: list[Archive]) -> Iterator[str]:
    """Return what is wrong with the distributions of one release."""
    versions = {archive.version for archive in archives}
    if len(versions) != 1:
        yield f"the distributions have different versions: {', '.join(sorted(versions))}"
    names = {archive.name for archive in archives}
    for name in sorted(names):
        pair = [archive for archive in archives if archive.name == name]
        if sorted(archive.is_wheel for archive in pair) != [False, True]:
            yield f"{name}: a wheel and an sdist are expected, not {', '.join(archive.file for archive in pair)}"
        else:
            yield from _faults_of_pair(*sorted(pair, key=lambda archive: archive.is_wheel))
    for archive in archives:
        yield from (f"{archive.file}: {fault}" for fault in _faults_of_metadata(archive, names))


def _faults_of_pair(sdist: Archive, wheel: Archive) -> Iterator[str]:
    code = {name for name in wheel.members if ".dist-info/" not in name}
    source = {name.removeprefix("src/") for name in sdist.members if name.startswith("src/")}
    beside = {name for name in sdist.members if not name.startswith("src/")}
    expected = {"pyproject.toml", "PKG-INFO", "PYPI.md", "LICENSE", "CHANGELOG.md", ".gitignore"}
    if code != source:
        yield f"{wheel.file}: differs from the source in the sdist: {', '.join(sorted(code ^ source)[:5])}"
    if beside - expected:
        yield f"{sdist.file}: has files that are not needed to build it: {', '.join(sorted(beside - expected)[:5])}"
    if bad := [name for name in sorted(code) if "__pycache__" in name or name.endswith((".pyc", ".so"))]:
        yield f"{wheel.file}: has files that were made by running it: {', '.join(bad[:5])}"
    if not any(name.count("/") == 1 and name.endswith("/py.typed") for name in code):
        yield f"{wheel.file}: has no py.typed, so type checkers ignore its types"


def _faults_of_metadata(archive: Archive, names: set[str]) -> Iterator[str]:
    yield from (f"has no {field}" for field in _NEEDED if not archive.metadata[field])
    if archive.metadata["Description-Content-Type"] != "text/markdown":
        yield "its description is not Markdown"
    if links := relative_links(str(archive.metadata.get_payload())):
        yield f"its description has links that lead nowhere on PyPI: {', '.join(links[:5])}"
    requirements = archive.metadata.get_all("Requires-Dist", [])
    pins = wrong_pins(requirements, names, archive.version)
    yield from (f"requires {pin}; the distributions are released together at one version" for pin in pins)


def relative_links(markdown: str) -> list[str]:
    """Return the targets of links and images that only work in the repository."""
    return [one or other for one, other in _LINK.findall(re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S))]


def wrong_pins(requirements: list[str], names: set[str], version: str) -> list[str]:
    """Return the requirements of distributions of the same release that are not for exactly its version."""
    ours = [one for one in requirements if re.split(r"[^\w.-]", one)[0] in names]
    return [one for one in ours if not re.search(rf"=={re.escape(version)}(?![\w.])", one)]


def faults_of_tag(archives: list[Archive], tag: str, changes: str) -> Iterator[str]:
    """Return why a tag cannot be released: another version, no entry in the changelog, or no address of the project."""
    for archive in (archive for archive in archives if archive.is_wheel):
        if tag != f"v{archive.version}":
            yield f"{archive.name}: the tag {tag} is not v{archive.version}"
        if not archive.metadata.get_all("Project-URL"):
            yield f"{archive.name}: add [project.urls] with the address of the repository to its pyproject.toml"
    if f"\n## [{tag.removeprefix('v')}]" not in changes:
        yield f'CHANGELOG.md has no "## [{tag.removeprefix("v")}]": give what is under "Unreleased" its version'


def main() -> int:
    """Print what is wrong with the distributions in a folder; return the exit status."""
    parser = argparse.ArgumentParser(description="Check built distributions before they are published.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tag", default="", help="the version tag of the release, such as v0.1.0")
    arguments = parser.parse_args()
    archives = [read(path) for path in sorted(arguments.folder.iterdir()) if path.name.endswith((".whl", ".tar.gz"))]
    wrong = list(faults(archives)) if archives else [f"{arguments.folder} has no distributions"]
    if arguments.tag:
        wrong += faults_of_tag(archives, arguments.tag, Path("CHANGELOG.md").read_text(encoding="utf-8"))
    for line in [*(f"FAILED {fault}" for fault in wrong)] or [f"ok     {archive.file}" for archive in archives]:
        sys.stdout.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
