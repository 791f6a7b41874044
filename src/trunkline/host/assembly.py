"""Assembles a host: from the configurations and options of the user to a core that is ready to start.

This is the only place that decides which files are used: configurations, policy, approvals, grants, the audit trail.
The parts themselves are given paths and know no folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from msgspec.structs import asdict, replace

import trunkline.types as t
from trunkline.errors import ConfigError, MethodNotFound
from trunkline.host.audit.trail import AuditTrail
from trunkline.host.authorization.approval import Approver, Prompter
from trunkline.host.authorization.deferred_grants import DeferredGrants
from trunkline.host.authorization.grants import GrantStore
from trunkline.host.authorization.policy.loader import load_policy, local_path_context
from trunkline.host.authorization.policy.locations import PathContext as PolicyPlaces
from trunkline.host.authorization.policy.policy import LivePolicy, Policy
from trunkline.host.config.loading import ConfigFiles, entry_from_mapping, find_config_files, load_configuration
from trunkline.host.config.model import Configuration, InputVariable, ServerEntry, Source
from trunkline.host.core import LIST_SECONDS, HostCore
from trunkline.host.events import EventBus, Reloaded
from trunkline.host.integrity.pins.catalog_review import ScanMode
from trunkline.host.integrity.pins.inspector import Inspector
from trunkline.host.integrity.pins.store import PinStore, read_lock
from trunkline.host.integrity.trust import TrustStore, project_folder
from trunkline.host.models.interface import Model
from trunkline.host.sandbox.launch import LaunchPlan
from trunkline.host.secrets.registry import LogRedaction, SecretRegistry
from trunkline.host.secrets.vault import Vault
from trunkline.host.server_requests.elicitation import ElicitationPrompter
from trunkline.host.server_requests.sampling.handler import SamplingPrompter
from trunkline.host.server_requests.sampling.limits import SamplingLimits
from trunkline.host.state_files import config_folder, private_folder, state_folder
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.routing.channels import ConnectionNeeds
from trunkline.host.upstreams.supervision.clients import HashSeed
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.host.upstreams.supervision.supervisor import ServerChanges, Supervisor
from trunkline.protocol.extension_definition import Extension, read_extensions
from trunkline.protocol.limits import Limits
from trunkline.server.handler_functions import TRACEBACKS
from trunkline.transports.python_files import launch_python_file, split_spec

__all__ = [
    "ANCESTORS",
    "Assembly",
    "HostOptions",
    "ReloadResult",
    "assemble",
    "configuration_fingerprint",
    "in_project_folder",
    "policy_file",
    "policy_of",
    "read_configuration",
    "trust_file",
]

#: Environment variable of a server process: fingerprints of the configurations of the gateways that started it.
ANCESTORS = "TRUNKLINE_ANCESTORS"


class HostOptions(TypedDict, total=False):
    """The keyword arguments of ``Host.open``."""

    #: The rules: a ``Policy``, or the path of a TOML file; by default the user's ``policy.toml`` if there is one.
    policy: Policy | str | os.PathLike[str] | None
    #: Prompts for approval: a function from a question to an answer, or to None for no answer.
    consent: Prompter | None
    #: Seconds after which an unanswered approval prompt counts as denied.
    consent_seconds: float
    #: Callbacks that answer the servers' requests; see ``Client``.
    sampling: Callable[[t.CreateMessageRequestParams], Any] | None
    sampling_tools: bool
    elicitation: Callable[[t.ElicitRequestParams], Any] | None
    elicitation_urls: bool
    roots: Any
    #: Whether this host shows pages (MCP Apps): servers then name them, and list the tools that only pages call.
    apps: bool
    #: Whether servers written with this package return tracebacks of their tools, for their author.
    tracebacks: bool
    #: Extensions of the protocol that the host declares to its servers, and that its gateways forward.
    extensions: Sequence[Extension]
    #: The models that answer sampling requests, under review: open models, or ``provider:model``.
    models: Sequence[Model | str]
    #: Show sampling requests and answers, and forms and pages, to a person; without them, requests need a rule.
    review: SamplingPrompter | None
    forms: ElicitationPrompter | None
    #: Sampling limits of servers whose entry sets none.
    sampling_limits: SamplingLimits
    #: Called with messages for the user about what was refused and why.
    notice: Callable[[str], object] | None
    #: Called with the servers' log messages.
    logging: Callable[[t.LoggingMessageNotificationParams], object] | None
    #: Called with the name of a server and with what its process writes to stderr.
    on_stderr: Callable[[str, bytes], object] | None
    #: The configuration, if it was already loaded from the sources; they are read again only by ``reload``.
    configuration: Configuration | None
    #: Prompts for the values of ``${input:…}``.
    inputs: Callable[[InputVariable], str | None] | None
    #: The folder of approvals, grants, catalogs and the audit trail.
    folder: str | os.PathLike[str] | None
    #: The project folder, searched for a configuration if none is named; by default the current directory.
    project: str | os.PathLike[str] | None
    #: The audit trail: on, off, or the path of its file.
    audit: bool | str | os.PathLike[str]
    #: What opening the host waits for, and how long: all servers, the required ones, the cached catalogs of earlier
    #: runs (nothing is started for that), or nothing.
    wait: Literal["all", "required", "kept", "none"]
    wait_seconds: float
    #: How long the first list of a gateway waits for a starting server without a cached catalog.
    list_seconds: float
    #: How many server processes start at the same time; by default four per processor.
    starts_at_once: int
    #: Start no process before ``serve`` has answered its client over stdio, or waited a second for a request.
    hold_starts: bool
    #: The names of the servers to use; None for all.
    only: Collection[str] | None
    #: Members of ``ServerSettings`` that override those of every entry.
    settings: Mapping[str, Any]
    #: Start no server before it is used.
    lazy: bool
    #: Pin the definitions that servers offered when they were first seen.
    pins: bool
    #: A lock file: only definitions listed in it are served.
    lock: str | os.PathLike[str] | None
    #: What happens to definitions with findings of the scan: ``hide``, ``ask`` at most, or ``off``.
    scanning: ScanMode
    #: The kind of caller, for rules and the audit trail: ``user`` or ``model``.
    caller: str
    #: The user typed every call made through the host's methods, so default rules need no further approval.
    typed: bool
    #: The name and version sent to servers as the client.
    client_info: t.Implementation | None
    limits: Limits | None
    environ: Mapping[str, str]
    #: The vault of secrets that entries name; by default the user's keyring or encrypted file.
    vault: Vault | None
    #: Collects every secret the host handles, so that output can be masked.
    secret_registry: SecretRegistry | None


class ReloadResult(ServerChanges, frozen=True):
    """What a reload of the files changed."""

    #: Whether the rules differ from before.
    policy: bool = False


class Assembly:
    """The parts of an open host."""

    def __init__(
        self,
        sources: Sequence[object],
        options: HostOptions,
        *,
        configuration: Configuration,
        policy: Policy,
        sharing: ProcessSharing | None,
    ) -> None:
        """Assemble the parts; nothing is started."""
        self._sources = sources
        self._sharing = sharing
        self.options = options
        self.configuration: Configuration = configuration
        #: The current rules; those of a file are replaced in place on reload.
        self.policy: Policy = policy if isinstance(options.get("policy"), Policy) else LivePolicy(policy)
        #: The policies of profiles, by their files.
        self._policies: dict[str, LivePolicy] = {}
        self._reloading = asyncio.Lock()
        self.folder: Path = _folder(options)
        self.trust: TrustStore = TrustStore(trust_file(self.folder))
        self.grants: GrantStore = GrantStore(self.folder / "grants.json")
        self._hash_seed = HashSeed(self.folder / "hash-seed")
        #: The client capabilities of the program that uses the host; set before ``start``.
        self.declared_capabilities: Mapping[str, Any] = {}
        self._added: dict[str, ServerEntry] = {}
        self._removed: set[str] = set()
        on_stderr = options.get("on_stderr")
        #: Called with the name of a server and with what its process writes to stderr; may change at any time.
        self.stderr_listeners: set[Callable[[str, bytes], object]] = set() if on_stderr is None else {on_stderr}
        #: The settings declared to every server for the host's extensions, by identifier.
        self._extensions: Mapping[str, Any] = {}
        known: tuple[Extension, ...] = ()
        if (given := options.get("extensions")) is not None:
            self._extensions, known = read_extensions(given, "client")
        secrets = options.get("secret_registry") or SecretRegistry()
        self._log_redaction = LogRedaction(secrets)
        self.vault: Vault = options.get("vault") or Vault(environ=options.get("environ"))
        consent = Approver(self.grants, deadline=options.get("consent_seconds", 300.0))
        events = EventBus()
        # First, since an unreadable lock file raises here, and an audit trail would be left open.
        inspector = self._inspector(events, secrets)
        self.core: HostCore = HostCore(
            consent=consent,
            audit=_trail(options, self.folder),
            events=events,
            folder=self.folder,
            inspector=inspector,
            on_catalog=DeferredGrants(self.grants, self._entry_of),
            limits=options.get("limits"),
            secrets=secrets,
            list_seconds=options.get("list_seconds", LIST_SECONDS),
            supervisor=self._supervisor,
        )

        self.core.extensions = known
        self.core.pin_extensions(known)

    def _supervisor(self, core: HostCore) -> Supervisor:
        """Build the supervisor of the servers; the core calls it last, when all else of it is there."""
        return Supervisor(
            trust=self._may_run,
            events=core.events,
            on_offering=core.offering_changed,
            cache=CatalogCache(self.folder / "catalogs"),
            client_options=self._client_options,
            sandboxed=self._sandboxed,
            vault=self.vault,
            secrets=core.secrets,
            starts_at_once=_starts(self.options),
            hold_starts=self.options.get("hold_starts", False),
            sharing=self._sharing,
        )

    def _inspector(self, events: EventBus, secrets: SecretRegistry) -> Inspector:
        """Build the inspector that checks each catalog before it is used."""
        lock = self.options.get("lock")
        return Inspector(
            PinStore(self.folder / "pins.json") if self.options.get("pins", True) else None,
            entry_of=self._entry_of,
            events=events,
            lock=None if lock is None else read_lock(lock),
            lock_name=str(lock),
            scanning=self.options.get("scanning", "hide"),
            hide=secrets.hide,
        )

    def _entry_of(self, name: str) -> ServerEntry | None:
        upstream = self.core.supervisor.upstreams.get(name)
        return None if upstream is None else upstream.entry

    async def start(self) -> None:
        """Start the servers that may run, and wait for as many as ``wait`` asks for."""
        self._log_redaction.install()
        await self.core.start(self._entries())
        wait, seconds = self.options.get("wait", "all"), self.options.get("wait_seconds", 10.0)
        if wait == "kept":
            await self.core.supervisor.recalled(seconds)
        elif wait != "none":
            await self.core.supervisor.settled(seconds, everything=wait == "all")

    async def aclose(self) -> None:
        """Stop the servers and close everything."""
        try:
            await self.core.aclose()
        finally:
            self._log_redaction.remove()

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the configuration, by which a gateway detects that it was started by itself."""
        return configuration_fingerprint(self.configuration)

    @property
    def reads_files(self) -> bool:
        """Whether servers come from configuration files, so that a reload adds servers from them."""
        return not self._sources or any(isinstance(each, str | os.PathLike) for each in self._sources)

    @property
    def path_context(self) -> PolicyPlaces:
        """The folders that paths in rules refer to."""
        return _places(self.configuration)

    # --- servers -----------------------------------------------------------------------------------------------------

    async def add(self, name: str, entry: object) -> None:
        """Add a server."""
        self._added[name] = _given(name, entry, self.options)
        self._removed.discard(name)
        await self.core.apply(self._entries())

    async def remove(self, name: str) -> None:
        """Remove a server."""
        if name not in self._entries():
            raise KeyError(f"there is no server {name!r}")
        self._added.pop(name, None)
        self._removed.add(name)
        upstream = self.core.supervisor.upstreams.get(name)
        await self.core.apply(self._entries())
        if upstream is not None:
            await asyncio.wait([upstream.end()])

    async def reload(self) -> ReloadResult:
        """Reload configuration and policy files: either all of it takes effect, or nothing does.

        Raises:
            ConfigError: something cannot be read; everything stays as it was.
        """
        async with self._reloading:
            try:
                configuration = await asyncio.to_thread(read_configuration, self._sources, self.options)
                policies = await asyncio.to_thread(self._read_policies, configuration)
            except ConfigError as error:
                self.core.events.publish(Reloaded(problem=str(error)))
                raise
            self.configuration = configuration
            # Before any server changes, so that a new one is under the new rules from its first call on.
            differs = [held.replace_with(policy) for held, policy in policies]
            if any(differs):
                self.core.rules_changed()
            changes = await self.core.apply(self._entries())
            self.core.events.publish(Reloaded(policy=any(differs)))
            return ReloadResult(**asdict(changes), policy=any(differs))

    def policy_at(self, given: Policy | str) -> Policy:
        """Return the policy of a profile; one from a file is reloaded with everything else.

        Raises:
            ConfigError: the file cannot be read.
        """
        if isinstance(given, Policy):
            return given
        if given not in self._policies:
            self._policies[given] = LivePolicy(load_policy(given, path_context=_places(self.configuration)))
        return self._policies[given]

    def _read_policies(self, configuration: Configuration) -> list[tuple[LivePolicy, Policy]]:
        """Return each policy that came from a file, with its new content."""
        path_context = _places(configuration)
        found = [(held, load_policy(path, path_context=path_context)) for path, held in tuple(self._policies.items())]
        if isinstance(self.policy, LivePolicy):
            found.append((self.policy, policy_of(self.options, configuration)))
        return found

    def _entries(self) -> dict[str, ServerEntry]:
        in_code = {**_in_code(self._sources, self.options), **self._added}
        entries = {**self.configuration.entries, **{name: self._apply_rules(entry) for name, entry in in_code.items()}}
        only = self.options.get("only")
        kept = {
            name: entry
            for name, entry in entries.items()
            if name not in self._removed
            and (only is None or name in only or name in self._added)
            and (self._sharing is None or self._sharing.has_server(entry))
        }
        return {name: _started(entry, self.options, self._extensions) for name, entry in kept.items()}

    def _apply_rules(self, entry: ServerEntry) -> ServerEntry:
        """Apply the administrator's rules to an entry that was given in code."""
        denial = self.configuration.rules.denial(entry)
        return entry if denial is None else replace(entry, problem=denial.why)

    async def _may_run(self, entry: ServerEntry) -> tuple[bool, str | None]:
        """Return whether a server may run, and if not, why."""
        return await self.trust.check(entry)

    def _sandboxed(self, entry: ServerEntry, env: Mapping[str, str] | None) -> LaunchPlan:
        """Return how to launch a sandboxed server, with its current roots."""
        from trunkline.host.sandbox.launch import prepare_launch

        return prepare_launch(entry, env=env, roots=self.core.roots.paths(entry), folder=self.folder)

    def _client_options(self, entry: ServerEntry) -> Mapping[str, Any]:
        # Some servers list a tool only to clients that declare what the tool asks for, and some fail if a declared
        # capability is then refused. So the shared connection declares the capabilities of the program that uses the
        # host, and for a gateway none: a client with capabilities has a dedicated connection (session_views.py).
        needs, options = self._declared(entry), dict[str, Any]()
        answer = partial(self._answer_shared, entry)
        if needs.sampling:
            options |= {"sampling": partial(answer, "sampling"), "sampling_tools": needs.sampling_tools}
        if needs.elicitation:
            options |= {"elicitation": partial(answer, "elicitation"), "elicitation_urls": needs.elicitation_urls}
        if needs.roots or self.core.roots.of(entry) is not None:
            options["roots"] = lambda: self._roots(entry)
        if needs.apps:
            options["apps"] = True
        if self._extensions:
            options["extensions"] = {**{id: {} for id in entry.settings.extensions}, **self._extensions}
        # Not ``logging``: that would request log messages from a stateless server with every request.
        options["on_notification"] = lambda method, params: self.core.handle_notification(entry.name, method, params)
        options["tap"] = self.core.traffic.tap(entry.name)
        if (info := self.options.get("client_info")) is not None:
            options["client_info"] = info
        if entry.command is not None:
            ancestors = [*os.environ.get(ANCESTORS, "").split(), self.fingerprint]
            seed = self._hash_seed.variables(self.options.get("environ", os.environ))
            shown = {TRACEBACKS: "1"} if self.options.get("tracebacks") else {}
            options["env"] = {**seed, **shown, **entry.env, ANCESTORS: " ".join(ancestors)}
            options["on_stderr"] = lambda data: self._stderr_received(entry.name, data)
        return options

    def _stderr_received(self, server: str, data: bytes) -> None:
        for listener in tuple(self.stderr_listeners):
            listener(server, data)

    def _declared(self, entry: ServerEntry) -> ConnectionNeeds:
        """Return the capabilities of the shared connection; none that allow questions if gateway clients share it."""
        if entry.settings.share == "shared":
            return ConnectionNeeds(apps=self.options.get("apps", False))
        return ConnectionNeeds.of(self.declared_capabilities, logs=False).within(entry.settings.asks)

    async def _roots(self, entry: ServerEntry) -> list[t.Root]:
        """Return the current roots of a server, for the shared connection."""
        roots = self.core.roots.of(entry)
        return cast("list[t.Root]", await self._answer_shared(entry, "roots")) if roots is None else roots

    async def _answer_shared(self, entry: ServerEntry, capability: str, *question: Any) -> Any:
        """Answer a question on the shared connection through one of its adopters: they have the same calls.

        Raises:
            MethodNotFound: no session did.
        """
        upstream = self.core.supervisor.upstreams.get(entry.name)
        if upstream is None or not upstream.adopters:
            raise MethodNotFound(f"The caller cannot be asked: it did not declare {capability}")
        return await upstream.adopters[-1].answer(capability, *question)


