"""The environment as it may be shown: variables that look like secrets are named, their values are not."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["HIDDEN", "shown_environment"]

#: What stands in place of a value that is not shown.
HIDDEN = "(hidden; start the server with --show-environment to see it)"

_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!ORS?(_|$))|COOKIE|SESSION|SIGNATURE|PRIVATE|CONNECTION_?STRING"
    r"|(^|_)(PWD|PASS|PAT|DSN|SALT|CERT|JWT|PIN)(_|$)|KEY(S|_|$|[A-Z]*_?(ID|BASE64|B64|FILE)$)",
    re.IGNORECASE,
)
_NEVER_SECRET = frozenset({"PWD", "OLDPWD"})
#: A user or password inside a URL, a signature in its query, and the tokens that services mark by how they begin.
_SECRET_VALUE = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/@\s]+@|[?&](sig|signature|token|key|password|secret|access_token|api_key)=|\b(gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-|AKIA|eyJ[\w-]+\.eyJ)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY",
    re.IGNORECASE,
)


def shown_environment(environment: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """Give the variables with their values, without those that look secret unless all are wanted."""
    return {name: value if whole or not _secret(name, value) else HIDDEN for name, value in environment.items()}


def _secret(name: str, value: str) -> bool:
    named = name not in _NEVER_SECRET and _SECRET_NAME.search(name) is not None
    return named or _SECRET_VALUE.search(value) is not None
