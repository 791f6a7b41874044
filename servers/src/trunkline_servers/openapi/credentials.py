"""Credentials of an API: the security schemes of its document, and the values given by the user.

Values come from the user and never from a model. No parameter of an operation can replace a credential, and no header
that decides where a request goes or how it is read is ever a tool argument.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline.server import looks_secret
from trunkline_servers.openapi.document import Document
from trunkline_servers.untrusted import as_dict, as_list

__all__ = ["AppliedCredentials", "Credentials", "is_fixed_header"]

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Headers that only this server sets: they concern identity, routing, framing and the method.
_FIXED = frozenset(
    {
        "accept",
        "accept-encoding",
        "cf-connecting-ip",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "client-ip",
        "fastly-client-ip",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "origin",
        "remote-user",
        "te",
        "true-client-ip",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-host",
        "x-http-host-override",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-original-host",
        "x-original-url",
        "x-real-ip",
        "x-remote-user",
        "x-rewrite-url",
    }
)
_SHORTEST_SECRET = 8
_FIXED_STARTS = ("proxy-", "sec-", "x-forwarded-", ":")


def is_fixed_header(name: str) -> bool:
    """Return True if a tool argument must not set a header."""
    lower = name.strip().lower()
    return not _TOKEN.fullmatch(name) or lower in _FIXED or lower.startswith(_FIXED_STARTS)


class AppliedCredentials(Struct, frozen=True):
    """The credentials of one request, by location."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    cookies: Mapping[str, str]
    #: Names of query parameters and cookies that are credentials, including those this request does not use.
    owned_query: frozenset[str] = frozenset()
    owned_cookies: frozenset[str] = frozenset()


class Credentials:
    """The security schemes of a document and the credentials given for them."""

    def __init__(
        self, document: Document, values: Mapping[str, str] | None = None, *, fixed: Mapping[str, str] | None = None
    ) -> None:
        """Initialize with the values by scheme name, and the headers that the user sends with every request.

        Raises:
            ConfigError: the document has no such scheme, or the value is invalid for it.
        """
        components = as_dict(document.root.get("components"))
        self._schemes = {
            name: document.follow(scheme, f"the security scheme {name!r}")
            for name, scheme in as_dict(components.get("securitySchemes")).items()
        }
        self._values = dict(values or {})
        self._fixed = frozenset(name.lower() for name in fixed or {})
        for name, value in (fixed or {}).items():
            if not _TOKEN.fullmatch(name) or _CONTROLS.search(value) or not _is_unicode(value):
                raise ConfigError(
                    f"The header {name!r} cannot be sent: its name or value has characters it cannot have"
                )
        self._default = as_list(document.root.get("security"))
        for name, value in self._values.items():
            if name not in self._schemes:
                known = ", ".join(sorted(self._schemes)) or "none"
                raise ConfigError(f"{document.name} has no security scheme {name!r}; it has: {known}")
            self._check(name, value)
        self._secrets = self._found_secrets(fixed or {})

    def _check(self, name: str, value: str) -> None:
        scheme = self._schemes[name]
        if not value or _CONTROLS.search(value) or not _is_unicode(value):
            raise ConfigError(f"The credential for {name!r} is empty, is not UTF-8, or has control characters in it")
        if _place(scheme) is None:
            raise ConfigError(
                f"The security scheme {name!r} is of a kind that is not supported: apiKey, http basic and bearer, "
                "oauth2 and openIdConnect are"
            )
        if _place(scheme) == "header" and not _TOKEN.fullmatch(scheme["name"]):
            raise ConfigError(f"The security scheme {name!r} names an invalid header")
        if _place(scheme) == "basic" and ":" not in value:
            raise ConfigError(f"The credential for {name!r} must be USER:PASSWORD")

    def is_credential(self, where: str, name: str) -> bool:
        """Return True if a parameter with this location and name is a credential, which a model must not set."""
        if where == "header" and name.lower() in self._fixed:
            return True
        if where == "cookie" and "cookie" in self._fixed:
            return True
        same = name.lower() if where == "header" else name
        return any(
            scheme.get("type") == "apiKey"
            and scheme.get("in") == where
            and (str(scheme.get("name")).lower() if where == "header" else scheme.get("name")) == same
            for scheme in self._schemes.values()
        )

    def apply(self, operation: Mapping[str, Any], tool: str) -> AppliedCredentials:
        """Return the credentials for an operation: the first alternative for which all values are present.

        Raises:
            ToolError: none is complete, and the operation requires one.
        """
        wanted = operation.get("security", self._default)
        alternatives: Sequence[dict[str, Any]] = [each for each in as_list(wanted) if isinstance(each, dict)]
        for alternative in alternatives:
            if alternative and all(name in self._values or self._is_sent(name) for name in alternative):
                return self._applied([name for name in alternative if name in self._values])
        if not alternatives or {} in alternatives:
            return self._applied([])
        names = " or ".join(" with ".join(alternative) for alternative in alternatives)
        raise ToolError(
            f"{tool} needs a credential that this server was not given ({names}): its user starts it with "
            "--auth NAME=VARIABLE, where VARIABLE holds the value"
        )

    def _is_sent(self, name: str) -> bool:
        """Return True if the user's own headers carry the credential of a scheme."""
        scheme = self._schemes.get(name, {})
        place = _place(scheme)
        header = {"header": str(scheme.get("name")).lower(), "cookie": "cookie", "query": ""}.get(
            place or "query", "authorization"
        )
        return header in self._fixed

    def _found_secrets(self, fixed: Mapping[str, str]) -> Sequence[bytes]:
        """Return the secrets in all forms in which they are sent; shorter ones would match unrelated text."""
        given = [*self._values.values(), *(value for name, value in fixed.items() if looks_secret(name, value))]
        parts = [part for value in given for part in (value, value.rpartition(" ")[2], value.rpartition(":")[2])]
        written = [form for part in parts for form in (part, quote(part, safe=""), b64encode(part.encode()).decode())]
        return sorted({form.encode() for form in written if len(form) >= _SHORTEST_SECRET}, key=len, reverse=True)

    def hidden(self, data: bytes) -> bytes:
        """Return data from a service with any credentials redacted."""
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        return data

    def _applied(self, names: Sequence[str]) -> AppliedCredentials:
        headers: dict[str, str] = {}
        places: dict[str, dict[str, str]] = {"header": headers, "query": {}, "cookie": {}}
        for name in names:
            scheme, value = self._schemes[name], self._values[name]
            place = _place(scheme)
            if place in places:
                places[place][str(scheme["name"])] = value
            elif place == "basic":
                headers["Authorization"] = f"Basic {b64encode(value.encode()).decode()}"
            else:
                headers["Authorization"] = f"Bearer {value}"
        return AppliedCredentials(
            headers, places["query"], places["cookie"], self._owned("query"), self._owned("cookie")
        )

    def _owned(self, where: str) -> frozenset[str]:
        return frozenset(str(each["name"]) for each in self._schemes.values() if _place(each) == where)


def _is_unicode(text: str) -> bool:
    """Return False for text from an environment variable that is not UTF-8."""
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _place(scheme: Mapping[str, Any]) -> str | None:
    """Return where a credential goes; None if the scheme is not supported."""
    match scheme.get("type"):
        case "apiKey" if scheme.get("in") in ("header", "query", "cookie") and isinstance(scheme.get("name"), str):
            return str(scheme["in"])
        case "http":
            kind = str(scheme.get("scheme", "")).lower()
            return kind if kind in ("basic", "bearer") else None
        case "oauth2" | "openIdConnect":
            return "bearer"
    return None