async def assemble(sources: Sequence[object], options: HostOptions, sharing: ProcessSharing | None = None) -> Assembly:
    """Load the configuration and policy, and assemble a host; with ``sharing`` it is one of several processes.

    Raises:
        ConfigError: a named configuration or policy cannot be read.
    """
    configuration = options.get("configuration")
    if configuration is None:
        configuration = await asyncio.to_thread(read_configuration, sources, options)
    policy = await asyncio.to_thread(policy_of, options, configuration)
    return Assembly(sources, options, configuration=configuration, policy=policy, sharing=sharing)


def _starts(options: HostOptions) -> int | None:
    """Return how many processes may start at the same time.

    Raises:
        ConfigError: it is not a number above 0.
    """
    given = options.get("starts_at_once")
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise ConfigError(f"starts_at_once is {given!r}: give a number of servers, 1 or more.")
    return given


def configuration_fingerprint(configuration: Configuration) -> str:
    """Return a fingerprint of a configuration, from the paths of its files, not their content."""
    files = sorted(os.path.realpath(file.path) for file in configuration.files)
    return hashlib.sha256("\0".join(files).encode()).hexdigest()[:16]


def trust_file(folder: Path) -> Path:
    """Return the path of the approvals file."""
    return folder / "trust.json"


def _folder(options: HostOptions) -> Path:
    given = options.get("folder")
    return private_folder(state_folder() if given is None else Path(given))


