"""One call of an operation: the request built from a tool's arguments, and the result made of the response.

The request goes to the API's own URL with the user's credentials; arguments can change neither. A response with status
400 or above is an error with the service's own words; content other than text is returned as its own content type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trunkline.errors import ToolError
from trunkline.server import Audio, File, Image, ToolResult, Validator
from trunkline.types import TextContent
from trunkline_servers.api_client import ApiClient, ApiError, ApiResponse, RawBody
from trunkline_servers.openapi.credentials import AppliedCredentials, Credentials
from trunkline_servers.openapi.operations import Operation
from trunkline_servers.openapi.parameters import check_no_overlap, cookie_pairs, header_text, path_text, query_pairs
from trunkline_servers.openapi.request_bodies import encode_body
from trunkline_servers.untrusted import one_line

__all__ = ["ApiRequest", "OperationCaller", "build_request", "media_type", "response_text"]

_VARIABLE = re.compile(r"\{([^{}]*)\}")
_JSON = re.compile(r"application/(?:json|[\w.+-]+\+json)\b", re.IGNORECASE)
_TEXT = re.compile(r"text/|application/(?:xml|[\w.+-]+\+xml|yaml|x-yaml|javascript|graphql|x-ndjson)\b", re.IGNORECASE)
_DOTS = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
_CHARSET = re.compile(r'charset="?([\w-]+)', re.IGNORECASE)
# Python has many more codecs: some do not decode text, and one takes quadratic time.
_CHARSETS = re.compile(
    r"utf-?(?:8|16|32)(?:-?[lb]e)?|(?:us-)?ascii|latin-?1|iso-8859-\d+|windows-\d+|cp\d+|koi8-[ru]|shift_jis|"
    r"iso-2022-jp|euc-(?:jp|kr)|gb(?:2312|k|18030)|big5",
    re.IGNORECASE,
)
#: Characters of the document's path template that are sent as they are; the rest is percent-encoded.
_IN_PATHS = "/%:@!$&'()*+,;=~"
_ACCEPT = "application/json, */*;q=0.5"
_MOST_HEADERS = 4000


class ApiRequest(Struct, frozen=True):
    """A request to the API; the path includes the query, both encoded."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: RawBody | None


def build_request(operation: Operation, arguments: Mapping[str, Any], applied: AppliedCredentials) -> ApiRequest:
    """Build the request of a call.

    Raises:
        ToolError: an argument cannot be serialized, or would change the path.
    """
    listed = operation.listed
    path = "".join(
        path_text(operation.variables[piece], arguments[operation.variables[piece].argument])
        if is_variable
        else quote(piece, safe=_IN_PATHS)
        for is_variable, piece in zip(cycle((False, True)), _VARIABLE.split(listed.path), strict=False)
    )
    if _DOTS.search(path):
        raise ToolError("The arguments would lead to another path")
    pairs = _query(operation, arguments, applied)
    path += "?" + "&".join(f"{name}={value}" for name, value in pairs) if pairs else ""
    body = None if operation.body is None else encode_body(operation.body, arguments)
    return ApiRequest(listed.method, path, _headers(operation, arguments, applied), body)


def _query(operation: Operation, arguments: Mapping[str, Any], applied: AppliedCredentials) -> list[tuple[str, str]]:
    known = [each for each in operation.parameters if each.where == "query"]
    names = [each.name for each in known]
    pairs: list[tuple[str, str]] = []
    for parameter in known:
        if parameter.argument in arguments:
            written = query_pairs(parameter, arguments[parameter.argument])
            check_no_overlap(parameter, written, others=names, owned=applied.owned_query)
            pairs += written
    return pairs + [(quote(name, safe=""), quote(value, safe="")) for name, value in applied.query.items()]


def _headers(operation: Operation, arguments: Mapping[str, Any], applied: AppliedCredentials) -> dict[str, str]:
    headers = {"Accept": _ACCEPT}
    cookies: list[tuple[str, str]] = []
    names = [each.name for each in operation.parameters if each.where == "cookie"]
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if value is None:
            continue
        if parameter.where == "header":
            headers[parameter.name] = header_text(parameter, value)
        elif parameter.where == "cookie":
            written = cookie_pairs(parameter, value)
            check_no_overlap(parameter, written, others=names, owned=applied.owned_cookies)
            cookies += written
    cookies += [(quote(name, safe=""), quote(value, safe="")) for name, value in applied.cookies.items()]
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies)
    return {**headers, **applied.headers}


