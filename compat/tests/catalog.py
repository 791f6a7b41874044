"""The published servers that compat is measured with: what is installed, how each starts, what is asked of it.

Every version is exact: that of the server, of the framework it resolved to on 2026-11-18, and of pydantic, which writes
the schemas. A run next year measures the same programs.

In arguments, variables and calls ``{work}`` stands for a new folder with the named files, ``{port}`` for a free port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["SERVERS", "WITH_US_ONLY", "HttpAccess", "PublicServer"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_PYDANTIC = "pydantic==2.14.3"
_SDK_1 = ("mcp==1.30.0", _PYDANTIC)
_SDK_2 = ("mcp==2.3.0", _PYDANTIC)
_FASTMCP_2 = ("fastmcp==2.14.7", "mcp==1.30.0", _PYDANTIC)
_FASTMCP_3 = ("fastmcp==3.4.10", "mcp==1.30.0", _PYDANTIC)
_FASTMCP_4 = ("fastmcp==4.1.2", "mcp==2.3.0", _PYDANTIC)
#: An address of this machine where nothing listens: what needs a service fails at once, and everywhere alike.
_NOWHERE = "http://127.0.0.1:9"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_TIMESTAMP = r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)"
_TOKEN = "a-token-for-callers-0123456789"


class HttpAccess(NamedTuple):
    """How a server is reached that listens and requires a token."""

    path: str
    token: str


class PublicServer(NamedTuple):
    """A published server: the distribution, its framework, its command, and what is asked of it."""

    requirement: str
    #: The framework it is written with, and the version of it that it resolves to.
    generation: str
    #: The exact versions of the framework, and of what else decides whether the server works.
    pins: Sequence[str]
    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = _NOTHING
    #: The one call: a harmless tool and its arguments; the speed is measured with the same one.
    call: tuple[str, Mapping[str, Any]] | None = None
    #: What the speed is measured with instead, where the call is the work of another program.
    hot_method: str | None = None
    reads: Sequence[str] = ()
    prompts: Mapping[str, Mapping[str, str]] = _NOTHING
    #: Patterns of what differs from run to run in an answer.
    volatile: Sequence[str] = ()
    #: Files in the working folder, by name.
    files: Mapping[str, str] = _NOTHING
    #: Commands that run in the working folder before the server starts.
    prepare: Sequence[Sequence[str]] = ()
    http: HttpAccess | None = None

    @property
    def name(self) -> str:
        """The distribution's name."""
        return self.requirement.partition("==")[0]

    @property
    def requirements(self) -> tuple[str, ...]:
        """Everything that is installed for it, Trunkline left out."""
        return (self.requirement, *self.pins)


