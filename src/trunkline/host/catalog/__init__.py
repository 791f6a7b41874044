"""What all servers offer together: listed, named, filtered, kept between runs, searched."""

from __future__ import annotations

__all__: list[str] = []
