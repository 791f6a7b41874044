"""Tools."""

from __future__ import annotations

from tests.interaction.rows import (
    ALL,
    EVERYWHERE,
    SINCE_2025_03,
    SINCE_2025_06,
    SINCE_2025_11,
    STATELESS,
    Row,
)

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="tools.annotations",
        spec="2025-03-26 server/tools#tool",
        sentence="Annotations are listed.",
        revisions=SINCE_2025_03,
    ),
    Row(
        id="tools.arguments-lenient",
        spec="2025-11-25 server/tools#error-handling",
        sentence="Numbers that a model sent as text are taken.",
    ),
    Row(
        id="tools.arguments-schema",
        spec="2025-11-25 server/tools#security-considerations",
        sentence="Arguments are checked against a given schema.",
    ),
    Row(
        id="tools.arguments-text",
        spec="2025-11-25 server/tools#calling-tools",
        sentence="A text that looks like JSON stays a text.",
    ),
    Row(
        id="tools.arguments-unechoed",
        spec="2025-11-25 server/tools#security-considerations",
        sentence="The error for a wrong argument does not repeat its value.",
    ),
    Row(
        id="tools.arguments-wrong",
        spec="2025-11-25 server/tools#error-handling",
        sentence="Wrong arguments are a result that names them.",
    ),
    Row(
        id="tools.call",
        spec="2025-11-25 server/tools#calling-tools",
        sentence="A call is answered with content.",
        transports=EVERYWHERE,
    ),
    Row(
        id="tools.call-without-arguments",
        spec="2025-11-25 schema#calltoolrequestparams",
        sentence="A call needs no arguments member.",
    ),
    Row(
        id="tools.content-audio",
        spec="2025-03-26 server/tools#audio-content",
        sentence="A sound is base64 with its type.",
        revisions=SINCE_2025_03,
    ),
    Row(
        id="tools.content-image",
        spec="2025-11-25 server/tools#image-content",
        sentence="A picture is base64 with its type.",
    ),
    Row(
        id="tools.content-link",
        spec="2025-06-18 server/tools#resource-links",
        sentence="A link names a resource.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="tools.content-resource",
        spec="2025-11-25 server/tools#embedded-resources",
        sentence="A resource is embedded with its uri.",
    ),
    Row(
        id="tools.content-unknown",
        spec="2025-06-18 changelog#major-changes",
        sentence="Content that the revision lacks becomes text.",
        revisions=ALL[:2],
    ),
    Row(
        id="tools.duplicate",
        spec="2025-11-25 server/tools#tool-names",
        sentence="A name cannot be registered twice.",
        revisions=ALL[-1:],
    ),
    Row(
        id="tools.error-unexpected",
        spec="2025-11-25 server/tools#security-considerations",
        sentence="An unexpected failure is a result that has no internal details.",
        transports=EVERYWHERE,
    ),
    Row(
        id="tools.error-wanted",
        spec="2025-11-25 server/tools#error-handling",
        sentence="A tool's own error is a result that the model can read.",
    ),
    Row(
        id="tools.hidden",
        spec="2025-11-25 server/tools#security-considerations",
        sentence="A tool that a caller may not see is neither listed nor called.",
    ),
    Row(
        id="tools.list",
        spec="2025-11-25 server/tools#listing-tools",
        sentence="A tool is listed with its schema.",
    ),
    Row(
        id="tools.list-connections",
        spec="2026-07-28 server/tools#capabilities",
        sentence="The list is the same on every connection and after every call.",
    ),
    Row(
        id="tools.list-members",
        spec="2025-11-25 server/tools#tool",
        sentence="A tool is listed with the members that the revision has.",
    ),
    Row(
        id="tools.list-order",
        spec="2026-07-28 server/tools#capabilities",
        sentence="The list has the same order every time.",
    ),
    Row(
        id="tools.list-without-parameters",
        spec="2025-11-25 server/tools#tool",
        sentence="A tool without parameters has a schema of an object.",
    ),
    Row(
        id="tools.meta",
        spec="2025-06-18 basic/index#meta",
        sentence="The meta of a tool is listed.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="tools.name-case",
        spec="2025-11-25 server/tools#tool-names",
        sentence="Names are told apart by case.",
    ),
    Row(
        id="tools.name-slash",
        spec="2025-11-25 server/tools#tool-names",
        sentence="A name with dots and a slash can be called.",
    ),
    Row(
        id="tools.name-unknown",
        spec="2025-11-25 server/tools#error-handling",
        sentence="An unknown tool is a protocol error that names it.",
    ),
    Row(
        id="tools.schema-dialect",
        spec="2025-11-25 basic/index#schema-dialect",
        sentence="A schema may name another dialect.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="tools.schema-dialect-unknown",
        spec="2025-11-25 basic/index#implementation-requirements",
        sentence="A schema of an unknown dialect is rejected with a reason.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="tools.schema-reference",
        spec="2026-07-28 basic/index#ref-resolution",
        sentence="A reference to the network is not followed.",
        revisions=STATELESS,
    ),
    Row(
        id="tools.structured",
        spec="2025-06-18 server/tools#structured-content",
        sentence="A typed result is structured content and text.",
        revisions=SINCE_2025_06,
        transports=EVERYWHERE,
    ),
    Row(
        id="tools.structured-absent",
        spec="2025-06-18 changelog#major-changes",
        sentence="A typed result is text where there is no structured content.",
        revisions=ALL[:2],
    ),
    Row(
        id="tools.structured-any",
        spec="2026-07-28 server/tools#structured-content",
        sentence="Structured content may be any value.",
        revisions=STATELESS,
    ),
    Row(
        id="tools.structured-object",
        spec="2025-06-18 server/tools#structured-content",
        sentence="A value that is not an object is wrapped in one.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="tools.structured-promise",
        spec="2025-06-18 server/tools#output-schema",
        sentence="A result that breaks its own schema does not leave as structured content.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="tools.structured-schema",
        spec="2025-06-18 server/tools#output-schema",
        sentence="A result with a given schema is structured.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="tools.sync",
        spec="2025-11-25 server/tools#calling-tools",
        sentence="A tool that blocks its thread blocks no other call.",
        transports=EVERYWHERE,
    ),
)