def _trail(options: HostOptions, folder: Path) -> AuditTrail | None:
    wanted = options.get("audit", True)
    if wanted is False:
        return None
    return AuditTrail.open(folder / "audit.jsonl" if wanted is True else Path(wanted))


def read_configuration(sources: Sequence[object], options: HostOptions) -> Configuration:
    """Read the files of these sources, or those that are found.

    Raises:
        ConfigError: a named file cannot be used.
    """
    environ = options.get("environ", os.environ)
    files = [os.fspath(each) for each in sources if isinstance(each, str | os.PathLike)]
    found = find_config_files(Path(options.get("project") or os.getcwd()))
    # With explicit sources, the project and user files are not loaded; the managed file always is: the
    # administrator's rules apply to every server.
    config_files = ConfigFiles(managed=found.managed) if sources else found
    return load_configuration(
        given=files,
        project=config_files.project,
        user=config_files.user,
        managed=config_files.managed,
        environ=environ,
        inputs=options.get("inputs"),
    )


def policy_of(options: HostOptions, configuration: Configuration) -> Policy:
    """Return the policy that the options select: a given one, a file's, or the user's own.

    Raises:
        ConfigError: the file cannot be read.
    """
    given = options.get("policy")
    if isinstance(given, Policy):
        return given
    if given is not None and not isinstance(given, str | os.PathLike):
        raise TypeError(f"policy= is a Policy or the path of a TOML file, not {type(given).__name__}")
    file = policy_file(options)
    if file is None or (given is None and not file.exists()):
        return Policy(())
    return load_policy(file, path_context=_places(configuration))


