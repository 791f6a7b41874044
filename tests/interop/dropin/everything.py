"""The drop-in proof of ``everything``: its tools, those with tasks too, its prompts, resources and completions."""

from __future__ import annotations

import base64
import binascii
import re
from types import MappingProxyType
from typing import Any

import trunkline.types as t
from tests.interop.dropin.harness import Call, Complete, Get, Notify, Read, RunTask, Script, npm, ours

__all__ = ["SCRIPT"]

_TASK_ID = re.compile(r'(Task created: |"taskId": ")[\w-]{32}')
_TIME = re.compile(r"\d{1,2}:\d\d:\d\d [AP]M")
_PAGE = "https://example.com/form"
_EXTRA = (
    "What the official server lacks: see the tables of tools, prompts and resources; --without-extras leaves it out."
)
_WORDS = "Texts for people and models are written anew."
_ERRORS = "The words of an error are written anew."
_PICTURE = "The picture is the project's own."
_SESSION = "No text names the session, whose id is a secret over HTTP."
_UNKNOWN = "A tool that does not exist is a protocol error, as the specification says."
_MISSING = "A resource that does not exist is error -32002 in the revisions that have that code."
_NULL = "An argument that may be left out may be null as well."
_PLAIN = "What holds anyway is not said: an argument that is not required."
_AS_TASK = "Whether a tool must be called as a task, or cannot be, is told by error -32601, as the specification says."
_YOUNG = "A task that has just begun may be asked for again sooner."
_LATER = "Arguments of a task are checked when it runs: wrong ones make it fail."
_META = "Metadata of the protocol is not repeated in texts."
_FETCH = "Only https and data URIs are fetched, and the domain list's variable is named."

_MORE_TOOLS = (
    *("get-audio", "get-every-content", "get-timetable", "get-region", "fail", "book-seat", "ask-twice"),
    *("ask-everything", "visit-page", "change-lists", "write-note", "observe-cancellation", "send-notice"),
)


def _normalise(text: str) -> str:
    """Blank the time of day, also inside base64, and the ids of tasks."""
    text = _TASK_ID.sub(r"\1ID", text)
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return _TIME.sub("TIME", text)
    return _TIME.sub("TIME", decoded) if decoded.startswith("Resource ") else text


_ANSWERS = MappingProxyType(
    {
        "name": "Ann",
        "check": True,
        "number": 2.5,
        "favoriteColor": "Green",
        "agreeToTerms": False,
        "interpretation": "snake",
    }
)


def _answer(question: t.ElicitRequestParams) -> Any:
    if question.mode == "url":
        return True
    fields = (question.requested_schema or {})["properties"]
    return {name: value for name, value in _ANSWERS.items() if name in fields}


def _model(question: t.CreateMessageRequestParams) -> t.CreateMessageResult:
    text = f"{question.messages[0].content.text} {question.max_tokens} {question.system_prompt}"  # type: ignore[union-attr]
    content = t.TextContent(text=text)
    return t.CreateMessageResult(role="assistant", content=content, model="scripted", stop_reason="endTurn")


_PROMPT = MappingProxyType({"type": "ref/prompt", "name": "completable-prompt"})
_RESOURCE = MappingProxyType({"type": "ref/prompt", "name": "resource-prompt"})
_TEMPLATE = MappingProxyType({"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"})

