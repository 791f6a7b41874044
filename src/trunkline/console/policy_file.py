"""Reads and replaces the policy file of a host; an invalid policy is never written."""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from trunkline.host.authorization.policy.loader import parse_policy, read_policy_file
from trunkline.host.authorization.policy.locations import PathContext
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.authorization.policy.policy_tests import parse_policy_tests
from trunkline.host.state_files import write_staged

__all__ = ["check_policy", "digest", "read_policy", "write_policy"]


def read_policy(file: Path) -> str:
    """Return the text of a policy file; empty if it does not exist.

    Raises:
        ConfigError: it cannot be read.
    """
    return read_policy_file(str(file)) if file.exists() else ""


def digest(text: str) -> str:
    """Return a digest of a text; a page sends it back, so that concurrent changes of the file are detected."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_policy(text: str, file: Path, path_context: PathContext) -> Policy:
    """Parse a policy.

    Raises:
        ConfigError: it is invalid; the message has a line for each error.
    """
    policy = parse_policy(text, file=str(file), path_context=path_context)
    parse_policy_tests(text, file=str(file), with_policy=True)
    return policy


def write_policy(file: Path, text: str) -> None:
    """Replace a file atomically, with its permissions; a new file is readable by its owner only.

    Raises:
        OSError: it cannot be written.
    """
    # A symbolic link, such as one into a repository of dotfiles, is kept.
    path = os.path.realpath(file)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    staged = write_staged(path, text.encode())
    try:
        with suppress(FileNotFoundError):
            os.chmod(staged, os.stat(path).st_mode & 0o777)
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged)
        raise
