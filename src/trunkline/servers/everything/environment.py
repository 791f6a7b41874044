"""The environment without its secrets: variables that look secret are named, but their values are hidden."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline.protocol.secret_looks import looks_secret

__all__ = ["HIDDEN", "shown_environment"]

#: Replaces a hidden value.
HIDDEN = "(hidden; start the server with --show-environment to see it)"


def shown_environment(environment: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """Return the variables, with values that look secret hidden unless ``whole``."""
    return {name: value if whole or not looks_secret(name, value) else HIDDEN for name, value in environment.items()}
