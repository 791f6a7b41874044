"""The host: many servers under one user's control, and the gateway that serves them.

``config`` defines which servers there are. ``upstreams`` keeps them running (``supervision``), lists what they offer
together (``catalog``) and sends them requests (``routing``). ``integrity`` checks what may run and whether definitions
changed (trust, pins, scan); ``sandbox`` confines processes; ``secrets`` stores and masks secrets. ``authorization``
decides about each call by the user's policy, approvals and grants; ``audit`` records it. ``server_requests`` answers
sampling, elicitation and roots; ``models`` and ``chat`` use a model; ``gateway`` serves other clients. ``Host`` is the
public class over all of it.

Import from here: the modules inside are not part of the public API, whatever their names. Names are loaded on first
access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.client.options import ProgressCallback
    from trunkline.client.tool_cache import CallResult
    from trunkline.host.assembly import HostOptions, ReloadResult
    from trunkline.host.audit.reader import AuditFilter, Verification, query, verify
    from trunkline.host.audit.trail import AuditEntry, AuditFailed, AuditTrail, TrailHead
    from trunkline.host.authorization.approval import (
        APPROVAL_MODES,
        ApprovalAnswer,
        ApprovalMode,
        ApprovalRequest,
        Prompter,
        RememberScope,
    )
    from trunkline.host.authorization.grants import ServerTool
    from trunkline.host.authorization.policy.decisions import Act, ActKind, Decision, Effect, ToolHints
    from trunkline.host.authorization.policy.loader import load_policy, parse_policy
    from trunkline.host.authorization.policy.policy import Policy, Trace, TraceStep
    from trunkline.host.authorization.skill_grants import SkillTool
    from trunkline.host.chat.conversation import Attachment, CallRecord, ChatReply, Conversation
    from trunkline.host.chat.events import (
        CallFinished,
        CallProgressed,
        CallProposed,
        CallStarted,
        ChatEvent,
        ChatLimits,
        ChatNotice,
        ChatOptions,
        ContextUsage,
        ServerUsage,
        TextReceived,
        TurnEnded,
    )
    from trunkline.host.chat.history import HistoryEntry, SavedConversation, load_conversation, save_conversation
    from trunkline.host.chat.rendering import Rendered
    from trunkline.host.config.loading import entries_from_mapping, find_config_files, load_configuration
    from trunkline.host.config.model import (
        ConfigProblem,
        Configuration,
        Filters,
        InactiveEntry,
        InputVariable,
        LoadedFile,
        Provenance,
        Scope,
        ServerEntry,
        ServerSettings,
        Source,
        ValueOrigin,
        VariableUse,
    )
    from trunkline.host.events import (
        ActCompleted,
        CatalogChanged,
        ConsentAsked,
        DefinitionInspected,
        Event,
        EventsMissed,
        EventSubscription,
        Reloaded,
        ServerState,
        ServerStateChanged,
    )
    from trunkline.host.gateway.app import Profile, ServeOptions
    from trunkline.host.gateway.gateway import Gateway
    from trunkline.host.gateway.sessions import GatewayOptions
    from trunkline.host.host import Host
    from trunkline.host.integrity.pins.definitions import pin_of
    from trunkline.host.models.interface import (
        AudioBlock,
        Block,
        Finished,
        ImageBlock,
        Model,
        ModelError,
        ModelEvent,
        ModelMessage,
        ModelRequest,
        StopReason,
        TextBlock,
        TextDelta,
        ToolResultBlock,
        ToolSpec,
        ToolUseBegun,
        ToolUseBlock,
        Traits,
        Usage,
    )
    from trunkline.host.models.provider import ModelLimits
    from trunkline.host.models.scripted import ScriptedCall, ScriptedModel, ScriptedTurn, read_script
    from trunkline.host.models.selection import ModelOptions, choose_model, open_model
    from trunkline.host.sandbox.backends import Capabilities, ContainerEngine, detect_capabilities
    from trunkline.host.sandbox.file_access import SandboxLocations
    from trunkline.host.sandbox.launch import LaunchPlan, plan_launch, prepare_launch
    from trunkline.host.sandbox.settings import ContainerSettings, ResourceLimits, SandboxSettings, parse_sandbox
    from trunkline.host.secrets.references import SecretReference, SecretTemplate, parse_secret_reference
    from trunkline.host.secrets.registry import Redaction, SecretRegistry
    from trunkline.host.secrets.vault import StoredSecret, Vault, open_stores
    from trunkline.host.server_requests.elicitation import ElicitationPrompter, FormPrompt, PageUrl, UrlPrompt
    from trunkline.host.server_requests.handlers import ServerRequestHandler
    from trunkline.host.server_requests.sampling.handler import SamplingDecision, SamplingPrompter, SamplingReview
    from trunkline.host.server_requests.sampling.limits import SamplingLimits
    from trunkline.host.session import HostSession
    from trunkline.host.shared_logins import SharedLogins
    from trunkline.host.skills import HostSkill
    from trunkline.host.upstreams.catalog.catalog import Catalog
    from trunkline.host.upstreams.catalog.items import CatalogItem, DroppedItem, ItemKind, ServerCatalog
    from trunkline.host.upstreams.catalog.names import NamingScheme, item_id, wire_name
    from trunkline.host.upstreams.supervision.supervisor import StartProgress
    from trunkline.host.upstreams.supervision.upstream import ServerStatus

__all__ = [
    "APPROVAL_MODES",
    "Act",
    "ActCompleted",
    "ActKind",
    "ApprovalAnswer",
    "ApprovalMode",
    "ApprovalRequest",
    "Attachment",
    "AudioBlock",
    "AuditEntry",
    "AuditFailed",
    "AuditFilter",
    "AuditTrail",
    "Block",
    "CallFinished",
    "CallProgressed",
    "CallProposed",
    "CallRecord",
    "CallResult",
    "CallStarted",
    "Capabilities",
    "Catalog",
    "CatalogChanged",
    "CatalogItem",
    "ChatEvent",
    "ChatLimits",
    "ChatNotice",
    "ChatOptions",
    "ChatReply",
    "ConfigProblem",
    "Configuration",
    "ConsentAsked",
    "ContainerEngine",
    "ContainerSettings",
    "ContextUsage",
    "Conversation",
    "Decision",
    "DefinitionInspected",
    "DroppedItem",
    "Effect",
    "ElicitationPrompter",
    "Event",
    "EventSubscription",
    "EventsMissed",
    "Filters",
    "Finished",
    "FormPrompt",
    "Gateway",
    "GatewayOptions",
    "HistoryEntry",
    "Host",
    "HostOptions",
    "HostSession",
    "HostSkill",
    "ImageBlock",
    "InactiveEntry",
    "InputVariable",
    "ItemKind",
    "LaunchPlan",
    "LoadedFile",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelLimits",
    "ModelMessage",
    "ModelOptions",
    "ModelRequest",
    "NamingScheme",
    "PageUrl",
    "Policy",
    "Profile",
    "ProgressCallback",
    "Prompter",
    "Provenance",
    "Redaction",
    "ReloadResult",
    "Reloaded",
    "RememberScope",
    "Rendered",
    "ResourceLimits",
    "SamplingDecision",
    "SamplingLimits",
    "SamplingPrompter",
    "SamplingReview",
    "SandboxLocations",
    "SandboxSettings",
    "SavedConversation",
    "Scope",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedTurn",
    "SecretReference",
    "SecretRegistry",
    "SecretTemplate",
    "ServeOptions",
    "ServerCatalog",
    "ServerEntry",
    "ServerRequestHandler",
    "ServerSettings",
    "ServerState",
    "ServerStateChanged",
    "ServerStatus",
    "ServerTool",
    "ServerUsage",
    "SharedLogins",
    "SkillTool",
    "Source",
    "StartProgress",
    "StopReason",
    "StoredSecret",
    "TextBlock",
    "TextDelta",
    "TextReceived",
    "ToolHints",
    "ToolResultBlock",
    "ToolSpec",
    "ToolUseBegun",
    "ToolUseBlock",
    "Trace",
    "TraceStep",
    "TrailHead",
    "Traits",
    "TurnEnded",
    "UrlPrompt",
    "Usage",
    "ValueOrigin",
    "VariableUse",
    "Vault",
    "Verification",
    "choose_model",
    "detect_capabilities",
    "entries_from_mapping",
    "find_config_files",
    "item_id",
    "load_configuration",
    "load_conversation",
    "load_policy",
    "open_model",
    "open_stores",
    "parse_policy",
    "parse_sandbox",
    "parse_secret_reference",
    "pin_of",
    "plan_launch",
    "prepare_launch",
    "query",
    "read_script",
    "save_conversation",
    "verify",
    "wire_name",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.client.options": ("ProgressCallback",),
            "trunkline.client.tool_cache": ("CallResult",),
            "trunkline.host.assembly": ("HostOptions", "ReloadResult"),
            "trunkline.host.audit.reader": ("AuditFilter", "Verification", "query", "verify"),
            "trunkline.host.audit.trail": ("AuditEntry", "AuditFailed", "AuditTrail", "TrailHead"),
            "trunkline.host.authorization.approval": (
                "APPROVAL_MODES",
                "ApprovalAnswer",
                "ApprovalMode",
                "ApprovalRequest",
                "Prompter",
                "RememberScope",
            ),
            "trunkline.host.authorization.grants": ("ServerTool",),
            "trunkline.host.authorization.skill_grants": ("SkillTool",),
            "trunkline.host.authorization.policy.decisions": ("Act", "ActKind", "Decision", "Effect", "ToolHints"),
            "trunkline.host.authorization.policy.loader": ("load_policy", "parse_policy"),
            "trunkline.host.authorization.policy.policy": ("Policy", "Trace", "TraceStep"),
            "trunkline.host.chat.conversation": ("Attachment", "CallRecord", "ChatReply", "Conversation"),
            "trunkline.host.chat.events": (
                "CallFinished",
                "CallProgressed",
                "CallProposed",
                "CallStarted",
                "ChatEvent",
                "ChatLimits",
                "ChatNotice",
                "ChatOptions",
                "ContextUsage",
                "ServerUsage",
                "TextReceived",
                "TurnEnded",
            ),
            "trunkline.host.chat.history": (
                "HistoryEntry",
                "SavedConversation",
                "load_conversation",
                "save_conversation",
            ),
            "trunkline.host.chat.rendering": ("Rendered",),
            "trunkline.host.config.loading": ("entries_from_mapping", "find_config_files", "load_configuration"),
            "trunkline.host.config.model": (
                "ConfigProblem",
                "Configuration",
                "Filters",
                "InactiveEntry",
                "InputVariable",
                "LoadedFile",
                "Provenance",
                "Scope",
                "ServerEntry",
                "ServerSettings",
                "Source",
                "ValueOrigin",
                "VariableUse",
            ),
            "trunkline.host.events": (
                "ActCompleted",
                "CatalogChanged",
                "ConsentAsked",
                "DefinitionInspected",
                "Event",
                "EventSubscription",
                "EventsMissed",
                "Reloaded",
                "ServerState",
                "ServerStateChanged",
            ),
            "trunkline.host.gateway.app": ("Profile", "ServeOptions"),
            "trunkline.host.gateway.gateway": ("Gateway",),
            "trunkline.host.gateway.sessions": ("GatewayOptions",),
            "trunkline.host.host": ("Host",),
            "trunkline.host.shared_logins": ("SharedLogins",),
            "trunkline.host.integrity.pins.definitions": ("pin_of",),
            "trunkline.host.models.interface": (
                "AudioBlock",
                "Block",
                "Finished",
                "ImageBlock",
                "Model",
                "ModelError",
                "ModelEvent",
                "ModelMessage",
                "ModelRequest",
                "StopReason",
                "TextBlock",
                "TextDelta",
                "ToolResultBlock",
                "ToolSpec",
                "ToolUseBegun",
                "ToolUseBlock",
                "Traits",
                "Usage",
            ),
            "trunkline.host.models.provider": ("ModelLimits",),
            "trunkline.host.models.scripted": ("ScriptedCall", "ScriptedModel", "ScriptedTurn", "read_script"),
            "trunkline.host.models.selection": ("ModelOptions", "choose_model", "open_model"),
            "trunkline.host.sandbox.backends": ("Capabilities", "ContainerEngine", "detect_capabilities"),
            "trunkline.host.sandbox.file_access": ("SandboxLocations",),
            "trunkline.host.sandbox.launch": ("LaunchPlan", "plan_launch", "prepare_launch"),
            "trunkline.host.sandbox.settings": (
                "ContainerSettings",
                "ResourceLimits",
                "SandboxSettings",
                "parse_sandbox",
            ),
            "trunkline.host.secrets.references": ("SecretReference", "SecretTemplate", "parse_secret_reference"),
            "trunkline.host.secrets.registry": ("Redaction", "SecretRegistry"),
            "trunkline.host.secrets.vault": ("StoredSecret", "Vault", "open_stores"),
            "trunkline.host.server_requests.elicitation": ("ElicitationPrompter", "FormPrompt", "PageUrl", "UrlPrompt"),
            "trunkline.host.server_requests.handlers": ("ServerRequestHandler",),
            "trunkline.host.server_requests.sampling.handler": (
                "SamplingDecision",
                "SamplingPrompter",
                "SamplingReview",
            ),
            "trunkline.host.server_requests.sampling.limits": ("SamplingLimits",),
            "trunkline.host.session": ("HostSession",),
            "trunkline.host.skills": ("HostSkill",),
            "trunkline.host.upstreams.catalog.catalog": ("Catalog",),
            "trunkline.host.upstreams.catalog.items": ("CatalogItem", "DroppedItem", "ItemKind", "ServerCatalog"),
            "trunkline.host.upstreams.catalog.names": ("NamingScheme", "item_id", "wire_name"),
            "trunkline.host.upstreams.supervision.supervisor": ("StartProgress",),
            "trunkline.host.upstreams.supervision.upstream": ("ServerStatus",),
        },
    )