def policy_file(options: HostOptions) -> Path | None:
    """Return the path of a host's policy file, which need not exist; None if the policy was passed as an object."""
    given = options.get("policy")
    if isinstance(given, Policy):
        return None
    return config_folder() / "policy.toml" if given is None else Path(given)


def _places(configuration: Configuration) -> PolicyPlaces:
    """Return what paths in rules refer to, for the configured servers."""
    return local_path_context(configuration.entries.values())


def _in_code(sources: Sequence[object], options: HostOptions) -> dict[str, ServerEntry]:
    """Collect the servers given as mappings."""
    found: dict[str, ServerEntry] = {}
    for source in sources:
        if isinstance(source, Mapping):
            servers = source.get("mcpServers", source)
            found |= {str(name): _given(str(name), entry, options) for name, entry in servers.items()}
        elif not isinstance(source, str | os.PathLike):
            raise ConfigError(f"A {type(source).__name__} is not a configuration: pass a path or a mapping of servers.")
    return found


def _given(name: str, entry: object, options: HostOptions) -> ServerEntry:
    if isinstance(entry, ServerEntry):
        return entry
    if isinstance(entry, Mapping):
        return entry_from_mapping(name, entry, source=Source("given"), environ=options.get("environ"))
    if hasattr(entry, "accept"):
        return ServerEntry(name=name, source=Source("given"), target=entry)
    if isinstance(entry, str | os.PathLike):
        path, object_name = split_spec(os.fspath(entry))
        if not path.endswith(".py") or not os.path.isfile(path):
            raise ConfigError(f"Server {name!r}: there is no Python file {path}.")
        launch = launch_python_file(path, object_name)
        return ServerEntry(name=name, source=Source("given"), command=tuple(launch.command), env=launch.env)
    raise ConfigError(
        f"Server {name!r}: give an mcpServers entry, a Server or a .py file, not a {type(entry).__name__}."
    )


def in_project_folder(entry: ServerEntry) -> ServerEntry:
    """Set the project folder as working directory of a project's server that names none."""
    if entry.source.scope == "project" and entry.command is not None and entry.cwd is None and entry.source.file:
        return replace(entry, cwd=project_folder(entry.source.file))
    return entry


def _started(entry: ServerEntry, options: HostOptions, extensions: Collection[str]) -> ServerEntry:
    """Return an entry with the options of this host applied; the host's extensions are added to its list."""
    settings = dict(options.get("settings", {}))
    if extensions:
        settings["extensions"] = {**dict.fromkeys(extensions, ()), **entry.settings.extensions}
    if options.get("lazy"):
        settings["start"] = "lazy"
    return in_project_folder(replace(entry, settings=replace(entry.settings, **settings)) if settings else entry)