#: The twenty of the first measure.
_FIRST = (
    PublicServer(
        "mcp-server-time==2026.10.19",
        "SDK 2 MCPServer",
        _SDK_2,
        "mcp-server-time",
        call=("convert_time", {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
    ),
    PublicServer(
        "mcp-server-fetch==2026.10.24",
        "SDK 2 MCPServer",
        _SDK_2,
        "mcp-server-fetch",
        call=("fetch", {"url": _NOWHERE}),
        hot_method="tools/list",  # each call makes a TLS context
        prompts={"fetch": {"url": _NOWHERE}},
    ),
    PublicServer(
        "mcp-server-git==2026.10.19",
        "SDK 2 MCPServer",
        _SDK_2,
        "mcp-server-git",
        call=("git_status", {"repo_path": "{work}"}),
        hot_method="tools/list",  # each call starts git
        prepare=(("git", "init", "-q", "."),),
    ),
    PublicServer(
        "mcp-server-sqlite==2025.4.25",
        "SDK 1 low-level",
        _SDK_1,
        "mcp-server-sqlite",
        ("--db-path", "{work}/base.db"),
        call=("read_query", {"query": "SELECT 1 AS one"}),
        reads=("memo://insights",),
        prompts={"mcp-demo": {"topic": "trains"}},
    ),
    PublicServer(
        "arxiv-mcp-server==0.8.2",
        "SDK 1 low-level",
        _SDK_1,
        "arxiv-mcp-server",
        ("--storage-path", "{work}"),
        call=("list_papers", {}),
        prompts={"deep-paper-analysis": {"paper_id": "2401.00001"}},
    ),
    PublicServer(
        "duckduckgo-mcp-server==0.7.0",
        "SDK 2 MCPServer",
        _SDK_2,
        "duckduckgo-mcp-server",
        call=("expand_link", {"token": "unknown"}),
    ),
    PublicServer(
        "wikipedia-mcp==2.0.1",
        "FastMCP 4",
        _FASTMCP_4,
        "wikipedia-mcp",
        call=("search_wikipedia", {"query": ""}),
    ),
    PublicServer(
        "mcp-server-calculator==0.2.1",
        "SDK 1 FastMCP",
        _SDK_1,
        "mcp-server-calculator",
        call=("calculate", {"expression": "2 + 3 * 4"}),
    ),
    PublicServer(
        "awslabs.aws-documentation-mcp-server==1.2.3",
        "SDK 2 MCPServer",
        _SDK_2,
        "awslabs.aws-documentation-mcp-server",
        call=("read_documentation", {"url": "https://example.com/not-documentation.html"}),
    ),
    PublicServer(
        "office-word-mcp-server==1.1.11",
        "FastMCP 4",
        _FASTMCP_4,
        "word_mcp_server",
        call=("get_document_text", {"filename": "{work}/missing.docx"}),
    ),
    PublicServer(
        "excel-mcp-server==2.2.2",
        "SDK 2 MCPServer",
        _SDK_2,
        "excel-mcp-server",
        ("stdio",),
        call=("list_workbooks", {"directory": "{work}"}),
    ),
    PublicServer(
        "mcp-youtube-transcript==0.3.5",
        "SDK 1 FastMCP",
        _SDK_1,
        "mcp-youtube-transcript",
        call=("get_transcript", {"url": "no address"}),
    ),
    PublicServer(
        "mcp-text-editor==1.0.2",
        "SDK 1 low-level",
        _SDK_1,
        "mcp-text-editor",
        call=(
            "get_text_file_contents",
            {"files": [{"file_path": "{work}/lines.txt", "ranges": [{"start": 1, "end": 2}]}]},
        ),
        files={"lines.txt": "one\ntwo\nthree\n"},
    ),
    PublicServer(
        "mcp-shell-server==1.1.14",
        "SDK 1 low-level",
        _SDK_1,
        "mcp-shell-server",
        env={"ALLOW_COMMANDS": "ls"},
        call=("shell_execute", {"command": ["ls"], "directory": "{work}"}),
        hot_method="tools/list",  # each call starts a shell
        files={"lines.txt": "one\n"},
    ),
    PublicServer(
        "mcp_weather_server==0.6.1",
        "SDK 1 low-level",
        _SDK_1,
        "mcp_weather_server",
        call=(
            "convert_time",
            {"datetime_str": "2026-01-01T12:00:00", "from_timezone": "Europe/Berlin", "to_timezone": "Asia/Tokyo"},
        ),
    ),
    PublicServer(
        "blender-mcp==2.0.0",
        "SDK 1 FastMCP, Apps",
        (*_SDK_1, "mcp-for-blender==2.2.4"),  # its server, a distribution of its own
        "blender-mcp",
        env={"BLENDER_HOST": "127.0.0.1", "BLENDER_PORT": "9"},
        call=("get_addon_status", {}),
        reads=("ui://mcp-for-blender/viewport-v2",),
    ),
    PublicServer(
        "mcp-nixos==3.1.0",
        "FastMCP 4",
        _FASTMCP_4,
        "mcp-nixos",
        call=("nix", {"action": "nonsense"}),
    ),
    PublicServer(
        "redis-mcp-server==0.5.1",
        "SDK 1 FastMCP",
        _SDK_1,
        "redis-mcp-server",
        ("--host", "127.0.0.1", "--port", "9"),
        call=("hget", {"name": "a", "key": "b"}),
        hot_method="tools/list",  # each call tries to connect for seconds
    ),
    PublicServer(
        "mysql-mcp-server==0.4.4",
        "SDK 1 low-level",
        _SDK_1,
        "mysql_mcp_server",
        env={
            "MYSQL_HOST": "127.0.0.1",
            "MYSQL_PORT": "9",
            "MYSQL_USER": "a",
            "MYSQL_PASSWORD": "b",
            "MYSQL_DATABASE": "c",
        },
        call=("execute_sql", {"query": "SELECT 1"}),
        hot_method="tools/list",  # each call tries to connect
        prompts={"analyze_table": {"table_name": "a"}},
    ),
    PublicServer(
        "mcp-clickhouse==0.7.0",
        "FastMCP 4",
        ("fastmcp==4.0.11", "mcp==2.3.0", _PYDANTIC),
        "mcp-clickhouse",
        env={
            "CLICKHOUSE_HOST": "127.0.0.1",
            "CLICKHOUSE_PORT": "9",
            "CLICKHOUSE_SECURE": "false",
            "CLICKHOUSE_USER": "a",
            "CLICKHOUSE_PASSWORD": "b",
        },
        call=("run_query", {"query": "SELECT 1"}),
        hot_method="tools/list",  # each call tries to connect
        volatile=(_UUID,),
    ),
)

_API = """{"openapi": "3.0.3", "info": {"title": "Pets", "version": "1"}, "paths": {
"/pets": {"get": {"operationId": "list_pets", "summary": "List pets",
  "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}}],
  "responses": {"200": {"description": "Pets", "content": {"application/json": {"schema": {"type": "array",
    "items": {"$ref": "#/components/schemas/Pet"}}}}}}},
 "post": {"operationId": "add_pet", "requestBody": {"required": true, "content": {"application/json": {"schema":
  {"$ref": "#/components/schemas/Pet"}}}}, "responses": {"201": {"description": "Added"}}}},
"/pets/{id}": {"get": {"operationId": "get_pet", "parameters": [{"name": "id", "in": "path", "required": true,
  "schema": {"type": "string"}}], "responses": {"200": {"description": "A pet", "content": {"application/json":
  {"schema": {"$ref": "#/components/schemas/Pet"}}}}}}}},
"components": {"schemas": {"Pet": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"},
  "tag": {"type": "string", "enum": ["cat", "dog"]}}}}}}
"""

#: Twenty more, over all generations.
_SECOND = (
    PublicServer(
        "mcp-simple-pubmed==0.1.16",
        "FastMCP 2",
        ("fastmcp==2.14.1", "mcp==1.30.0", _PYDANTIC),
        "mcp-simple-pubmed",
        env={"PUBMED_EMAIL": "a@example.com"},
        call=("search_pubmed", {"query": "trains", "max_results": "many"}),
        prompts={"author_search": {"author_name": "Lovelace A"}},
    ),
    PublicServer(
        "mcp-neo4j-cypher==0.6.0",
        "FastMCP 2",
        ("fastmcp==2.13.3", "mcp==1.22.0", _PYDANTIC),
        "mcp-neo4j-cypher",
        ("--db-url", "bolt://127.0.0.1:9", "--username", "a", "--password", "b"),
        call=("read_neo4j_cypher", {"query": "RETURN 1", "params": "none"}),  # else it connects
    ),
    PublicServer(
        "pypi-query-mcp-server==0.6.5",
        "FastMCP 2",
        _FASTMCP_2,
        "pypi-query-mcp-server",
        call=("get_package_info", {"package_name": ""}),
    ),
    PublicServer(
        "mcp-atlassian==0.23.1",
        "FastMCP 3",
        _FASTMCP_3,
        "mcp-atlassian",
        env={"JIRA_URL": _NOWHERE, "JIRA_USERNAME": "a", "JIRA_API_TOKEN": "b"},
        call=("jira_get_issue", {"issue_key": "no key"}),
    ),
    PublicServer(
        "elasticsearch-mcp-server==2.1.6",
        "FastMCP 3, auth over HTTP",
        ("fastmcp==3.4.7", "mcp==1.30.0", "pydantic==2.11.10"),
        "elasticsearch-mcp-server",
        ("--transport", "streamable-http", "--host", "127.0.0.1", "--port", "{port}", "--path", "/mcp"),
        env={"ELASTICSEARCH_HOSTS": _NOWHERE, "MCP_API_KEY": _TOKEN},
        call=("list_indices", {}),
        hot_method="tools/list",  # each call tries to connect
        http=HttpAccess("/mcp", _TOKEN),
    ),
    PublicServer(
        "awslabs.openapi-mcp-server==1.1.6",
        "FastMCP 3",
        _FASTMCP_3,
        "awslabs.openapi-mcp-server",
        ("--api-name", "pets", "--api-url", _NOWHERE, "--spec-path", "{work}/api.json"),
        call=("list_pets", {"limit": 3}),
        hot_method="tools/list",  # each call tries to connect
        files={"api.json": _API},
    ),
    PublicServer(
        "alpaca-mcp-server==2.4.0",
        "FastMCP 3",
        ("fastmcp==3.4.7", "mcp==1.30.0", _PYDANTIC),
        "alpaca-mcp-server",
        env={"ALPACA_API_KEY": "a", "ALPACA_SECRET_KEY": "b", "DATA_API_URL": _NOWHERE},
        call=("get_stock_latest_bar", {"symbols": "AAPL"}),
        hot_method="tools/list",  # each call tries to connect
    ),
    PublicServer(
        "mcp-server-motherduck==1.1.0",
        "FastMCP 4",
        _FASTMCP_4,
        "mcp-server-motherduck",
        ("--db-path", ":memory:", "--read-write"),
        call=("execute_query", {"sql": "SELECT 1 AS one"}),
    ),
    PublicServer(
        "mcp-gitlab==0.21.2",
        "FastMCP 4, auth over HTTP",
        _FASTMCP_4,
        "mcp-gitlab",
        ("--transport", "streamable-http", "--host", "127.0.0.1", "--port", "{port}"),
        env={"GITLAB_URL": _NOWHERE, "GITLAB_TOKEN": "glpat-x", "GITLAB_HTTP_BEARER_TOKEN": _TOKEN},
        call=("gitlab_get_project", {"project_id": "1"}),
        hot_method="tools/list",  # each call tries to connect
        reads=("resource://rules/git-workflow",),
        prompts={"review_mr": {"project_id": "1"}},
        http=HttpAccess("/mcp", _TOKEN),
    ),
    PublicServer(
        "sequential-thinking-mcp==0.10.2",
        "FastMCP 4",
        _FASTMCP_4,
        "sequential-thinking-mcp",
        call=("think", {"thread_purpose": "a", "thought": "b", "thought_index": 1}),
    ),
    PublicServer(
        "automox-mcp==2.2.9",
        "FastMCP 4, Apps",
        _FASTMCP_4,
        "automox-mcp",
        env={
            "AUTOMOX_API_KEY": "x",
            "AUTOMOX_ACCOUNT_UUID": "11111111-1111-4111-8111-111111111111",
            "AUTOMOX_ORG_ID": "1",
        },
        call=("policy_detail", {"policy_id": "none"}),  # else it connects
        reads=("resource://filters/syntax", "ui://automox/triage.html"),
        prompts={"prepare_patch_tuesday": {}},
    ),
    PublicServer(
        "redmine-mcp-server==2.19.0",
        "FastMCP 4, Apps",
        _FASTMCP_4,
        "redmine-mcp-server",
        env={"REDMINE_URL": _NOWHERE, "REDMINE_API_KEY": "x", "REDMINE_MCP_TRANSPORT": "stdio"},
        call=("manage_redmine_version", {"action": "nonsense"}),
        reads=("ui://redmine/triage-board.html",),
    ),
    PublicServer(
        "mcp-alchemy==2026.10.15.202659",
        "SDK 2 MCPServer",
        _SDK_2,
        "mcp-alchemy",
        env={"DB_URL": "sqlite:///{work}/base.db"},
        call=("execute_query", {"query": "SELECT 1 AS one"}),
    ),
    PublicServer(
        "mcp-sequential-thinking==0.7.0",
        "SDK 2 MCPServer",
        _SDK_2,
        "mcp-sequential-thinking",
        call=("list_sessions", {}),
        volatile=(_TIMESTAMP,),
    ),
    PublicServer(
        "mcp-pandoc==0.11.1",
        "SDK 2 low-level",
        _SDK_2,
        "mcp-pandoc",
        call=("convert-contents", {"contents": "# Title", "input_format": "markdown", "output_format": "nonsense"}),
    ),
    PublicServer(
        "fcp-mcp-server==0.27.2",
        "SDK 2 low-level, Apps",
        _SDK_2,
        "fcp-mcp-server",
        call=("inspect", {"action": "list_projects", "arguments": {"directory": "{work}"}}),
        reads=("ui://fcp/timeline",),
        prompts={"timeline-summary": {"filepath": "{work}/a.fcpxml"}},
    ),
    PublicServer(
        "orchestrator-mcp-server==0.12.0",
        "SDK 2 MCPServer, Apps",
        _SDK_2,
        "orchestrator-mcp-server",
        env={"ORCHESTRATOR_CONFIG": "{work}/config.yaml", "ORCHESTRATOR_HOST_RUNTIME": "claude"},
        call=("orchestrator_list_consultations", {}),
        reads=("ui://orchestrator/view.html",),
        files={
            "config.yaml": "consult:\n  database_path: ~/.orchestrator-mcp/consultations.sqlite3\n  agents:\n    one:\n"
            "      runtime: codex\n      model: gpt-5\n      command: /bin/false\n"
            "      scores: {review: 90}\n  review:\n    reviewers: [one]\n    deep_reviewers: [one]\n"
        },
    ),
    PublicServer(
        "code-index-mcp==2.17.1",
        "SDK 1 FastMCP",
        _SDK_1,
        "code-index-mcp",
        call=("get_settings_info", {}),
    ),
    PublicServer(
        "mcp-email-server==1.13.3",
        "SDK 1 FastMCP",
        _SDK_1,
        "mcp-email-server",
        ("stdio",),
        call=("list_available_accounts", {}),
    ),
    PublicServer(
        "mcp-obsidian==0.2.3",
        "SDK 1 low-level",
        _SDK_1,
        "mcp-obsidian",
        env={"OBSIDIAN_API_KEY": "x", "OBSIDIAN_HOST": "127.0.0.1", "OBSIDIAN_PORT": "9"},
        call=("obsidian_delete_file", {"filepath": "a.md", "confirm": False}),
    ),
)
SERVERS = (*_FIRST, *_SECOND)

#: Written for SDK 1 without an upper bound: with SDK 2, which they resolve to today, their own framework does not start
#: them any more.
WITH_US_ONLY = (
    PublicServer("mcp-server-http-request==0.1.0", "SDK 1 low-level", _SDK_2, "mcp-server-http-request"),
    PublicServer("mcp-server-diff-python==0.1.2", "SDK 1 low-level", _SDK_2, "mcp-server-diff-python"),
    PublicServer("mcp-think-tool==0.1.0", "SDK 1 FastMCP", _SDK_2, "mcp-think-tool"),
    PublicServer("office-powerpoint-mcp-server==2.0.7", "SDK 1 FastMCP", _SDK_2, "ppt_mcp_server"),
)
