"""The environment as it may be shown: variables that look like secrets are named, their values are not."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline.protocol.secret_looks import looks_secret

__all__ = ["HIDDEN", "shown_environment"]

#: What stands in place of a value that is not shown.
HIDDEN = "(hidden; start the server with --show-environment to see it)"


def shown_environment(environment: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """Give the variables with their values, without those that look secret unless all are wanted."""
    return {name: value if whole or not looks_secret(name, value) else HIDDEN for name, value in environment.items()}