class OperationCaller:
    """Calls the operations of one API."""

    def __init__(self, apis: Mapping[str, ApiClient], credentials: Credentials, *, fixed: Sequence[str] = ()) -> None:
        """Initialize with an API client per base URL; the headers in ``fixed`` keep the values given by the user."""
        self._apis = apis
        self._credentials = credentials
        self._fixed = frozenset(name.lower() for name in fixed)

    async def aclose(self) -> None:
        """Close the connections."""
        for api in self._apis.values():
            await api.aclose()

    async def send(self, operation: Operation, arguments: Mapping[str, Any], base: str) -> ApiResponse:
        """Send the request of a call and return the successful response.

        Raises:
            ToolError: the request cannot be sent, or the response is not a success.
        """
        api, listed = self._apis[base], operation.listed
        request = build_request(operation, arguments, self._credentials.apply(listed.node, listed.name))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in self._fixed}
        hide = self._credentials.hidden
        try:
            reply = await api.request(request.method, request.path, body=request.body, headers=headers)
        except ApiError as error:
            told = hide(str(error).encode(errors="replace")).decode()
            raise ApiError(told, status=error.status, retry_after=error.retry_after) from error
        seen = {name: hide(value.encode(errors="replace")).decode() for name, value in reply.headers.items()}
        reply = ApiResponse(reply.status, seen, hide(reply.body), reply.service, reply.method)
        if reply.status >= 300:
            raise ToolError(f"{api.service} answered {reply.status}, a redirect that is not followed")
        return reply

    async def call(
        self, operation: Operation, arguments: Mapping[str, Any], *, base: str, output_validator: Validator | None
    ) -> ToolResult:
        """Call an operation as a tool.

        Raises:
            ToolError: the request cannot be sent, or the response is not a success.
        """
        reply = await self.send(operation, arguments, base)
        told = [f"{name}: {reply.headers[name]}" for name in operation.reported_headers if name in reply.headers]
        note = one_line("; ".join(told), _MOST_HEADERS)
        if output_validator is not None:
            return _structured_result(reply, output_validator, note)
        content = _content(reply, operation)
        if note and isinstance(content, str):
            return ToolResult([TextContent(text=content), TextContent(text=note)])
        return ToolResult(content)


# --- answers ---------------------------------------------------------------------------------------------------------


def _structured_result(reply: ApiResponse, output_validator: Validator, note: str) -> ToolResult:
    """Return the response as structured content; if it breaks its schema, an error that says the call was made."""
    text = reply.body.decode(errors="replace")
    try:
        value = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem = "it is not JSON"
    else:
        found = output_validator.first_violation(value)
        if found is None and note:
            return ToolResult([TextContent(text=text), TextContent(text=note)], structured_content=value)
        if found is None:
            return ToolResult(structured_content=value)
        problem = f"{found.path}: {found.message}" if found.path else found.message
    said = (
        f"The request was carried out (status {reply.status}), but the answer is not what the API's document promises "
        f"({problem}). Do not repeat it. The answer was:"
    )
    return ToolResult([TextContent(text=said), TextContent(text=text)], is_error=True)


def media_type(reply: ApiResponse) -> str:
    """Return the media type of a response, without its parameters."""
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _content(reply: ApiResponse, operation: Operation) -> Any:
    if operation.listed.method == "HEAD":
        shown = sorted((name, value) for name, value in reply.headers.items() if name != "set-cookie")
        lines = "\n".join(f"{name}: {value}" for name, value in shown)
        return f"Status {reply.status}\n{lines[:_MOST_HEADERS]}"
    if not reply.body:
        return f"Done (status {reply.status}, no content)."
    kind = media_type(reply)
    if kind.startswith("image/") and not kind.endswith("+xml"):
        return Image(data=reply.body, mime_type=kind)
    if kind.startswith("audio/"):
        return Audio(data=reply.body, mime_type=kind)
    text = response_text(reply)
    if text is not None:
        return text
    name = _VARIABLE.sub("x", operation.listed.path).rstrip("/").rpartition("/")[2] or "answer"
    return File(data=reply.body, name=name, mime_type=kind or "application/octet-stream")


def response_text(reply: ApiResponse) -> str | None:
    """Return the text of a response; None if it is not text."""
    header = reply.headers.get("content-type", "")
    if header and not (_JSON.match(header) or _TEXT.match(header)):
        return None
    charset = _CHARSET.search(header)
    if charset and not _CHARSETS.fullmatch(charset.group(1)):
        return None
    try:
        return reply.body.decode(charset.group(1) if charset else "utf-8")
    except (LookupError, UnicodeError):
        return None
