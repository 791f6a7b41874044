"""Keeps the configuration of whoever runs the tests out of them."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def nobodys_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
