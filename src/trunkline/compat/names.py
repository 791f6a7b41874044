"""The modules of ``mcp``, ``mcp_types`` and ``fastmcp`` that are replaced, and where each name is found here.

One line for each foreign module: names of ours, after the module of ours that has them. ``Theirs=ours`` renames.
A package is every name that another begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trunkline.compat.auth.names import AUTH_MODULES
from trunkline.compat.features.names import FEATURE_MODULES

__all__ = ["ALL_TYPES", "MODULES", "find_name", "is_module"]

#: Stands for every protocol type.
ALL_TYPES = "*types"

_LOW = (
    "lowlevel: Server NotificationOptions InitializationOptions stdio_server",
    "exceptions: McpError MCPError=McpError",
)
_COMPONENTS = (
    "components: Tool FunctionTool Prompt FunctionPrompt PromptArgument Resource FunctionResource ResourceTemplate "
    "FunctionResourceTemplate FastMCPComponent=Component"
)
_OFFICIAL_COMPONENTS = (
    "official_components: Tool=OfficialTool Prompt=OfficialPrompt",
    "official_resources: Resource=OfficialResourceObject FunctionResource=OfficialFunctionResource "
    "ResourceTemplate=OfficialResourceTemplate",
    "components: PromptArgument",
)
_RESULTS = (
    "results: ToolResult Message UserMessage AssistantMessage PromptResult ResourceContent ResourceResult "
    "ReadResourceContents"
)
_FILES = "ready_resources: TextResource BinaryResource FileResource HttpResource DirectoryResource"
_OFFICIAL_FILES = (
    "ready_resources: TextResource=OfficialTextResource BinaryResource=OfficialBinaryResource "
    "FileResource=OfficialFileResource HttpResource=OfficialHttpResource DirectoryResource=OfficialDirectoryResource"
)
_SECURITY = "resource_security: ResourceSecurity DEFAULT_RESOURCE_SECURITY ResourceSecurityError"
_FAST_ERRORS = (
    "exceptions: ToolError ResourceError PromptError ValidationError NotFoundError DisabledError FastMCPError "
    "InvalidSignature ClientError McpError AuthorizationError InsufficientScopeError"
)
_OFFICIAL_ERRORS = (
    "exceptions: MCPServerError=FastMCPError UnexpectedResourceError FastMCPError "
    "ValidationError ToolError ResourceError "
    "ResourceNotFoundError InvalidSignature PromptError UnexpectedToolError"
)
_MIDDLEWARE = ("middleware.base: Middleware MiddlewareContext CallNext=GenericCallNext",)
_LOGGING = "middleware.logging: LoggingMiddleware StructuredLoggingMiddleware"
_TIMING = "middleware.timing: TimingMiddleware DetailedTimingMiddleware"
_FAILURES = "middleware.error_handling: ErrorHandlingMiddleware RetryMiddleware"
_RATES = (
    "middleware.rate_limiting: RateLimitError RateLimitingMiddleware SlidingWindowRateLimiter "
    "SlidingWindowRateLimitingMiddleware TokenBucketRateLimiter"
)
_PINGS = "middleware.ping: PingMiddleware"
_CHECKS = "middleware.authorization: AuthMiddleware"
_DEPENDENCIES = (
    "dependencies: Depends CurrentContext OptionalCurrentContext CurrentFastMCP CurrentServer CurrentRequest "
    "CurrentHeaders CurrentAccessToken TokenClaim Progress Shared get_context get_server get_http_request "
    "get_http_headers get_access_token is_docket_available"
)
_TRANSPORTS = (
    "transports: ClientTransport FastMCPTransport StreamableHttpTransport SSETransport StdioTransport "
    "PythonStdioTransport NodeStdioTransport NpxStdioTransport UvxStdioTransport UvStdioTransport infer_transport"
)
_TRANSFORMS = (
    "transforms.base: GetToolNext GetResourceNext GetResourceTemplateNext GetPromptNext Transform Namespace "
    "ToolTransform Visibility VersionFilter"
)
_AS_TOOLS = "transforms.catalog: CatalogTransform ResourcesAsTools PromptsAsTools"
_SEARCH = "transforms.search: BaseSearchTransform BM25SearchTransform RegexSearchTransform"
_PROVIDERS = (
    "providers.base: Provider AggregateProvider",
    "providers.local: LocalProvider",
    "providers.mounted: FastMCPProvider",
)
_OPENAPI = "openapi.provider: OpenAPIProvider MCPType RouteMap"
_OPENAPI_COMPONENTS = "openapi.components: OpenAPITool OpenAPIResource OpenAPIResourceTemplate"
_OPENAPI_MODELS = (
    "openapi.models: HTTPRoute HttpMethod JsonSchema ParameterInfo ParameterLocation RequestBodyInfo ResponseInfo"
)
_SKILLS = (
    "providers.skills: ClaudeSkillsProvider CodexSkillsProvider CopilotSkillsProvider CursorSkillsProvider "
    "GeminiSkillsProvider GooseSkillsProvider OpenCodeSkillsProvider SkillProvider SkillsDirectoryProvider "
    "SkillsProvider VSCodeSkillsProvider"
)
_PROXY = (
    "providers.proxy: create_proxy FastMCPProxy ProxyProvider ProxyClient StatefulProxyClient ProxyTool "
    "ProxyResource ProxyTemplate ProxyPrompt ProxyMetadataMiddleware ProxyInitializeMiddleware=ProxyMetadataMiddleware "
    "_ForwardingClientSession _create_client_factory"
)
_ELICITED = (
    "elicitation: elicit_url elicit_with_validation AcceptedElicitation DeclinedElicitation "
    "CancelledElicitation ElicitationResult "
    "CancelledElicitationResult=CancelledElicitation AcceptedUrlElicitation UrlElicitationResult"
)

_OFFICIAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mcp": (
            ALL_TYPES,
            "sessions: ClientSession Client=MCPClient StdioServerParameters stdio_client",
            "context: ServerSession",
            "lowlevel: stdio_server",
            "exceptions: McpError MCPError=McpError UrlElicitationRequiredError MCPDeprecationWarning",
            "wire: InputRequiredRoundsExceededError UriTemplate",
        ),
        "mcp.types": (ALL_TYPES,),
        "mcp_types": (ALL_TYPES,),
        "mcp_types.jsonrpc": (ALL_TYPES,),
        "mcp_types.version": (
            "wire: LATEST_HANDSHAKE_VERSION LATEST_MODERN_VERSION LATEST_PROTOCOL_VERSION "
            "HANDSHAKE_PROTOCOL_VERSIONS "
            "MODERN_PROTOCOL_VERSIONS SUPPORTED_PROTOCOL_VERSIONS",
        ),
        "mcp.server": (
            *_LOW,
            "official: FastMCP MCPServer",
            "context: ServerRequestContext=RequestContext ServerSession",
        ),
        "mcp.server.fastmcp": (
            "official: FastMCP",
            "context: Context=OfficialContext",
            "utilities: Image Audio",
            "types: Icon",
        ),
        "mcp.server.fastmcp.server": (
            "official: FastMCP",
            "context: Context=OfficialContext",
            "servers: Settings",
            "utilities: get_logger",
        ),
        "mcp.server.fastmcp.exceptions": (_OFFICIAL_ERRORS,),
        "mcp.server.fastmcp.utilities.types": ("utilities: Image Audio",),
        "mcp.server.fastmcp.utilities.logging": ("utilities: get_logger configure_logging",),
        "mcp.server.fastmcp.utilities.func_metadata": ("metadata: FuncMetadata ArgModelBase func_metadata",),
        "mcp.server.fastmcp.tools": (*_OFFICIAL_COMPONENTS, "managers: ToolManager"),
        "mcp.server.fastmcp.tools.base": (*_OFFICIAL_COMPONENTS,),
        "mcp.server.fastmcp.tools.tool_manager": ("managers: ToolManager",),
        "mcp.server.fastmcp.prompts": (*_OFFICIAL_COMPONENTS, _RESULTS, "managers: PromptManager"),
        "mcp.server.fastmcp.prompts.base": (
            *_OFFICIAL_COMPONENTS,
            _RESULTS,
            "types: TextContent EmbeddedResource ImageContent",
        ),
        "mcp.server.fastmcp.prompts.manager": ("managers: PromptManager",),
        "mcp.server.fastmcp.resources": (*_OFFICIAL_COMPONENTS, _OFFICIAL_FILES, "managers: ResourceManager"),
        "mcp.server.fastmcp.resources.base": (*_OFFICIAL_COMPONENTS,),
        "mcp.server.fastmcp.resources.types": (*_OFFICIAL_COMPONENTS, _OFFICIAL_FILES),
        "mcp.server.fastmcp.resources.templates": (*_OFFICIAL_COMPONENTS,),
        "mcp.server.fastmcp.resources.resource_manager": ("managers: ResourceManager",),
        "mcp.server.mcpserver": (
            "official: MCPServer",
            "context: Context=OfficialContext",
            "utilities: Image Audio",
            "types: Icon",
            _ELICITED,
            "exceptions: UrlElicitationRequiredError",
            "results: Message UserMessage AssistantMessage",
            "wire: RequestStateSecurity",
            "extensions: require_client_extension",
            _SECURITY,
            "dependencies: Resolve=Depends",
        ),
        "mcp.server.mcpserver.server": (
            "official: MCPServer",
            "context: Context=OfficialContext",
            "servers: Settings",
        ),
        "mcp.server.mcpserver.context": ("context: Context=OfficialContext",),
        "mcp.server.mcpserver.exceptions": (_OFFICIAL_ERRORS,),
        "mcp.server.mcpserver.utilities.types": ("utilities: Image Audio",),
        "mcp.server.mcpserver.utilities.logging": ("utilities: get_logger configure_logging",),
        "mcp.server.mcpserver.utilities.func_metadata": ("metadata: FuncMetadata ArgModelBase func_metadata",),
        "mcp.server.mcpserver.tools": (*_OFFICIAL_COMPONENTS, "managers: ToolManager"),
        "mcp.server.mcpserver.tools.base": (*_OFFICIAL_COMPONENTS,),
        "mcp.server.mcpserver.tools.tool_manager": ("managers: ToolManager",),
        "mcp.server.mcpserver.prompts": (*_OFFICIAL_COMPONENTS, _RESULTS, "managers: PromptManager"),
        "mcp.server.mcpserver.prompts.base": (*_OFFICIAL_COMPONENTS, _RESULTS),
        "mcp.server.mcpserver.prompts.manager": ("managers: PromptManager",),
        "mcp.server.mcpserver.resources": (*_OFFICIAL_COMPONENTS, _OFFICIAL_FILES, "managers: ResourceManager"),
        "mcp.server.mcpserver.resources.base": (*_OFFICIAL_COMPONENTS,),
        "mcp.server.mcpserver.resources.types": (*_OFFICIAL_COMPONENTS, _OFFICIAL_FILES),
        "mcp.server.mcpserver.resources.templates": (
            *_OFFICIAL_COMPONENTS,
            _SECURITY,
        ),
        "mcp.server.lowlevel": (*_LOW,),
        "mcp.server.lowlevel.server": (*_LOW, "context: request_ctx=CURRENT_CONTEXT"),
        "mcp.server.lowlevel.helper_types": ("results: ReadResourceContents",),
        "mcp.server.models": ("lowlevel: InitializationOptions",),
        "mcp.server.stdio": ("lowlevel: stdio_server",),
        "mcp.server.session": ("context: ServerSession", "lowlevel: InitializationOptions", "wire: ServerSessionT"),
        "mcp.server.context": (
            "context: ServerRequestContext=RequestContext RequestContext",
            "wire: CallNext HandlerResult ServerMiddleware LifespanContextT RequestT",
        ),
        "mcp.server.elicitation": (_ELICITED,),
        "mcp.server.sse": ("sse: SseServerTransport",),
        "mcp.server.streamable_http": ("sse: StreamableHTTPServerTransport EventStore EventMessage",),
        "mcp.server.streamable_http_manager": ("http_apps: StreamableHTTPSessionManager=SessionManager",),
        "mcp.server.transport_security": ("http_apps: TransportSecuritySettings",),
        "mcp.shared.exceptions": (
            "exceptions: McpError MCPError=McpError UrlElicitationRequiredError StatelessModeNotSupported "
            "MCPDeprecationWarning",
        ),
        "mcp.shared.context": ("context: RequestContext", "wire: LifespanContextT RequestT"),
        "mcp.shared.session": ("wire: RequestResponder BaseSession ProgressFnT",),
        "mcp.shared.message": (
            "streams: SessionMessage",
            "wire: ServerMessageMetadata ClientMessageMetadata MessageMetadata",
        ),
        "mcp.shared.memory": (
            "sessions: create_connected_server_and_client_session",
            "wire: create_client_server_memory_streams",
        ),
        "mcp.shared.metadata_utils": ("wire: get_display_name",),
        "mcp.shared._otel": (),
        "mcp.shared.tool_name_validation": ("tool_names: validate_and_warn_tool_name",),
        "mcp.shared.path_security": (
            "resource_security: PathEscapeError contains_path_traversal is_absolute_path safe_join",
        ),
        "mcp.server.subscriptions": (
            "subscriptions: InMemorySubscriptionBus PromptsListChanged ResourceUpdated ResourcesListChanged "
            "ServerEvent ToolsListChanged",
        ),
        "mcp.shared.uri_template": ("wire: UriTemplate InvalidUriTemplate",),
        "mcp.server.request_state": ("wire: RequestStateSecurity",),
        "mcp.shared.version": ("wire: SUPPORTED_PROTOCOL_VERSIONS LATEST_PROTOCOL_VERSION",),
        "mcp.client": (
            "sessions: Client=MCPClient ClientSession StdioServerParameters stdio_client",
            "wire: ClientRequestContext IncomingMessage",
            "extensions: advertise ClientExtension",
        ),
        "mcp.server.extension": ("extensions: Extension MethodBinding ResourceBinding ToolBinding",),
        "mcp.client.client": ("sessions: Client=MCPClient",),
        "mcp.client.session": (
            "sessions: ClientSession",
            "wire: ElicitationFnT SamplingFnT ListRootsFnT LoggingFnT MessageHandlerFnT ClientRequestContext",
        ),
        "mcp.client.stdio": (
            "sessions: StdioServerParameters stdio_client",
            "wire: get_default_environment DEFAULT_INHERITED_ENV_VARS",
        ),
        "mcp.client.sse": ("sessions: sse_client",),
        "mcp.client.streamable_http": (
            "sessions: streamablehttp_client streamable_http_client=streamablehttp_client",
            "wire: GetSessionIdCallback",
        ),
    }
)

_FAST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fastmcp": (
            "fast_server: FastMCP",
            "providers.apps: FastMCPApp",
            "clients: Client",
            "context: Context=FastContext",
            "utilities: Image settings",
            "wire: FastMCPDeprecationWarning",
        ),
        "fastmcp.exceptions": (_FAST_ERRORS, "resource_security: ResourceSecurityError"),
        "fastmcp.dependencies": (_DEPENDENCIES,),
        "fastmcp.settings": ("utilities: settings Settings=_Settings",),
        "fastmcp.types": ("utilities: Image Audio File",),
        "fastmcp.resources.security": (_SECURITY, "resource_security: INHERIT_SECURITY"),
        "fastmcp.server": (
            "fast_server: FastMCP",
            "providers.proxy: create_proxy",
            "context: Context=FastContext",
        ),
        "fastmcp.server.server": (
            "fast_server: FastMCP",
            "providers.proxy: create_proxy",
        ),
        "fastmcp.server.context": ("context: Context=FastContext",),
        "fastmcp.server.dependencies": (_DEPENDENCIES,),
        "fastmcp.server.elicitation": (_ELICITED,),
        "fastmcp.server.http": ("http_apps: create_streamable_http_app create_sse_app",),
        "fastmcp.server.proxy": (_PROXY,),
        "fastmcp.server.middleware": (*_MIDDLEWARE, _PINGS, _CHECKS),
        "fastmcp.server.middleware.middleware": (*_MIDDLEWARE,),
        "fastmcp.server.middleware.logging": (
            *_MIDDLEWARE,
            _LOGGING,
            "middleware.logging: BaseLoggingMiddleware default_serializer _get_duration_ms",
        ),
        "fastmcp.server.middleware.timing": (*_MIDDLEWARE, _TIMING),
        "fastmcp.server.middleware.error_handling": (*_MIDDLEWARE, _FAILURES),
        "fastmcp.server.middleware.rate_limiting": (*_MIDDLEWARE, _RATES, "middleware.rate_limiting: time"),
        "fastmcp.server.middleware.dereference": (
            *_MIDDLEWARE,
            "middleware.dereference: DereferenceRefsMiddleware",
        ),
        "fastmcp.server.middleware.ping": (*_MIDDLEWARE, _PINGS),
        "fastmcp.server.middleware.authorization": (*_MIDDLEWARE, _CHECKS),
        "fastmcp.server.middleware.response_limiting": (
            *_MIDDLEWARE,
            "middleware.tools: ResponseLimitingMiddleware",
        ),
        "fastmcp.server.middleware.tool_injection": (
            *_MIDDLEWARE,
            "middleware.tools: ToolInjectionMiddleware PromptToolMiddleware ResourceToolMiddleware",
        ),
        "fastmcp.server.middleware.caching": (
            *_MIDDLEWARE,
            "middleware.caching: ANONYMOUS_AUTH_KEY CacheableMessage CacheablePromptResult CacheableResourceContent "
            "CacheableResourceResult CacheableToolResult CallToolSettings GetPromptSettings ListPromptsSettings "
            "ListResourcesSettings ListToolsSettings ReadResourceSettings ResponseCachingMiddleware "
            "ResponseCachingStatistics _make_call_tool_cache_key _make_get_prompt_cache_key "
            "_make_read_resource_cache_key",
        ),
        "fastmcp.server.transforms": (_TRANSFORMS, _AS_TOOLS),
        "fastmcp.server.transforms.namespace": (_TRANSFORMS,),
        "fastmcp.server.transforms.visibility": (_TRANSFORMS, "transforms.base: is_enabled"),
        "fastmcp.server.transforms.tool_transform": (_TRANSFORMS,),
        "fastmcp.server.transforms.version_filter": (_TRANSFORMS,),
        "fastmcp.server.transforms.catalog": (_AS_TOOLS,),
        "fastmcp.server.transforms.resources_as_tools": (_AS_TOOLS,),
        "fastmcp.server.transforms.prompts_as_tools": (_AS_TOOLS,),
        "fastmcp.server.transforms.search": (
            _SEARCH,
            "transforms.search: serialize_tools_for_output_json serialize_tools_for_output_markdown",
        ),
        "fastmcp.server.transforms.search.base": (_SEARCH,),
        "fastmcp.server.transforms.search.bm25": (_SEARCH, "transforms.search: _BM25Index _catalog_hash"),
        "fastmcp.server.transforms.search.regex": (_SEARCH,),
        "fastmcp.tools.function_parsing": ("json_schemas: _is_object_schema=is_object_schema",),
        "fastmcp.utilities.tasks": ("task_config: TASKS_EXTENSION_ID TaskConfig TaskMeta",),
        "fastmcp.utilities.versions": (
            "component_versions: VersionKey VersionSpec compare_versions dedupe_with_versions is_version_greater "
            "max_version min_version parse_version_key version_sort_key",
        ),
        "fastmcp.server.providers.proxy": (_PROXY,),
        "fastmcp.server.providers.fastmcp_provider": (
            "providers.mounted: FastMCPProvider FastMCPProviderTool FastMCPProviderResource "
            "FastMCPProviderResourceTemplate FastMCPProviderPrompt",
        ),
        "fastmcp.server.providers.local_provider": ("providers.local: LocalProvider",),
        "fastmcp.apps": ("providers.apps: FastMCPApp",),
        "fastmcp.apps.app": ("providers.apps: FastMCPApp",),
        "fastmcp.server.providers.addressing": (
            "addressing: HASH_LENGTH hash_tool hashed_backend_name hashed_resource_uri is_app_tool_with_identity "
            "parse_hashed_backend_name parse_hashed_resource_uri tool_identity",
        ),
        "fastmcp.server.providers.openapi": (_OPENAPI, _OPENAPI_COMPONENTS),
        "fastmcp.server.providers.openapi.provider": (_OPENAPI, "openapi.provider: DEFAULT_TIMEOUT"),
        "fastmcp.server.providers.openapi.routing": (_OPENAPI, "openapi.provider: DEFAULT_ROUTE_MAPPINGS"),
        "fastmcp.server.providers.openapi.components": (
            _OPENAPI_COMPONENTS,
            "openapi.components: _extract_mime_type_from_route _redact_headers _slugify",
        ),
        "fastmcp.server.openapi": (_OPENAPI, _OPENAPI_COMPONENTS),
        "fastmcp.server.openapi.routing": (_OPENAPI, "openapi.provider: DEFAULT_ROUTE_MAPPINGS"),
        "fastmcp.utilities.openapi": (
            _OPENAPI_MODELS,
            "openapi.parser: parse_openapi_to_http_routes",
            "openapi.schemas: _combine_schemas extract_output_schema_from_responses",
            "openapi.json_schema_converter: convert_openapi_schema_to_json_schema convert_schema_definitions",
        ),
        "fastmcp.utilities.openapi.models": (_OPENAPI_MODELS,),
        "fastmcp.utilities.openapi.parser": (
            "openapi.parser: parse_openapi_to_http_routes _combine_schemas_and_map_params",
        ),
        "fastmcp.utilities.openapi.director": ("openapi.director: RequestDirector _combine_schemas_and_map_params",),
        "fastmcp.utilities.openapi.schemas": (
            "openapi.schemas: _combine_schemas _combine_schemas_and_map_params extract_output_schema_from_responses",
        ),
        "fastmcp.utilities.openapi.json_schema_converter": (
            "openapi.json_schema_converter: convert_openapi_schema_to_json_schema convert_schema_definitions",
        ),
        "fastmcp.server.providers.skills": (_SKILLS,),
        "fastmcp.server.providers.skills._common": ("providers.skills: SkillFileInfo SkillInfo parse_frontmatter",),
        "fastmcp.server.providers.skills.skill_provider": (
            _SKILLS,
            "providers.skills: SkillFileResource SkillFileTemplate SkillResource",
        ),
        "fastmcp.server.providers.skills.directory_provider": (_SKILLS,),
        "fastmcp.server.providers.skills.claude_provider": (_SKILLS,),
        "fastmcp.server.providers.skills.vendor_providers": (_SKILLS,),
        "fastmcp.server.providers.base": (*_PROVIDERS,),
        "fastmcp.server.providers.aggregate": (*_PROVIDERS,),
        "fastmcp.server.providers": (*_PROVIDERS,),
        "fastmcp.tools": (_COMPONENTS, _RESULTS, "decorators: tool", "transformed_tools: forward forward_raw"),
        "fastmcp.tools.tool": (_COMPONENTS, _RESULTS, "decorators: tool"),
        "fastmcp.tools.base": (_COMPONENTS, _RESULTS, "fast_functions: _convert_to_content=fast_content"),
        "fastmcp.utilities.json_schema": ("json_schemas: compress_schema dereference_refs resolve_root_ref",),
        "fastmcp.tools.function_tool": (
            _COMPONENTS,
            "decorators: tool ToolMeta DecoratedTool=ToolMeta",
            "definitions: _ToolBodyError=ToolBodyError",
        ),
        "fastmcp.tools.tool_transform": (
            "transformed_tools: TransformedTool ArgTransform ToolTransformConfig ArgTransformConfig forward "
            "forward_raw",
        ),
        "fastmcp.prompts": (_COMPONENTS, _RESULTS, "decorators: prompt"),
        "fastmcp.prompts.prompt": (_COMPONENTS, _RESULTS),
        "fastmcp.prompts.base": (_COMPONENTS, _RESULTS),
        "fastmcp.prompts.function_prompt": (
            _COMPONENTS,
            "decorators: prompt PromptMeta DecoratedPrompt=PromptMeta",
        ),
        "fastmcp.resources": (_COMPONENTS, _RESULTS, _FILES, _SECURITY, "decorators: resource"),
        "fastmcp.resources.resource": (_COMPONENTS, _RESULTS),
        "fastmcp.resources.base": (_COMPONENTS, _RESULTS),
        "fastmcp.resources.types": (_COMPONENTS, _FILES),
        "fastmcp.resources.template": (
            _COMPONENTS,
            "fast_templates: build_regex expand_uri_template match_uri_template _literal_pattern",
        ),
        "fastmcp.resources.function_resource": (
            _COMPONENTS,
            "decorators: resource ResourceMeta DecoratedResource=ResourceMeta",
        ),
        "fastmcp.client": ("clients: Client", _TRANSPORTS),
        "fastmcp.client.client": ("clients: Client CallToolResult",),
        "fastmcp.client.transports": (_TRANSPORTS,),
        "fastmcp.client.transports.base": (_TRANSPORTS, "clients: TransportOptions"),
        "fastmcp.mcp_config": ("mcp_config: MCPConfig RemoteMCPServer StdioMCPServer",),
        "fastmcp.client.auth": ("wire: BearerAuth OAuth",),
        "fastmcp.client.elicitation": ("types: ElicitResult ElicitRequestParams", "context: RequestContext"),
        "fastmcp.client.logging": ("types: LogMessage=LoggingMessageNotificationParams",),
        "fastmcp.client.messages": ("wire: MessageHandler",),
        "fastmcp.client.sampling": (
            "types: SamplingMessage SamplingParams=CreateMessageRequestParams",
            "context: RequestContext",
        ),
        "fastmcp.utilities.types": ("utilities: Image Audio File",),
        "fastmcp.utilities.logging": ("utilities: get_logger configure_logging",),
        "fastmcp.utilities.components": (_COMPONENTS,),
        "fastmcp.utilities.tests": (
            "utilities: temporary_settings",
            "testing: asgi_client asgi_server run_server_async",
            "wire: find_available_port",
        ),
        "fastmcp.utilities.http": ("wire: find_available_port",),
    }
)

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: (
            *_OFFICIAL.get(name, ()),
            *_FAST.get(name, ()),
            *AUTH_MODULES.get(name, ()),
            *FEATURE_MODULES.get(name, ()),
        )
        for name in (*_OFFICIAL, *_FAST, *AUTH_MODULES, *FEATURE_MODULES)
    }
)


def is_module(name: str) -> bool:
    """Return True if there is a module, or a package that holds one."""
    return name in MODULES or any(each.startswith(f"{name}.") for each in MODULES)


def find_name(module: str, name: str) -> tuple[str, str] | None:
    """Return our module and our name for a name of a foreign module, or None."""
    for line in MODULES.get(module, ()):
        if line == ALL_TYPES:
            from trunkline.compat.types import known_names

            if name in known_names():
                return "types", name
            continue
        home, _, names = line.partition(": ")
        for each in names.split():
            theirs, _, ours = each.partition("=")
            if theirs == name:
                return home, ours or theirs
    return None
