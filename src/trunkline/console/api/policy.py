"""The policy part of the API: the rules, what they decide and why, drafts of rules, tests, and grants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from trunkline.console.console import Console, ConsolePart
from trunkline.console.policy_file import check_policy, digest, read_policy, write_policy
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.devtools.policy_checks import (
    explain_decision,
    failed_test_line,
    find_issues,
    grant_document,
    run_tests,
)
from trunkline.errors import ConfigError
from trunkline.host.assembly import Assembly, policy_file
from trunkline.host.authorization.authorizer import act_for_item, act_for_unlisted
from trunkline.host.authorization.policy.decisions import Act, ActKind, Effect
from trunkline.host.authorization.policy.draft import draft_rule
from trunkline.host.authorization.policy.lint import PolicyIssue, argument_names
from trunkline.host.authorization.policy.loader import CALLERS
from trunkline.host.authorization.policy.policy import DEFAULT_RULES, Policy
from trunkline.host.authorization.policy.rules import Rule
from trunkline.host.upstreams.catalog.names import split_id
from trunkline.types import Tool

__all__ = ["PolicyPart"]

_KINDS: tuple[ActKind, ...] = get_args(ActKind)


class PolicyPart(ConsolePart):
    """Shows and changes the rules of the host."""

    def __init__(self, console: Console) -> None:
        """Create the part."""
        super().__init__(console)
        #: One change of the file at a time.
        self._writing = asyncio.Lock()

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("GET", "/policy", self._show),
            Route("PUT", "/policy", self._replace),
            Route("POST", "/policy/why", self._why),
            Route("POST", "/policy/rule", self._draft),
            Route("POST", "/policy/test", self._test),
            Route("DELETE", "/grants/{id}", self._revoke),
        )

    # --- the file ----------------------------------------------------------------------------------------------------

    async def _show(self, request: ApiRequest) -> dict[str, Any]:
        assembly, file = self._assembly(), self._file()
        text, problems = "", []
        try:
            text = "" if file is None else await asyncio.to_thread(read_policy, file)
        except ConfigError as error:
            problems = str(error).splitlines()
        policy = assembly.policy
        problems += [str(each) for each in self._issues(assembly)]
        return {
            "file": None if file is None else str(file),
            "exists": file is not None and file.exists(),
            "text": assembly.core.secrets.hide(text),
            "digest": digest(text),
            "rules": [_rule(each) for each in policy.rules],
            "defaults": [_default(each) for each in DEFAULT_RULES],
            "problems": problems,
            "approval": {"seconds": assembly.options.get("consent_seconds", 300.0)},
            "grants": await self._grants(),
        }

    def _issues(self, assembly: Assembly) -> tuple[PolicyIssue, ...]:
        tools: dict[str, dict[str, frozenset[str] | None]] = {}
        for item in assembly.core.catalog.tools.values():
            assert isinstance(item.definition, Tool)
            tools.setdefault(item.server, {})[item.name] = argument_names(item.definition.input_schema)
        servers = assembly.core.supervisor.upstreams
        return find_issues(assembly.policy, assembly.configuration, now=time.time(), servers=servers, tools=tools)

    async def _replace(self, request: ApiRequest) -> dict[str, Any]:
        text, file = request.member("text"), self._file()
        seen = request.member("digest", str, required=False)
        if file is None:
            fix = "Pass the path of a policy file to the host instead."
            raise ApiError(409, "policy_in_code", "The policy of this host is defined in code.", fix=fix)
        async with self._writing:
            before = await asyncio.to_thread(_readable, file)
            if seen is not None and seen != digest(before):
                raise ApiError(
                    409, "changed", f"{file} was changed in the meantime.", fix="Load it again and repeat the edit."
                )
            text = self._unmasked(text, before)
            await asyncio.to_thread(self._check, text, file)
            try:
                await asyncio.to_thread(write_policy, file, text)
            except OSError as error:
                raise ApiError(500, "not_written", f"{file}: {error.strerror}") from error
        problem = None
        try:
            await self.console.host.reload()
        except ConfigError as error:
            # The policy is valid, but another file that the reload reads is not.
            problem = str(error)
        self.console.events.publish("policy", window=request.window)
        return {"file": str(file), "digest": digest(text), "problem": problem}

    def _unmasked(self, text: str, before: str) -> str:
        """Restore the secrets in lines that the page was shown masked."""
        hide = self._assembly().core.secrets.hide
        masked = {hide(line): line for line in before.split("\n") if hide(line) != line}
        return "\n".join(masked.get(line, line) for line in text.split("\n")) if masked else text

    def _check(self, text: str, file: Path) -> Policy:
        try:
            return check_policy(text, file, self._assembly().path_context)
        except ConfigError as error:
            raise ApiError(422, "invalid_policy", str(error)) from error

    async def _test(self, request: ApiRequest) -> dict[str, Any]:
        """Run the ``[[test]]`` tables of the file, or of an unsaved text, against its own rules."""
        file = self._file()
        given = request.member("text", str, required=False)
        if given is None and file is None:
            raise ApiError(409, "policy_in_code", "The policy of this host is defined in code, so it has no tests.")
        name = Path("policy.toml") if file is None else file
        text = await asyncio.to_thread(read_policy, name) if given is None else given

        def run() -> list[Any]:
            policy = self._check(text, name)
            return list(run_tests(policy, text, file=str(name), now=time.time()))

        results = await asyncio.to_thread(run)
        failed = [each for each in results if each.failure is not None]
        lines = [failed_test_line(each) for each in failed] if results else [f"{name} has no [[test]] table"]
        return {"passed": len(results) - len(failed), "failed": len(failed), "lines": lines}

    # --- decisions ---------------------------------------------------------------------------------------------------

    async def _why(self, request: ApiRequest) -> dict[str, Any]:
        caller = request.member("caller", str, required=False) or "model"
        if caller not in CALLERS:
            raise ApiError(400, "invalid_request", f"caller must be one of {', '.join(CALLERS)}.")
        act = self._act(request, caller)
        policy, now = self._assembly().policy, time.time()
        trace, listed = policy.explain(act, now), policy.is_visible(replace(act, arguments=None), now)
        steps = [*explain_decision(trace, act, listed=listed)]
        steps += [f"{each.where}: {each.effect}: {each.outcome}, {each.why}" for each in trace.steps if each.relevant]
        decision = trace.decision
        return {
            "effect": decision.effect,
            "rule": decision.rule,
            "reason": decision.reason,
            "cause": decision.cause,
            "listed": listed,
            "steps": steps,
        }

    async def _draft(self, request: ApiRequest) -> dict[str, Any]:
        effect: Effect = request.member("effect")
        if effect not in get_args(Effect):
            raise ApiError(400, "invalid_request", "effect must be allow, ask or deny.")
        act = self._act(request, "user")
        redaction = self._assembly().core.secrets.redaction(text_length=100_000)
        shown = redaction.apply(act.arguments)
        return {"toml": draft_rule(act.kind, act.server, act.name, shown, effect=effect)}

    def _act(self, request: ApiRequest, caller: str) -> Act:
        """Return the act that a request describes, with its catalog item if there is one."""
        kind: ActKind = request.member("kind")
        id, core = request.member("id"), self._assembly().core
        arguments: Mapping[str, Any] = request.member("arguments", dict, required=False) or {}
        parts = split_id(id)
        if kind not in _KINDS or parts is None:
            raise ApiError(400, "invalid_request", f"kind must be one of {', '.join(_KINDS)}, and id server/name.")
        catalog = core.catalog
        items = {"tool": catalog.tools, "prompt": catalog.prompts, "resource": catalog.resources}.get(kind, {})
        if (item := items.get(id)) is not None:
            return act_for_item(item, caller=caller, arguments=arguments)
        upstream = core.supervisor.upstreams.get(parts[0])
        if upstream is None:
            raise ApiError(404, "not_found", f"There is no server {parts[0]!r}.")
        trusted = upstream.entry.settings.trusted
        return act_for_unlisted(kind, *parts, caller=caller, trusted=trusted, arguments=arguments)

    # --- grants ------------------------------------------------------------------------------------------------------

    async def _grants(self) -> list[dict[str, Any]]:
        assembly = self._assembly()
        try:
            lasting = await asyncio.to_thread(assembly.grants.all)
        except ConfigError:
            # A file that cannot be read grants nothing.
            lasting = []
        of_sessions = [grant for session in assembly.core.sessions for grant in session.grants.all()]
        return [grant_document(each) for each in (*lasting, *of_sessions)]

    async def _revoke(self, request: ApiRequest) -> dict[str, Any]:
        id, assembly = request.params["id"], self._assembly()
        try:
            revoked = await asyncio.to_thread(assembly.grants.revoke, id)
        except ConfigError as error:
            raise ApiError(500, "unreadable", str(error)) from error
        revoked = any(session.grants.revoke(id) for session in assembly.core.sessions) or revoked
        if not revoked:
            raise ApiError(404, "not_found", f"There is no grant {id}; it was revoked or has expired.")
        self.console.events.publish("policy", window=request.window)
        return {}

    def _assembly(self) -> Assembly:
        return self.console.assembly

    def _file(self) -> Path | None:
        return policy_file(self._assembly().options)


def _readable(file: Path) -> str:
    """Return the text of a file that is about to be replaced; empty if it cannot be read."""
    try:
        return read_policy(file)
    except ConfigError:
        return ""


def _rule(rule: Rule) -> dict[str, Any]:
    line = rule.where.rpartition(":")[2]
    document: dict[str, Any] = msgspec.to_builtins(replace(rule, when=()))
    return {
        **document,
        "line": int(line) if line.isdecimal() else None,
        "named": rule.name != rule.where,
        "when": [str(each) for each in rule.when],
    }


def _default(row: Any) -> dict[str, Any]:
    conditions = ("trusted", "read_only", "destructive", "open_world", "tainted")
    return {
        "kinds": row.kinds,
        "effect": row.decision.effect,
        "rule": row.decision.rule,
        "reason": row.decision.reason,
        "when": {name: getattr(row, name) for name in conditions if getattr(row, name) is not None},
    }
