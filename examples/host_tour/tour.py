"""A tour of a host: servers start, a model uses them, the user approves calls, and everything is recorded.

Run it with ``make run`` or ``python -m examples.host_tour.tour``. On a terminal you are asked for approval;
elsewhere the tour approves by itself and never waits. The model is a script, unless the environment contains the API
key of a real one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from examples.weather.screen import Screen
from examples.workspace.tour import walk
from trunkline import Host
from trunkline.errors import PolicyDenied, TrunklineError
from trunkline.host import (
    ApprovalAnswer,
    ApprovalRequest,
    AuditFilter,
    CallFinished,
    CallProposed,
    ChatNotice,
    Model,
    Prompter,
    SamplingDecision,
    SamplingPrompter,
    SamplingReview,
    TextReceived,
    choose_model,
    open_model,
    query,
    read_script,
    verify,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REQUEST = "Get me ready for my trip: look at my notes and at the weather, and write down whether I need an umbrella."
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL")
NEXT = {
    ". .venv/bin/activate": "first, in each terminal: adds the commands below to the path",
    "python -m examples.code_review": "a host that reviews a pull request and asks before it comments",
    "trunkline chat -c examples/hosting/mcp.json": "chat with a model that has tools, or call them yourself",
    "trunkline serve -c examples/hosting/mcp.json --http 8000": "serve many servers as one",
    "make tour": "the protocol itself, message by message",
}


class Tour:
    """One host, and the screen."""

    def __init__(self, screen: Screen, folder: Path) -> None:
        """Set the screen, and a folder for all files."""
        self.screen = screen
        self.folder = folder
        self.trail = folder / "state" / "audit.jsonl"
        shutil.copytree(HERE / "workspace", folder / "workspace")

    @property
    def servers(self) -> dict[str, Any]:
        """The servers, as a configuration file has them."""
        return {
            "notes": {
                "command": sys.executable,
                "args": ["-m", "examples.host_tour.notes"],
                "env": {"NOTES": str(self.folder / "workspace"), "PYTHONPATH": str(ROOT)},
            },
            "weather": {
                "command": sys.executable,
                "args": ["-m", "examples.weather.server"],
                "env": {"PYTHONPATH": str(ROOT)},
            },
        }

    # --- the user ----------------------------------------------------------------------------------------------------

    def consent(self) -> Prompter:
        """Return a prompter: the terminal, or a function that always approves."""
        if self.screen.interactive:
            from trunkline.cli import terminal_prompter

            prompter = terminal_prompter()
            if prompter is not None:
                return prompter

        async def yes(request: ApprovalRequest) -> ApprovalAnswer:
            self.screen.lines(
                f"? May {request.act.server}/{request.act.name} be called?",
                f"  arguments: {dict(request.arguments or {})}",
                f"  asked because {request.decision.reason} ({request.decision.rule})",
                "> yes, once",
            )
            return ApprovalAnswer(allow=True)

        return yes

    def review(self) -> SamplingPrompter:
        """Return a reviewer of sampling requests: the terminal, or a function that always approves."""
        if self.screen.interactive:
            from trunkline.cli import terminal_sampling_review

            reviewer = terminal_sampling_review()
            if reviewer is not None:
                return reviewer

        async def look(review: SamplingReview) -> SamplingDecision:
            if review.stage == "request":
                said = " ".join(str(getattr(each.content, "text", "")) for each in review.request.messages)
                self.screen.lines(
                    f"? {review.server} asks a model: {said}",
                    f"  model: {review.model}, at most {review.max_tokens} tokens",
                    "> yes",
                )
            else:
                self.screen.lines("? May the answer be sent to the server?", "> yes")
            return SamplingDecision(allow=True)

        return look

    # --- the steps ---------------------------------------------------------------------------------------------------

    async def come_up(self, host: Host) -> None:
        """Show the servers and their tools."""
        self.screen.say(
            """Two servers run, each as a process that is monitored and restarted if it crashes. Their tools are
            listed in one catalog; each name begins with the server's name."""
        )
        self.screen.lines(*(f"{each.name}: {each.state}, era {each.era}, pid {each.pid}" for each in host.status()))
        self.screen.lines(*(f"{id}: {item.description}" for id, item in host.catalog.tools.items()))

    async def let_a_model_work(self, host: Host, model: Model) -> None:
        """Run a conversation with a model that has the tools."""
        self.screen.say(
            f"""A model ({model.name}) gets the tools and a request. The policy allows reading notes and asking for the
            weather. No rule allows writing a note, so the user is asked first. The text of a note could contain
            instructions for the model: once it was read, calls to the weather server are asked about too."""
        )
        self.screen.lines(f"you: {REQUEST}")
        conversation = host.conversation(model)
        words: list[str] = []
        async for event in conversation.say(REQUEST):
            if isinstance(event, TextReceived):
                words.append(event.text)
                continue
            if words:
                self.screen.lines(f"model: {''.join(words).strip()}")
                words = []
            if isinstance(event, CallProposed):
                self.screen.lines(f"model calls {event.server}/{event.tool} {event.arguments}")
            elif isinstance(event, CallFinished):
                lines = [line for line in event.preview.splitlines() if line.strip()]
                self.screen.lines("refused or failed:" if event.is_error else "done:", *(f"  {line}" for line in lines))
            elif isinstance(event, ChatNotice):
                self.screen.lines(event.text)
        if words:
            self.screen.lines(f"model: {''.join(words).strip()}")
        await conversation.aclose()
        note = (self.folder / "workspace" / "trip.md").read_text(encoding="utf-8")
        self.screen.result(f"the note now: {note.splitlines()[-1]}")

    async def be_reviewed(self, host: Host) -> None:
        """Show a sampling request of a server."""
        self.screen.say(
            """A server can use the host's model. It gets neither the API key nor the conversation. The user sees the
            request before it is sent to the model, and the answer before it is sent to the server."""
        )
        result = await host.call_tool("weather/describe", {"location": "Paris"})
        self.screen.result(result.text)

    async def be_denied(self, host: Host) -> None:
        """Show a call that a rule denies."""
        self.screen.say("A call that the policy denies is not asked about.")
        try:
            await host.call_tool("notes/delete_all")
        except PolicyDenied as denial:
            self.screen.result(f"denied: {denial.public_message}")

    def look_back(self) -> None:
        """Show the audit trail."""
        self.screen.say(
            """Everything is in the audit trail: the caller, the call, the rule or person that decided, and the
            outcome. Each line contains the hash of the line before."""
        )
        rows = [entry for entry in query(self.trail, AuditFilter()) if entry["stage"] != "ended"]
        self.screen.lines(*map(_row, rows))
        found = verify(self.trail)
        self.screen.result(f"{found.entries} entries, the chain is {'intact' if found.ok else found.reason}")


