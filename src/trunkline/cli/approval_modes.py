"""Approval modes on the command line: which one a gateway gets, and the sentences that describe it.

``serve``, ``status``, ``install``, ``import`` and ``doctor`` all print these sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from msgspec.structs import replace

from trunkline.cli.output import complain
from trunkline.host.gateway.serving import Profile, ServeOptions, exposure_of
from trunkline.host.judgement.approval import MEANINGS, Approval, Exposure, default_approval, stricter
from trunkline.host.policy.policy import Policy

__all__ = [
    "approval_of",
    "approval_sentence",
    "no_call_passes",
    "profile_approvals",
    "profile_lines",
    "profiles_with",
    "setup_sentence",
    "status_line",
    "tell_approval",
    "usual_approval",
]

_SHORT: Mapping[Approval, str] = MappingProxyType(
    {
        "client": "the client asks its own user",
        "ask": "asks by elicitation",
        "deny": "only what rules allow",
    }
)
_CHANGE = "set it with --approval client, ask or deny"


def approval_of(settings: Mapping[str, Any], options: Mapping[str, Any]) -> Approval:
    """Return the mode set by option or gateway file, else the default for who can reach the gateway."""
    chosen: Approval | None = settings.get("approval")
    return default_approval(_exposure(options)) if chosen is None else chosen


def _exposure(options: Mapping[str, Any]) -> Exposure:
    return exposure_of(cast("ServeOptions", options))


def profiles_with(profiles: Mapping[str, Profile], flag: Approval | None) -> dict[str, Profile]:
    """Return the profiles with the mode of ``--approval`` applied: each gets the stricter of that and its own."""
    return {
        name: each if flag is None else replace(each, approval=stricter(flag, each.approval))
        for name, each in profiles.items()
    }


def tell_approval(options: Mapping[str, Any]) -> None:
    """Print the approval modes of a gateway to stderr; warn if mode ``client`` is used where others can call."""
    mode: Approval = options["approval"]
    profiles: Mapping[str, Profile] = options.get("profiles") or {}
    served = options.get("profile")
    if served is not None:
        mode = profiles[served].approval or mode
    complain(approval_sentence(mode))
    told = {mode}
    for name, profile in profiles.items() if served is None else ():
        if profile.approval not in (None, mode):
            complain(f"profile {name}: {approval_sentence(profile.approval)}")
            told.add(profile.approval)
    exposed = default_approval(_exposure(options)) != "client"
    if exposed and "client" in told:
        complain(
            "warning: clients other than your own can call this gateway, and mode client does not ask; "
            "use --approval ask"
        )


def approval_sentence(mode: Approval) -> str:
    """Return one sentence on what a mode means and how to change it."""
    return f"approval mode {mode}: {MEANINGS[mode]} ({_CHANGE})"


def usual_approval(file: str | None = None) -> Approval:
    """Return the mode that ``trunkline serve`` uses by default: over stdio, or with a gateway file.

    Raises:
        ConfigError: the file cannot be read.
    """
    if file is None:
        return default_approval(exposure_of({}))
    from trunkline.cli.gateway_files import read_gateway_file

    written = read_gateway_file(file).options
    chosen: Approval | None = written.get("approval")
    if chosen is not None:
        return chosen
    exposure = exposure_of({"http": written.get("http"), "allowed_hosts": written.get("allowed_host", ())})
    return default_approval(replace(exposure, static_token=exposure.static_token and "issuer" not in written))


def profile_approvals(file: str | None, mode: Approval) -> dict[str, Approval]:
    """Return the mode of each profile in a gateway file; ``mode`` applies to profiles without one.

    Raises:
        ConfigError: the file cannot be read.
    """
    if file is None:
        return {}
    from trunkline.cli.gateway_files import read_gateway_file

    return {name: profile.approval or mode for name, profile in read_gateway_file(file).profiles.items()}


def setup_sentence(mode: Approval) -> str:
    """Return one line on how ``trunkline serve`` would treat calls under the user's own policy."""
    if not no_call_passes(mode, _own_policy()):
        return approval_sentence(mode)
    who = "a client without elicitation" if mode == "ask" else "every client"
    return f"{approval_sentence(mode)}; no rule allows a tool, so {who} is denied every tool call without a grant"


def status_line(mode: Approval) -> str:
    """Return the line for ``trunkline status``, short enough for a terminal."""
    if no_call_passes(mode, _own_policy()):
        why = " if the client cannot be asked" if mode == "ask" else ", since no rule allows a tool"
        return f"trunkline serve: approval mode {mode}, denies calls{why}"
    return f"trunkline serve: approval mode {mode}, {_SHORT[mode]}"


def profile_lines(modes: Mapping[str, Approval]) -> list[str]:
    """Return a line for each profile, short enough for a terminal."""
    return [f"profile {name}: approval mode {mode}, {_SHORT[mode]}" for name, mode in modes.items()]


def no_call_passes(mode: Approval, policy: Policy) -> bool:
    """Return True if no rule allows a tool: a client without elicitation then gets only what was granted."""
    return mode != "client" and not any(rule.effect == "allow" and "tool" in rule.kinds for rule in policy.rules)


def _own_policy() -> Policy:
    from trunkline.errors import ConfigError
    from trunkline.host.folders import config_folder
    from trunkline.host.policy.reading import load_policy

    path = config_folder() / "policy.toml"
    try:
        return load_policy(path) if path.exists() else Policy(())
    except ConfigError:
        # The commands that need the policy report what is wrong with it.
        return Policy(())
