"""A walk through a host: servers come up, a model uses them, a person is asked, and everything is written down.

Run it with ``make run`` or ``python -m examples.host_tour.tour``. On a terminal you are the person who is asked;
elsewhere the tour answers by itself and waits for nobody. The model is a script, unless a key of a real one is in the
environment.
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
from trunkline.host.audit.reader import AuditFilter, query, verify
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest, Prompter
from trunkline.host.chat.events import CallFinished, CallProposed, ChatNotice, TextReceived
from trunkline.host.models.interface import Model
from trunkline.host.models.scripted import read_script
from trunkline.host.models.selection import choose_model, open_model
from trunkline.host.server_requests.sampling.handler import SamplingDecision, SamplingPrompter, SamplingReview

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REQUEST = "Get me ready for my trip: look at my notes and at the weather, and write down whether I need an umbrella."
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TRUNKLINE_MODEL")
NEXT = {
    ". .venv/bin/activate": "first, in each terminal: the commands below are in that folder",
    "python -m examples.code_review": "a host that reviews a pull request, and asks you before it comments",
    "trunkline chat -c examples/hosting/mcp.json": "talk to a model that has tools, or call them yourself",
    "trunkline serve -c examples/hosting/mcp.json --http 8000": "many servers, served as one",
    "make tour": "the protocol itself, message by message",
}


class Tour:
    """One host, and the reader who looks on."""

    def __init__(self, screen: Screen, folder: Path) -> None:
        """Take where it is shown, and a folder for everything that is written."""
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

    # --- the person --------------------------------------------------------------------------------------------------

    def consent(self) -> Prompter:
        """Give who is asked: you, in this terminal, or the tour itself."""
        if self.screen.interactive:
            from trunkline.cli.ui.approvals import terminal_prompter

            face = terminal_prompter()
            if face is not None:
                return face

        async def yes(question: ApprovalRequest) -> ApprovalAnswer:
            self.screen.lines(
                f"? May {question.act.server}/{question.act.name} be called?",
                f"  arguments: {dict(question.arguments or {})}",
                f"  asked because {question.decision.reason} ({question.decision.rule})",
                "> yes, once",
            )
            return ApprovalAnswer(allow=True)

        return yes

    def review(self) -> SamplingPrompter:
        """Give who looks at what servers ask a model."""
        if self.screen.interactive:
            from trunkline.cli.ui.reviews import terminal_sampling_review

            face = terminal_sampling_review()
            if face is not None:
                return face

        async def look(review: SamplingReview) -> SamplingDecision:
            if review.stage == "request":
                said = " ".join(str(getattr(each.content, "text", "")) for each in review.request.messages)
                self.screen.lines(
                    f"? {review.server} asks a model: {said}",
                    f"  it would be {review.model}, at most {review.max_tokens} tokens",
                    "> yes",
                )
            else:
                self.screen.lines("? may the answer go to the server?", "> yes")
            return SamplingDecision(allow=True)

        return look

    # --- the steps ---------------------------------------------------------------------------------------------------

    async def come_up(self, host: Host) -> None:
        """See the servers come up."""
        self.screen.say(
            """Two servers run side by side, each a process of its own, watched and started again if it crashes. What
            they offer is one catalog; every name says whose it is."""
        )
        self.screen.lines(*(f"{each.name}: {each.state}, speaks {each.era}, pid {each.pid}" for each in host.status()))
        self.screen.lines(*(f"{id}: {item.description}" for id, item in host.catalog.tools.items()))

    async def let_a_model_work(self, host: Host, model: Model) -> None:
        """Give a model the tools."""
        self.screen.say(
            f"""A model ({model.name}) is given the tools and a request. The policy allows reading notes and asking for
            the weather; it does not name writing a note, so a person is asked first. And what a note says could be
            meant to lead the model astray: once it was read, the weather is asked about too."""
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
        """Let a server ask for a model."""
        self.screen.say(
            """A server can ask the host's model for something, too. It gets neither the key nor the conversation: the
            request is shown to a person before it leaves, and the answer before it goes back."""
        )
        result = await host.call_tool("weather/describe", {"location": "Paris"})
        self.screen.result(result.text)

    async def be_denied(self, host: Host) -> None:
        """Run into a rule."""
        self.screen.say("What the policy denies is not asked about, whoever wants it.")
        try:
            await host.call_tool("notes/delete_all")
        except PolicyDenied as denial:
            self.screen.result(f"denied: {denial.public_message}")

    def look_back(self) -> None:
        """Read the trail."""
        self.screen.say(
            """All of it is in the audit trail: who wanted what, which rule or person decided, what came of it. Every
            line seals the one before."""
        )
        rows = [entry for entry in query(self.trail, AuditFilter()) if entry["stage"] != "ended"]
        self.screen.lines(*map(_row, rows))
        found = verify(self.trail)
        self.screen.result(f"{found.entries} entries, the chain is {'whole' if found.ok else found.reason}")


def _row(entry: dict[str, Any]) -> str:
    what = f"{entry['server']}/{entry['name']}"
    return f"{entry['stage']:7}{what:32}{entry.get('effect') or '':7}by {entry['by']}"


def find_model(screen: Screen) -> Model:
    """Give a real model if a key is in the environment, else the script."""
    choice = choose_model() if any(os.environ.get(name) for name in KEYS) else None
    if choice is not None:
        try:
            return open_model(choice)
        except TrunklineError as error:
            screen.lines(f"{choice} cannot be used ({error}); a script speaks in its place.")
    return read_script(HERE / "script.toml")


async def main(*, interactive: bool | None = None) -> None:
    """Walk through all steps."""
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
            screen.heading("1. Servers come up")
            await tour.come_up(host)
            screen.pause()
            screen.heading("2. A model works, a person is asked")
            await tour.let_a_model_work(host, model)
            screen.pause()
            screen.heading("3. A server asks the model, under review")
            await tour.be_reviewed(host)
            screen.pause()
            screen.heading("4. A rule says no")
            await tour.be_denied(host)
            screen.pause()
        screen.heading("5. What was done")
        tour.look_back()
        screen.pause()
        screen.heading("6. The reference servers, each asked once")
        await walk(screen, Path(folder) / "workspace-of-all")
        screen.heading("What next")
        for command, what in NEXT.items():
            screen.item(command, what)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print()