SCRIPT = Script(
    server="everything",
    official=npm("everything"),
    ours=ours("everything"),
    client={
        "elicitation": _answer,
        "elicitation_urls": True,
        "sampling": _model,
        "roots": [t.Root(uri="file:///srv/data", name="data")],
    },
    normalise=_normalise,
    environment={"GZIP_ALLOWED_DOMAINS": "allowed.example"},
    steps=[
        Call("echo", {"message": "hello"}),
        Call("echo", {}),
        Call("get-sum", {"a": 2, "b": 3}),
        Call("get-sum", {"a": 0.1, "b": 0.2}),
        Call("get-sum", {"a": "x", "b": 1}),
        Call("get-tiny-image"),
        *(Call("get-annotated-message", {"messageType": kind}) for kind in ("error", "success", "debug")),
        Call("get-annotated-message", {"messageType": "error", "includeImage": True}),
        Call("get-annotated-message", {"messageType": "other"}),
        *(Call("get-structured-content", {"location": city}) for city in ("New York", "Chicago", "Los Angeles")),
        Call("get-structured-content", {"location": "Bergen"}),
        Call("get-resource-links"),
        Call("get-resource-links", {"count": 10}),
        Call("get-resource-links", {"count": 11}),
        Call("get-resource-reference"),
        Call("get-resource-reference", {"resourceType": "Blob", "resourceId": 7}),
        Call("get-resource-reference", {"resourceId": 0}),
        Call("get-resource-reference", {"resourceId": 1.5}),
        Call("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8="}),
        Call("gzip-file-as-resource", {"name": "b.gz", "data": "data:,x", "outputType": "resource"}),
        Call("gzip-file-as-resource", {"data": "ftp://example.com/x"}),
        Call("gzip-file-as-resource", {"data": "https://other.example/x"}),
        Call("gzip-file-as-resource", {"data": "no url"}),
        Call("trigger-long-running-operation", {"duration": 0.02, "steps": 2}),
        Call("toggle-simulated-logging"),
        Call("toggle-simulated-logging"),
        Notify("resources/subscribe", {"uri": "demo://resource/dynamic/text/1"}),
        Call("toggle-subscriber-updates"),
        Call("toggle-subscriber-updates"),
        Notify("resources/unsubscribe", {"uri": "demo://resource/dynamic/text/1"}),
        Call("get-roots-list"),
        Call("trigger-sampling-request", {"prompt": "Say hello", "maxTokens": 20}),
        Call("trigger-elicitation-request"),
        Call("trigger-url-elicitation", {"url": _PAGE, "elicitationId": "e-1"}),
        Call("trigger-url-elicitation", {"url": _PAGE, "elicitationId": "e-2", "errorPath": True}),
        Call("trigger-url-elicitation", {"url": _PAGE, "elicitationId": "e-2", "errorPath": True}),
        Call("trigger-sampling-request-async", {"prompt": "Say hello", "maxTokens": 20}),
        Call("trigger-elicitation-request-async"),
        Call("simulate-research-query", {"topic": "tides"}),
        RunTask("simulate-research-query", {"topic": "Python", "ambiguous": True}),
        RunTask("simulate-research-query", {}),
        RunTask("echo", {"message": "hello"}),
        RunTask("no-such-tool"),
        Notify("tasks/get", {"taskId": "none"}),
        Notify("tasks/result", {"taskId": "none"}),
        Notify("tasks/cancel", {"taskId": "none"}),
        Call("no-such-tool"),
        Get("simple-prompt"),
        Get("args-prompt", {"city": "Bergen"}),
        Get("args-prompt", {"city": "Austin", "state": "Texas"}),
        Get("args-prompt"),
        Get("completable-prompt", {"department": "Sales", "name": "Eve"}),
        Get("resource-prompt", {"resourceType": "Text", "resourceId": "3"}),
        Get("resource-prompt", {"resourceType": "Blob", "resourceId": "3"}),
        Get("resource-prompt", {"resourceType": "Other", "resourceId": "3"}),
        Get("resource-prompt", {"resourceType": "Text", "resourceId": "0"}),
        Get("no-such-prompt"),
        Read("demo://resource/static/document/features.md"),
        Read("demo://resource/dynamic/text/5"),
        Read("demo://resource/dynamic/blob/5"),
        Read("demo://resource/dynamic/text/none"),
        Read("demo://resource/session/a.gz"),
        Read("demo://resource/nowhere"),
        Complete(_PROMPT, {"name": "department", "value": ""}),
        Complete(_PROMPT, {"name": "department", "value": "S"}),
        Complete(_PROMPT, {"name": "name", "value": ""}),
        Notify(
            "completion/complete",
            {
                "ref": _PROMPT,
                "argument": {"name": "name", "value": ""},
                "context": {"arguments": {"department": "Sales"}},
            },
            name="complete in context",
        ),
        Complete(_RESOURCE, {"name": "resourceType", "value": "T"}),
        Complete(_RESOURCE, {"name": "resourceId", "value": "12"}),
        Complete(_TEMPLATE, {"name": "resourceId", "value": "12"}),
        Complete(_TEMPLATE, {"name": "resourceId", "value": "none"}),
        Notify("logging/setLevel", {"level": "error"}),
        Notify("ping"),
    ],
    differences={
        "server:capabilities/experimental": _EXTRA,
        **{f"tools:{name}": _EXTRA for name in _MORE_TOOLS},
        "prompts:media-prompt": _EXTRA,
        "prompts:asking-prompt": _EXTRA,
        **{f"resources:{name}": _EXTRA for name in ("note", "cancellations", "picture", "asked", "numbered-*")},
        "resourceTemplates:library": _EXTRA,
        "tools:trigger-url-elicitation/inputSchema/properties/elicitationId/type": _NULL,
        "prompts:args-prompt/arguments/1/required": _PLAIN,
        "get *:description": _WORDS,
        "read *.md:contents/0/text": _WORDS,
        "call get-roots-list:content/0/text": _WORDS,
        "call get-tiny-image:content/[12]/*": _PICTURE,
        "call get-annotated-message#4:content/1/data": _PICTURE,
        "call toggle-*:content/0/text": _SESSION,
        "call gzip-file-as-resource#[345]:content/0/text": _FETCH,
        "call echo#2:content/0/text": _ERRORS,
        "call get-sum#3:content/0/text": _ERRORS,
        "call get-annotated-message#5:content/0/text": _ERRORS,
        "call get-structured-content#4:content/0/text": _ERRORS,
        "call get-resource-links#3:content/0/text": _ERRORS,
        "call trigger-url-elicitation#2:error/message": _ERRORS,
        "get *:error/message": _ERRORS,
        "read *:error/message": _ERRORS,
        "read demo://resource/nowhere:error/code": _MISSING,
        "read demo://resource/dynamic/text/none:error/code": _MISSING,
        "call no-such-tool:*": _UNKNOWN,
        "call simulate-research-query:*": _AS_TASK,
        "task echo:error/*": _AS_TASK,
        "task simulate-research-query:created/pollInterval": _YOUNG,
        "task simulate-research-query:result/content/0/text": _WORDS,
        "task simulate-research-query#2:*": _LATER,
        "call trigger-sampling-request-async:content/0/text": _META,
        "call trigger-elicitation-request-async:content/2/text": _META,
        "task no-such-tool:error/message": _ERRORS,
        "tasks/*:error/message": _ERRORS,
    },
)
