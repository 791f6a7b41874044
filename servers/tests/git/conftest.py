"""A repository for each test, without the configuration of the user who runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from servers.tests.git.support import make_repository


@pytest.fixture(autouse=True)
def no_user_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit of ``a.txt``, and a change in it that is not staged."""
    return make_repository(tmp_path / "repository")