def _row(entry: dict[str, Any]) -> str:
    what = f"{entry['server']}/{entry['name']}"
    return f"{entry['stage']:7}{what:32}{entry.get('effect') or '':7}by {entry['by']}"


def find_model(screen: Screen) -> Model:
    """Return a real model if the environment contains an API key, otherwise the script."""
    choice = choose_model() if any(os.environ.get(name) for name in KEYS) else None
    if choice is not None:
        try:
            return open_model(choice)
        except TrunklineError as error:
            screen.lines(f"{choice} cannot be used ({error}); the tour uses a script instead.")
    return read_script(HERE / "script.toml")


async def main(*, interactive: bool | None = None) -> None:
    """Run all steps."""
    screen = Screen(interactive=interactive)
    with tempfile.TemporaryDirectory() as folder:
        tour, model = Tour(screen, Path(folder)), find_model(screen)
        async with Host.open(
            tour.servers,
            policy=HERE / "policy.toml",
            folder=Path(folder) / "state",
            consent=tour.consent(),
            models=[model],
            review=tour.review(),
            notice=lambda text: screen.lines(str(text)),
        ) as host:
            screen.heading("1. Servers start")
            await tour.come_up(host)
            screen.pause()
            screen.heading("2. A model calls tools, the user approves")
            await tour.let_a_model_work(host, model)
            screen.pause()
            screen.heading("3. A server uses the model, under review")
            await tour.be_reviewed(host)
            screen.pause()
            screen.heading("4. A rule denies a call")
            await tour.be_denied(host)
            screen.pause()
        screen.heading("5. The audit trail")
        tour.look_back()
        screen.pause()
        screen.heading("6. The reference servers")
        await walk(screen, Path(folder) / "workspace-of-all")
        screen.heading("What next")
        for command, what in NEXT.items():
            screen.item(command, what)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print()
