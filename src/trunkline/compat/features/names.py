"""The modules of FastMCP's smaller features that are replaced, and where each name is found here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["FEATURE_MODULES"]

_TASK_MODELS = (
    "features.tasks: CancelTaskResult CreateTaskResult GetTaskParams GetTaskResult UpdateTaskParams UpdateTaskResult"
)
_STATE = (
    "features.state: SESSION_ID_DESCRIPTION CurrentSession InvalidSession OptionalCurrentSession Session "
    "SessionAuthError SessionId SessionProvider UserSession create_session end_session get_session "
    "session_id_parameter_names session_storage_key _USER_SESSION_ID"
)

FEATURE_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mcp_types.methods": ("features.cache_hints: CACHEABLE_METHODS CacheableMethod",),
        "mcp.server.caching": ("features.cache_hints: CacheHint",),
        "mcp.client._input_required": ("wire: InputRequiredRoundsExceededError",),
        "fastmcp.server.caching": ("features.cache_hints: CacheScope build_cache_hints",),
        "fastmcp.server.completions": (
            "features.completions: MAX_COMPLETION_VALUES CompletionHandler CompletionReference CompletionValues "
            "normalize_completion",
        ),
        "fastmcp.server.event_store": (
            "features.event_store: EventEntry EventStore SessionScopedEventStore StreamEventList _LOCK_STRIPES",
        ),
        "fastmcp.server.lifespan": ("features.lifespans: ComposedLifespan ContextManagerLifespan Lifespan lifespan",),
        "fastmcp.utilities.lifespan": ("features.lifespans: combine_lifespans",),
        "fastmcp.utilities.pagination": ("features.pagination: CursorState paginate_sequence",),
        "fastmcp.server.sessions": (_STATE,),
        "fastmcp.server.extensions": (
            "features.server_extensions: MethodBinding=ExtensionMethod ServerExtension ToolCallContinuation "
            "ToolCallOutcome read_client_extension_settings",
        ),
        "fastmcp.server.dependencies": (
            "features.state: get_session",
            "features.injection: resolve_dependencies CallArgument CycleError",
            "features.tasks: _serving_client_tool_call=serving_client_tool_call",
            "request_context: bind_request_context",
        ),
        "fastmcp.dependencies": ("features.injection: CallArgument CycleError",),
        "fastmcp.server.http": (
            "features.host_guard: HostOriginGuardMiddleware HostOriginProtection",
            "features.http_sessions: FastMCPStreamableHTTPSessionManager StreamableHTTPASGIApp set_http_request",
            "context: _current_http_request=CURRENT_REQUEST",
        ),
        "fastmcp.server.mixins.transport": (
            "features.host_guard: _format_host_for_url=format_host_for_url "
            "_resolve_allowed_hosts_for_run=hosts_for_run",
        ),
        "fastmcp.server.context": ("request_context: set_transport reset_transport",),
        "fastmcp.tools.base": ("features.asks: InputRequiredToolResult",),
        "fastmcp.prompts.base": ("features.asks: InputRequiredPromptResult",),
        "fastmcp.resources.base": ("features.asks: InputRequiredResourceResult",),
        "fastmcp.utilities.tests": ("testing: ASGIServer=RunningServer",),
        "fastmcp.tools.function_parsing": ("fast_functions: _strip_input_required=_without_input_required",),
        "fastmcp.server.providers.wrapped_provider": ("providers.base: _WrappedProvider=WrappedProvider",),
        "fastmcp.telemetry": (
            "features.telemetry: INSTRUMENTATION_NAME TRACE_PARENT_KEY TRACE_STATE_KEY get_tracer inject_trace_context",
        ),
        "fastmcp.server.telemetry": ("features.telemetry: delegate_span server_span",),
        "fastmcp_tasks": ("features.tasks: TasksExtension",),
        "fastmcp_tasks.context": ("features.tasks: TaskContext get_task_context _recall_snapshot=recall_snapshot",),
        "fastmcp_tasks.extension": ("features.tasks: TasksExtension",),
        "fastmcp_tasks.models": (_TASK_MODELS,),
        "fastmcp_tasks.handlers": ("features.tasks: tasks_cancel tasks_get tasks_update",),
    }
)
