"""The modules of ``mcp``, ``mcp_types`` and ``fastmcp`` that are replaced, and where each name is found here.

A line has names after the module of ours that has them; ``Theirs=ours`` renames. A package is every name that another
module's name begins with. What is not in the table is an ``ImportError`` that says what to use instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

__all__ = ["absent_reason", "find_name", "is_module", "names_of"]

#: Stands for every protocol type.
_TYPES = "*"

_LOW_LEVEL = "lowlevel: Server NotificationOptions InitializationOptions stdio_server"
_MCP_ERROR = "errors: McpError MCPError=McpError UrlElicitationRequiredError"
_OFFICIAL_ERRORS = (
    "errors: FastMCPError MCPServerError=FastMCPError ToolError ResourceError ResourceNotFoundError=ResourceError "
    "PromptError ValidationError InvalidSignature"
)
_OFFICIAL_OBJECTS = (
    "components: Tool=OfficialTool Prompt=OfficialPrompt Resource FunctionResource=OfficialResource "
    "ResourceTemplate=OfficialTemplate PromptArgument TextResource BinaryResource FileResource"
)
_OFFICIAL_SERVER = (
    "official: FastMCP MCPServer",
    "context: Context=OfficialContext",
    "contents: Image Audio Message UserMessage AssistantMessage",
    "types: Icon",
)
_ELICITED = (
    "context: AcceptedElicitation DeclinedElicitation CancelledElicitation ElicitationResult "
    "CancelledElicitationResult=CancelledElicitation"
)
_MESSAGES = "contents: Message UserMessage AssistantMessage PromptResult"
_FAST_OBJECTS = (
    "components: Tool FunctionTool Prompt FunctionPrompt PromptArgument Resource FunctionResource ResourceTemplate "
    "FunctionResourceTemplate=ResourceTemplate FastMCPComponent=Component TextResource BinaryResource FileResource"
)
_FAST_RESULTS = "contents: ToolResult Message PromptResult ResourceContent ResourceResult"
_FAST_ERRORS = (
    "errors: FastMCPError ToolError ResourceError PromptError ValidationError NotFoundError DisabledError "
    "InvalidSignature ClientError McpError AuthorizationError FastMCPDeprecationWarning"
)
_DEPENDENCIES = (
    "dependencies: Depends Dependency CurrentContext OptionalCurrentContext=CurrentContext CurrentFastMCP "
    "CurrentServer=CurrentFastMCP CurrentRequest CurrentHeaders CurrentAccessToken TokenClaim Progress get_context "
    "get_server get_http_request get_http_headers get_access_token"
)
_MIDDLEWARE = "middleware: Middleware MiddlewareContext CallNext"
_TRANSPORTS = (
    "clients: ClientTransport FastMCPTransport StreamableHttpTransport SSETransport StdioTransport "
    "PythonStdioTransport NodeStdioTransport NpxStdioTransport UvxStdioTransport infer_transport"
)
_PROXIES = "proxies: create_proxy FastMCPProxy ProxyClient StatefulProxyClient=ProxyClient"
_OPENAPI = "openapi: MCPType RouteMap"
_VERIFIERS = (
    "auth: AccessToken AuthProvider TokenVerifier StaticTokenVerifier JWTVerifier "
    "BearerAuthProvider=JWTVerifier RemoteAuthProvider OAuthProxy"
)
_SETTINGS = "auth: AuthSettings ClientRegistrationOptions RevocationOptions"
_CLIENT_SESSION = "sessions: ClientSession StdioServerParameters stdio_client"

_OFFICIAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mcp": (
            _TYPES,
            "placeholders: MCPDeprecationWarning",
            _CLIENT_SESSION,
            "sessions: Client=MCPClient",
            "session: ServerSession",
            _LOW_LEVEL,
            _MCP_ERROR,
        ),
        "mcp.types": (_TYPES,),
        "mcp_types": (_TYPES,),
        "mcp_types.jsonrpc": (_TYPES,),
        "mcp_types.version": (
            "placeholders: LATEST_HANDSHAKE_VERSION LATEST_MODERN_VERSION LATEST_PROTOCOL_VERSION "
            "HANDSHAKE_PROTOCOL_VERSIONS MODERN_PROTOCOL_VERSIONS SUPPORTED_PROTOCOL_VERSIONS",
        ),
        "mcp.server": (
            _LOW_LEVEL,
            "official: FastMCP MCPServer",
            "context: ServerRequestContext=RequestContext Context=OfficialContext",
            "session: ServerSession",
            "placeholders: CacheHint",
        ),
        "mcp.server.apps": ("apps: Apps",),
        "mcp.server.elicitation": (_ELICITED,),
        "mcp.server.context": (
            "context: ServerRequestContext=RequestContext RequestContext",
            "placeholders: CallNext HandlerResult ServerMiddleware LifespanContextT RequestT",
        ),
        "mcp.server.lowlevel": (_LOW_LEVEL,),
        "mcp.server.lowlevel.server": (_LOW_LEVEL, "placeholders: LifespanResultT RequestT"),
        "mcp.server.lowlevel.helper_types": ("contents: ReadResourceContents",),
        "mcp.server.models": ("lowlevel: InitializationOptions",),
        "mcp.server.stdio": ("lowlevel: stdio_server",),
        "mcp.server.session": ("session: ServerSession", "placeholders: ServerSessionT"),
        "mcp.server.sse": ("http_apps: SseServerTransport",),
        "mcp.server.streamable_http": ("placeholders: EventStore EventMessage",),
        "mcp.server.streamable_http_manager": ("http_apps: StreamableHTTPSessionManager=SessionManager",),
        "mcp.server.transport_security": ("http_apps: TransportSecuritySettings",),
        "mcp.server.request_state": ("placeholders: RequestStateSecurity",),
        "mcp.server.auth.provider": (
            "auth: AccessToken TokenVerifier",
            "placeholders: OAuthClientInformationFull AuthorizationParams AuthorizationCode RefreshToken OAuthToken",
        ),
        "mcp.server.auth.settings": (_SETTINGS,),
        "mcp.server.auth.middleware.auth_context": ("auth: get_access_token=current_access_token",),
        "mcp.shared.exceptions": (_MCP_ERROR,),
        "mcp.shared.auth": ("placeholders: OAuthClientInformationFull OAuthClientMetadata OAuthMetadata OAuthToken",),
        "mcp.shared.context": ("context: RequestContext", "placeholders: LifespanContextT RequestT"),
        "mcp.shared.session": ("placeholders: RequestResponder BaseSession ProgressFnT",),
        "mcp.shared.message": (
            "streams: SessionMessage",
            "placeholders: ServerMessageMetadata ClientMessageMetadata MessageMetadata",
        ),
        "mcp.shared.memory": ("sessions: create_connected_server_and_client_session",),
        "mcp.shared.version": ("placeholders: SUPPORTED_PROTOCOL_VERSIONS LATEST_PROTOCOL_VERSION",),
        "mcp.client": (
            _CLIENT_SESSION,
            "sessions: Client=MCPClient",
            "placeholders: ClientRequestContext IncomingMessage",
        ),
        "mcp.client.client": ("sessions: Client=MCPClient",),
        "mcp.client.session": (
            "sessions: ClientSession",
            "placeholders: ElicitationFnT SamplingFnT ListRootsFnT LoggingFnT MessageHandlerFnT ClientRequestContext",
        ),
        "mcp.client.stdio": (
            "sessions: StdioServerParameters stdio_client",
            "placeholders: get_default_environment DEFAULT_INHERITED_ENV_VARS",
        ),
        "mcp.client.sse": ("sessions: sse_client",),
        "mcp.client.streamable_http": (
            "sessions: streamablehttp_client streamable_http_client=streamablehttp_client",
            "placeholders: GetSessionIdCallback",
        ),
    }
)


def _high_level(package: str) -> dict[str, tuple[str, ...]]:
    """Return the modules below the high-level server, which has another name in each version of the official SDK."""
    return {
        package: (*_OFFICIAL_SERVER, _ELICITED, "placeholders: RequestStateSecurity ResourceSecurity"),
        f"{package}.server": (*_OFFICIAL_SERVER, "placeholders: get_logger", "settings: Settings"),
        f"{package}.context": ("context: Context=OfficialContext",),
        f"{package}.exceptions": (_OFFICIAL_ERRORS,),
        f"{package}.tools": (_OFFICIAL_OBJECTS,),
        f"{package}.tools.base": (_OFFICIAL_OBJECTS,),
        f"{package}.prompts": (_OFFICIAL_OBJECTS, _MESSAGES),
        f"{package}.prompts.base": (_OFFICIAL_OBJECTS, _MESSAGES),
        f"{package}.resources": (_OFFICIAL_OBJECTS,),
        f"{package}.resources.base": (_OFFICIAL_OBJECTS,),
        f"{package}.resources.types": (_OFFICIAL_OBJECTS,),
        f"{package}.resources.templates": (_OFFICIAL_OBJECTS,),
        f"{package}.utilities.types": ("contents: Image Audio",),
        f"{package}.utilities.logging": ("placeholders: get_logger configure_logging",),
    }


_FAST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fastmcp": (
            "fast: FastMCP",
            "clients: Client",
            "context: Context=FastContext",
            "contents: Image",
            "settings: settings",
            "errors: FastMCPDeprecationWarning",
        ),
        "fastmcp.apps": ("apps: AppConfig ResourceCSP ResourcePermissions", "placeholders: UI_MIME_TYPE"),
        "fastmcp.apps.config": ("apps: AppConfig ResourceCSP ResourcePermissions", "placeholders: UI_MIME_TYPE"),
        "fastmcp.client": ("clients: Client", _TRANSPORTS, "auth: BearerAuth OAuth"),
        "fastmcp.client.auth": ("auth: BearerAuth OAuth",),
        "fastmcp.client.client": ("clients: Client CallToolResult",),
        "fastmcp.client.elicitation": ("types: ElicitResult ElicitRequestParams", "context: RequestContext"),
        "fastmcp.client.logging": ("types: LogMessage=LoggingMessageNotificationParams",),
        "fastmcp.client.sampling": (
            "types: SamplingMessage SamplingParams=CreateMessageRequestParams",
            "context: RequestContext",
        ),
        "fastmcp.client.transports": (_TRANSPORTS,),
        "fastmcp.dependencies": (_DEPENDENCIES,),
        "fastmcp.exceptions": (_FAST_ERRORS,),
        "fastmcp.mcp_config": ("clients: MCPConfig RemoteMCPServer StdioMCPServer",),
        "fastmcp.prompts": (_FAST_OBJECTS, _FAST_RESULTS, "fast: prompt"),
        "fastmcp.prompts.prompt": (_FAST_OBJECTS, _FAST_RESULTS, "types: PromptMessage TextContent"),
        "fastmcp.prompts.function_prompt": (_FAST_OBJECTS, "fast: prompt"),
        "fastmcp.resources": (_FAST_OBJECTS, _FAST_RESULTS, "fast: resource"),
        "fastmcp.resources.resource": (_FAST_OBJECTS, _FAST_RESULTS),
        "fastmcp.resources.template": (_FAST_OBJECTS,),
        "fastmcp.resources.types": (_FAST_OBJECTS,),
        "fastmcp.server": ("fast: FastMCP", _PROXIES, "context: Context=FastContext"),
        "fastmcp.server.auth": (_VERIFIERS, _SETTINGS, "components: require_scopes"),
        "fastmcp.server.auth.auth": (_VERIFIERS, _SETTINGS),
        "fastmcp.server.auth.authorization": ("components: require_scopes",),
        "fastmcp.server.auth.oauth_proxy": ("auth: OAuthProxy",),
        "fastmcp.server.auth.providers.azure": ("auth: AzureProvider",),
        "fastmcp.server.auth.providers.bearer": (_VERIFIERS,),
        "fastmcp.server.auth.providers.github": ("auth: GitHubProvider",),
        "fastmcp.server.auth.providers.google": ("auth: GoogleProvider",),
        "fastmcp.server.auth.providers.jwt": (_VERIFIERS,),
        "fastmcp.server.context": ("context: Context=FastContext",),
        "fastmcp.server.dependencies": (_DEPENDENCIES,),
        "fastmcp.server.elicitation": (_ELICITED,),
        "fastmcp.server.event_store": ("placeholders: EventStore",),
        "fastmcp.server.http": ("http_apps: create_streamable_http_app create_sse_app StarletteWithLifespan",),
        "fastmcp.server.lifespan": ("lifespans: lifespan",),
        "fastmcp.server.middleware": (_MIDDLEWARE,),
        "fastmcp.server.middleware.middleware": (_MIDDLEWARE,),
        "fastmcp.server.openapi": (_OPENAPI,),
        "fastmcp.server.providers.openapi": (_OPENAPI,),
        "fastmcp.server.providers.openapi.routing": (_OPENAPI,),
        "fastmcp.server.providers.proxy": (_PROXIES,),
        "fastmcp.server.proxy": (_PROXIES,),
        "fastmcp.server.server": ("fast: FastMCP", _PROXIES),
        "fastmcp.settings": ("settings: settings Settings",),
        "fastmcp.tools": (_FAST_OBJECTS, _FAST_RESULTS, "fast: tool"),
        "fastmcp.tools.base": (_FAST_OBJECTS, _FAST_RESULTS),
        "fastmcp.tools.function_tool": (_FAST_OBJECTS, "fast: tool"),
        "fastmcp.tools.tool": (_FAST_OBJECTS, _FAST_RESULTS, "fast: tool", "types: TextContent ToolAnnotations"),
        "fastmcp.types": ("contents: Image Audio File",),
        "fastmcp.utilities.auth": ("placeholders: parse_scopes",),
        "fastmcp.utilities.components": (_FAST_OBJECTS,),
        "fastmcp.utilities.logging": ("placeholders: get_logger configure_logging",),
        "fastmcp.utilities.tasks": ("placeholders: TaskConfig",),
        "fastmcp.utilities.types": ("contents: Image Audio File",),
    }
)

_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {**_OFFICIAL, **_high_level("mcp.server.fastmcp"), **_high_level("mcp.server.mcpserver"), **_FAST}
)

#: What to use instead of a part that is not here, by the beginning of its name.
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "fastmcp.FastMCPApp": "@mcp.tool(app=AppConfig(resource_uri=…)) and @mcp.resource('ui://…')",
        "fastmcp.tools.InputRequiredToolResult": "await ctx.elicit() inside the tool",
        "fastmcp.server.dependencies.get_session": "ctx.get_state() and ctx.set_state()",
        "fastmcp.client.messages": "a function as message_handler=",
        "fastmcp.server.transforms": "rename where you register, mount with a namespace, or use enable() and disable()",
        "fastmcp.server.providers": "mount(), create_proxy() and from_openapi() are here",
        "fastmcp.server.middleware": "a class of your own: the base class Middleware is here",
        "fastmcp.server.auth": "OAuthProxy with the provider's endpoints, or trunkline.auth",
        "fastmcp.server.tasks": "task=True on a tool",
        "fastmcp.experimental": "nothing of it is here",
        "fastmcp.utilities": "it is an inner module; write the few lines you need",
        "fastmcp.cli": "the command trunkline",
        "mcp.ClientSessionGroup": "one ClientSession for each server, or trunkline.host.Host",
        "mcp.server.mcpserver.Resolve": "Depends of FastMCP, or await ctx.elicit() inside the tool",
        "mcp.server.mcpserver.Elicit": "await ctx.elicit() inside the tool",
        "mcp.server.mcpserver.Sample": "await ctx.session.create_message() inside the tool",
        "mcp.server.mcpserver.ListRoots": "await ctx.session.list_roots() inside the tool",
        "mcp.server.mcpserver": "what Trunkline's own server does by itself",
        "mcp.server.auth": "token_verifier= with an authorization server elsewhere, or trunkline.auth",
        "mcp.client.auth": "trunkline.Client(url, auth=trunkline.auth.OAuth())",
        "mcp.shared.auth": "trunkline.auth",
        "mcp.cli": "the command trunkline",
    }
)


def absent_reason(name: str) -> str:
    """Return why a name cannot be imported, and what to use instead."""
    beginning = next((each for each in _INSTEAD if name == each or name.startswith(f"{each}.")), None)
    instead = "" if beginning is None else f"; instead: {_INSTEAD[beginning]}"
    return f"trunkline-compat has no {name}{instead} (docs/migrating.md lists what is not there)"


def is_module(name: str) -> bool:
    """Return whether there is a module, or a package that holds one."""
    return name in _MODULES or any(each.startswith(f"{name}.") for each in _MODULES)


def names_of(module: str) -> Iterator[str]:
    """Yield the names of a module."""
    for line in _MODULES.get(module, ()):
        if line == _TYPES:
            from trunkline_compat.types import known_names

            yield from known_names()
        else:
            yield from (each.partition("=")[0] for each in line.partition(": ")[2].split())


def find_name(module: str, name: str) -> tuple[str, str] | None:
    """Return our module and our name for a name of a foreign module, or None."""
    for line in _MODULES.get(module, ()):
        if line == _TYPES:
            from trunkline_compat.types import known_names

            if name in known_names():
                return "types", name
            continue
        home, _, names = line.partition(": ")
        for each in names.split():
            theirs, _, ours = each.partition("=")
            if theirs == name:
                return home, ours or theirs
    return None
