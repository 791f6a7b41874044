"""Every package of the fleet with its version: the one place to change when the fleet is renewed.

An environment is a folder below ``.fleet``: a virtual environment for packages from PyPI, a ``node_modules`` for those
from npm. Each server has its own, because public servers disagree about the versions of what they import.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CLIENT_ENVIRONMENTS", "ENVIRONMENTS", "NPM", "PYPI", "SERVER_ENVIRONMENTS", "Environment"]

PYPI = "pypi"
NPM = "npm"

# The last release of the official SDK before its second major version, which many servers import without a bound.
_SDK_1 = "mcp==1.30.0"
_REFERENCE = "2026.8.31"


class Environment(NamedTuple):
    """Packages that are installed together."""

    name: str
    #: ``PYPI`` or ``NPM``.
    source: str
    #: What is installed, in the form of pip or npm; the first one is the subject.
    packages: tuple[str, ...]

    @property
    def subject(self) -> str:
        """The package this environment is for, with its version."""
        return self.packages[0]


SERVER_ENVIRONMENTS = (
    Environment(
        "reference",
        NPM,
        tuple(
            f"@modelcontextprotocol/server-{name}@{_REFERENCE}"
            for name in ("everything", "filesystem", "memory", "sequential-thinking")
        ),
    ),
    Environment("playwright", NPM, ("@playwright/mcp@0.0.83",)),
    Environment("chrome-devtools", NPM, ("chrome-devtools-mcp@1.11.0",)),
    Environment("context7", NPM, ("@upstash/context7-mcp@4.1.1",)),
    Environment("notion", NPM, ("@notionhq/notion-mcp-server@2.5.2",)),
    Environment("eslint", NPM, ("@eslint/mcp@0.3.13",)),
    Environment("mongodb", NPM, ("mongodb-mcp-server@3.0.4",)),
    Environment("figma", NPM, ("figma-developer-mcp@0.13.2",)),
    Environment("chart", NPM, ("@antv/mcp-server-chart@0.9.10",)),
    Environment("hello-world", NPM, ("mcp-hello-world@1.1.2",)),
    Environment("code-runner", NPM, ("mcp-server-code-runner@0.1.8",)),
    Environment("repomix", NPM, ("repomix@1.10.2",)),
    Environment("angular", NPM, ("@angular/cli@20.3.42",)),
    Environment("tavily", NPM, ("tavily-mcp@0.2.22",)),
    Environment(
        "reference-python",
        PYPI,
        ("mcp-server-time==2026.10.19", "mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19"),
    ),
    Environment(
        "handshake-python",
        PYPI,
        ("mcp-server-sqlite==2025.4.25", "mcp-server-calculator==0.2.1", "mcp-text-editor==1.0.2", _SDK_1),
    ),
    Environment("shell", PYPI, ("mcp-shell-server==1.1.14",)),
    Environment("atlassian", PYPI, ("mcp-atlassian==0.23.1",)),
    Environment("excel", PYPI, ("excel-mcp-server==2.2.2",)),
    Environment("duckduckgo", PYPI, ("duckduckgo-mcp-server==0.7.0",)),
    Environment("motherduck", PYPI, ("mcp-server-motherduck==1.1.0",)),
    Environment("aws-documentation", PYPI, ("awslabs.aws-documentation-mcp-server==1.2.3",)),
)

CLIENT_ENVIRONMENTS = (
    Environment("sdk-1", PYPI, (_SDK_1,)),
    Environment("fastmcp", PYPI, ("fastmcp==4.1.2",)),
    Environment("langchain", PYPI, ("langchain-mcp-adapters==0.3.2",)),
    Environment("pydantic-ai", PYPI, ("pydantic-ai-slim[mcp]==2.66.0",)),
    Environment("openai-agents", PYPI, ("openai-agents==0.24.0",)),
    Environment("llama-index", PYPI, ("llama-index-tools-mcp==0.6.0",)),
    Environment("smolagents", PYPI, ("smolagents[mcp]==1.26.0", _SDK_1)),
    Environment("strands", PYPI, ("strands-agents==1.62.0",)),
    Environment("autogen", PYPI, ("autogen-ext[mcp]==0.7.5", _SDK_1)),
    Environment("agno", PYPI, ("agno==3.1.10", "fastmcp==4.1.2", "openai")),
    Environment("mcp-use", PYPI, ("mcp-use==1.7.1",)),
    Environment("google-adk", PYPI, ("google-adk[mcp]==2.13.0",)),
    Environment("semantic-kernel", PYPI, ("semantic-kernel[mcp]==1.45.0",)),
    Environment("agent-framework", PYPI, ("agent-framework-core==1.23.0", "mcp==2.3.0", "tenacity==9.1.2")),
    Environment("haystack", PYPI, ("mcp-haystack==2.1.1",)),
    Environment("crewai", PYPI, ("crewai-tools[mcp]==1.15.30",)),
    Environment("beeai", PYPI, ("beeai-framework[mcp]==0.1.85",)),
    Environment("dspy", PYPI, ("dspy[mcp]==3.4.1",)),
    Environment("camel", PYPI, ("camel-ai==0.2.90", _SDK_1)),
    Environment("typescript-1", NPM, ("@modelcontextprotocol/sdk@1.32.2",)),
    Environment("typescript-2", NPM, ("@modelcontextprotocol/client@2.4.0",)),
    Environment("ai-sdk", NPM, ("@ai-sdk/mcp@1.0.101", "zod@4.6.7", "@modelcontextprotocol/sdk@1.32.2")),
    # Without these versions npm finds a release of langgraph that needs a core which is not published.
    Environment(
        "langchain-js",
        NPM,
        ("@langchain/mcp-adapters@1.1.4", "@langchain/core@1.2.13", "@langchain/langgraph@1.4.10", "zod@4.6.7"),
    ),
    Environment("openai-agents-js", NPM, ("@openai/agents@0.20.0",)),
    Environment("mastra", NPM, ("@mastra/mcp@2.0.0",)),
    Environment("llama-index-js", NPM, ("@llamaindex/tools@0.2.1",)),
)

ENVIRONMENTS = {environment.name: environment for environment in (*SERVER_ENVIRONMENTS, *CLIENT_ENVIRONMENTS)}
