"""Sampling."""

from __future__ import annotations

from tests.interaction.rows import EVERYWHERE, SINCE_2025_11, UNTIL_2025_06, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="sampling.asked",
        spec="2025-11-25 client/sampling#creating-messages",
        sentence="A model is asked with everything the handler said.",
        transports=EVERYWHERE,
    ),
    Row(
        id="sampling.tool-results-alone",
        spec="2025-11-25 client/sampling#tool-result-messages",
        sentence="A message with tool results and other content is never sent.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="sampling.tools",
        spec="2025-11-25 client/sampling#sampling-with-tools",
        sentence="A model is given tools where the client allows it.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="sampling.tools-undeclared",
        spec="2025-11-25 client/sampling#tools-in-sampling",
        sentence="A model is not given tools where the client does not allow it.",
        revisions=SINCE_2025_11,
    ),
    Row(
        id="sampling.tools-unknown",
        spec="2025-11-25 changelog#minor-changes",
        sentence="A model is not given tools where the revision has none.",
        revisions=UNTIL_2025_06,
    ),
    Row(
        id="sampling.undeclared",
        spec="2025-11-25 client/sampling#capabilities",
        sentence="A client without a model is not asked.",
    ),
    Row(
        id="sampling.undeclared-caught",
        spec="2025-11-25 client/sampling#capabilities",
        sentence="A handler can do without a model.",
    ),
)
