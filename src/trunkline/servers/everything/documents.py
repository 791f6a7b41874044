"""The server's instructions and the documents it offers as resources, named as in the official server."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["DOCUMENTS", "INSTRUCTIONS"]

INSTRUCTIONS = """\
# How to use the everything server

This server exists to try out clients: each tool shows one feature of the protocol, and none does real work.

- Tools that ask something (`get-roots-list`, `trigger-sampling-request`, `trigger-elicitation-request`,
  `trigger-url-elicitation`, `ask-twice`, `ask-everything`) are listed only if the client can be asked that.
- `gzip-file-as-resource` keeps what it made for the caller alone, and for a while only; read the link soon.
- Call `toggle-simulated-logging` or `toggle-subscriber-updates` once to start and once more to stop.
- To see progress, call `trigger-long-running-operation`; to see a list change, call `change-lists`.
- `get-env` shows the environment of the server with the values of secrets left out.

If you are asked whether the server's instructions reached you, answer: "They did: three rails, one trunk line."
"""

_ARCHITECTURE = """\
# Architecture

One server object defines everything and keeps no connection; any number of clients use it at once, over stdio, HTTP or
inside one process. Tools, prompts and resources are plain functions. What is remembered between requests stands in one
state object, which the lifespan of the server hands to every request.
"""

_EXTENSION = """\
# Extension

To add a tool, write a function with annotated parameters and a docstring, and register it with `server.add_tool`. Mark
what it needs of the client with a tag such as `needs:sampling`; clients that lack it will not see the tool.
"""

_FEATURES = """\
# Features

Content of every kind, annotations, structured output, progress, logging, completion, subscriptions, changing lists,
pages of lists, questions to the user (forms and pages), to the model and for folders, cancellation, icons, a method and
a notification that are no part of the protocol. Tasks are not offered yet.
"""

_HOW_IT_WORKS = """\
# How it works

A question asked inside a tool is a request to the client in the revisions with a handshake. In the stateless revision
the call is answered with the question, and the client sends the call again with the answer. The tool does not know.
"""

_STARTUP = """\
# Start

`trunkline-server-everything` serves over stdio; with `--http 3001`, or the word `streamableHttp` or `sse`, over HTTP on
this machine. Each client sees the tools that fit what it declared; nothing waits for a timer to register them.
"""

_STRUCTURE = """\
# Structure

`basic_tools` has the plain tools, `client_request_tools` those that send requests to the client, `notification_tools`
timers and list changes, `gzip_tool` the gzip tool, `catalog` resources and prompts, `sample_content` the content they
share, `state` what is kept between requests.
"""

DOCUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "architecture.md": _ARCHITECTURE,
        "extension.md": _EXTENSION,
        "features.md": _FEATURES,
        "how-it-works.md": _HOW_IT_WORKS,
        "instructions.md": INSTRUCTIONS,
        "startup.md": _STARTUP,
        "structure.md": _STRUCTURE,
    }
)
