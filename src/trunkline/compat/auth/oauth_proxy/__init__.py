"""The OAuth proxy: an authorization server that sends users to an identity provider without dynamic registration."""

from __future__ import annotations

__all__: list[str] = []
