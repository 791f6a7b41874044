"""The operations of an OpenAPI document, as FastMCP describes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "HTTPRoute",
    "HttpMethod",
    "JsonSchema",
    "ParameterInfo",
    "ParameterLocation",
    "RequestBodyInfo",
    "ResponseInfo",
]

HttpMethod = Literal["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"]
ParameterLocation = Literal["path", "query", "header", "cookie"]
JsonSchema = dict[str, Any]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ParameterInfo(_Record):
    """A parameter of an operation."""

    name: str
    location: ParameterLocation
    required: bool = False
    schema_: JsonSchema = Field(alias="schema")
    description: str | None = None
    explode: bool | None = None
    style: str | None = None


class RequestBodyInfo(_Record):
    """The body of an operation's request, by media type."""

    required: bool = False
    content_schema: dict[str, JsonSchema] = Field(default_factory=dict)
    description: str | None = None
    encoding: dict[str, dict[str, Any]] = Field(default_factory=dict)


class ResponseInfo(_Record):
    """One of the responses of an operation, by media type."""

    description: str | None = None
    content_schema: dict[str, JsonSchema] = Field(default_factory=dict)


class HTTPRoute(_Record):
    """An operation."""

    path: str
    method: HttpMethod
    operation_id: str | None = None
    summary: str | None = None
    description: str | None = None
    tags: list[str] = Field(default_factory=list)
    parameters: list[ParameterInfo] = Field(default_factory=list)
    request_body: RequestBodyInfo | None = None
    responses: dict[str, ResponseInfo] = Field(default_factory=dict)
    #: The named schemas that parameters and body refer to.
    request_schemas: dict[str, JsonSchema] = Field(default_factory=dict)
    #: The named schemas that responses refer to.
    response_schemas: dict[str, JsonSchema] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)
    openapi_version: str | None = None
    #: The schema of a tool's arguments, and where each argument goes.
    flat_param_schema: JsonSchema = Field(default_factory=dict)
    parameter_map: dict[str, dict[str, Any]] = Field(default_factory=dict)
