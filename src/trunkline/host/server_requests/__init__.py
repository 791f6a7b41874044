"""Requests that servers send to the host: sampling, elicitation and roots."""

from __future__ import annotations

__all__: list[str] = []
