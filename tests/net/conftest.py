"""Certificates for two names, created once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.net.origins import make_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "auth.pem", "auth.example")


@pytest.fixture(scope="module")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "other.pem", "other.example")
