"""Resources and templates as objects of the official SDK: reading one returns text or bytes."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import AnyUrl, Field, model_validator

import trunkline.types as t
from trunkline.compat import calls
from trunkline.compat.components import FunctionResourceTemplate, Resource
from trunkline.compat.exceptions import UnexpectedResourceError
from trunkline.compat.resource_definitions import official_content
from trunkline.compat.resource_security import DEFAULT_RESOURCE_SECURITY, INHERIT_SECURITY, ResourceSecurityError
from trunkline.compat.types import model_class
from trunkline.compat.versions import STATE
from trunkline.errors import HandlerError, MissingCapability, RequestFailed

__all__ = ["OfficialFunctionResource", "OfficialResourceObject", "OfficialResourceTemplate"]


class OfficialResourceObject(Resource, abc.ABC):
    """A resource: subclasses say in ``read`` what it holds."""

    _official: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _named_before(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("name") and not data.get("uri"):
            raise ValueError("Either name or uri must be provided")
        return data

    @abc.abstractmethod
    async def read(self) -> Any:
        """Return text or bytes."""


class OfficialFunctionResource(OfficialResourceObject):
    """A resource made of a function."""

    fn: Callable[..., Any] = Field(exclude=True)

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri: Any, *rest: Any, **options: Any) -> Any:
        """Make a resource of a function."""
        names = ("name", "title", "description", "mime_type", "icons", "annotations", "meta")
        options |= dict(zip(names, rest, strict=False))
        name = options.get("name") or getattr(fn, "__name__", "")
        if name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        given = {key: value for key, value in options.items() if value is not None}
        given.setdefault("description", getattr(fn, "__doc__", None) or "")
        return cls(uri=AnyUrl(str(uri)) if STATE.camel_case else str(uri), fn=fn, **{**given, "name": name})

    async def read(self) -> Any:
        """Call the function, in a worker thread if it is sync; what is neither text nor bytes becomes JSON.

        Raises:
            ValueError: the function failed, in version 1.
        """
        try:
            value = await called(self.fn)
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            if STATE.camel_case:
                raise ValueError(f"Error reading resource {self.uri}: {error}") from error
            raise
        if isinstance(value, model_class("InputRequiredResult")):
            raise ValueError("a resource without variables cannot ask for input: use a template")
        return official_content(value)


async def called(fn: Callable[..., Any]) -> Any:
    """Call a function without arguments: sync ones in a worker thread, in version 1 in the event loop."""
    if inspect.iscoroutinefunction(fn) or STATE.camel_case:
        value = fn()
    else:
        # A thread of anyio's, which both frameworks bring along: functions may call back into the event loop.
        from anyio import to_thread

        value = await to_thread.run_sync(fn)
    return await value if inspect.isawaitable(value) else value


class OfficialResourceTemplate(FunctionResourceTemplate):
    """A family of resources made of a function."""

    _official: ClassVar[bool] = True

    @property
    def context_kwarg(self) -> str | None:
        """The parameter that is given the context."""
        return None if self.definition is None else self.definition.function.context_name

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the values of the variables, or None.

        Raises:
            ResourceSecurityError: a value is refused.
        """
        values: dict[str, Any] | None = self._own().matches(str(uri))
        policy = DEFAULT_RESOURCE_SECURITY if self.security is INHERIT_SECURITY else self.security
        refused = None if values is None or policy is None else policy.validate(values)
        if refused is not None:
            raise ResourceSecurityError(self.uri_template, refused)
        return values

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Any:
        """Call the function and return a resource that holds what it returned.

        Raises:
            ResourceError: the function failed.
        """
        definition = self._own()
        given = t.ReadResourceRequestParams(uri=uri)
        try:
            value = await calls.run_function(definition, "resources/read", given, definition.bound(params))
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            text = (
                f"Error creating resource from template {uri}"
                if not STATE.camel_case
                else (f"Error creating resource from template: {error}")
            )
            kind: Any = ValueError if STATE.camel_case else UnexpectedResourceError
            raise kind(text) from error
        if isinstance(value, model_class("InputRequiredResult")):
            return value
        return OfficialFunctionResource(
            uri=uri,
            name=self.name,
            title=self.title,
            description=self.description,
            mime_type=self.mime_type,
            icons=self.icons,
            annotations=self.annotations,
            meta=self.meta,
            fn=lambda: value,
        )
