"""What servers ask: a form that is filled in, and a sampling request that is edited and whose answer is reviewed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.async_api import expect

from tests.browser.support import (
    asking_about,
    journey,
    needs_chromium,
    showing,
    surfing,
    write_script,
)

pytestmark = needs_chromium

EVERYTHING = f"{sys.executable} -m trunkline_servers.everything"
#: Resolves with the number of cards, and how many accept an answer, as soon as one has gone: a message that is posted
#: while the document changes arrives before the next click or key can.
MOVED = """() => {
  const cards = () => [...document.querySelectorAll("[data-inbox]:not([data-outcome])")];
  const open = () => cards().filter((card) => card.querySelector("[data-action=deny]:not([disabled])"));
  const before = cards().length;
  globalThis.moved = new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => resolve([cards().length, open().length]);
    const observer = new MutationObserver(() => {
      if (cards().length === before) return;
      observer.disconnect();
      channel.port2.postMessage(0);
    });
    observer.observe(document, { subtree: true, childList: true });
  });
}"""


@journey()
async def test_a_form_is_filled_in_and_its_answer_reaches_the_server(tmp_path: Path) -> None:
    async with (
        showing("inspect", EVERYTHING, "--no-open", home=tmp_path / "home") as api,
        surfing() as surfer,
    ):
        window = await surfer.open(api.url)
        await window.pick("trigger-elicitation-request")
        await window.action("run").click()
        # It cannot be missed: there is a bar on top of the view that leads to the question.
        await (await window.shown("[data-attention]")).click()
        card = await window.shown('[data-inbox][data-kind="form"]')
        form = card.locator("form")
        # A required field that is empty, and a wrong one, are said at their place before anything is sent.
        await form.locator('[data-field="/email"]').fill("nobody")
        await form.locator('[data-action="accept"]:not([disabled])').click()
        await expect(form.locator('[data-field="/name"]')).to_have_attribute("aria-invalid", "true")
        await expect(form.locator('[data-field="/email"]')).to_have_attribute("aria-invalid", "true")
        await window.shot("form")
        await form.locator('[data-field="/name"]').fill("Ada")
        await form.locator('[data-field="/email"]').fill("ada@example.com")
        await form.locator('[data-field="/integer"]').fill("7")
        await form.locator('[data-field="/titledSingleSelectEnum"]').select_option(label="Wonder Woman")
        await form.locator('[data-action="accept"]').click()
        await window.shown('[data-inbox][data-outcome="answered"]')
        await window.view("calls")
        await window.find('[data-view="calls"] [data-item]').first.click()
        result = await window.shown("[data-result]")
        for words in (r"Name: Ada\b", r"Favorite Integer: 7\b", "hero-3"):
            await expect(result).to_contain_text(re.compile(words), use_inner_text=True)
        await window.check(api.origin)


@journey()
async def test_a_form_is_declined(tmp_path: Path) -> None:
    async with (
        showing("inspect", EVERYTHING, "--no-open", home=tmp_path / "home") as api,
        surfing() as surfer,
    ):
        window = await surfer.open(api.url)
        await window.pick("ask-twice")
        await window.action("run").click()
        await (await window.shown("[data-attention]")).click()
        await window.approve("deny")
        await window.shown('[data-inbox][data-outcome="denied"]')
        await window.page.go_back()
        await window.shown("[data-result]", "answered with decline")
        await window.check(api.origin)


@journey()
async def test_a_sampling_request_is_edited_and_its_answer_reviewed(tmp_path: Path) -> None:
    model = write_script(tmp_path, {"says": "You asked: {said}", "again": True})
    async with (
        showing("inspect", EVERYTHING, "--no-open", home=tmp_path / "home", TRUNKLINE_MODEL=model) as api,
        surfing() as surfer,
    ):
        window = await surfer.open(api.url)
        await window.pick("trigger-sampling-request")
        await window.field("/prompt").fill("the capital of Peru")
        await window.action("run").click()
        await (await window.shown("[data-attention]")).click()
        request = await window.shown('[data-inbox][data-kind="sampling_request"]')
        prompt = request.locator("textarea").last
        await expect(prompt).to_have_value(re.compile("the capital of Peru"))
        await prompt.fill("the capital of Norway")
        await window.shot("sampling")
        await window.approve("allow", within='[data-kind="sampling_request"]')
        response = await window.shown('[data-inbox][data-kind="sampling_response"]')
        answer = response.locator("textarea")
        await expect(answer).to_have_value("You asked: the capital of Norway")
        await answer.fill("Oslo, after review")
        await window.approve("allow", within='[data-kind="sampling_response"]')
        await expect(window.find("[data-outcome]")).to_have_count(2)
        await window.view("calls")
        await window.find('[data-view="calls"] [data-item]').first.click()
        await window.shown("[data-result]", "Oslo, after review")
        await window.check(api.origin)


@journey()
async def test_what_the_model_answered_can_be_withheld(tmp_path: Path) -> None:
    model = write_script(tmp_path, {"says": "a secret"})
    async with (
        showing("inspect", EVERYTHING, "--no-open", home=tmp_path / "home", TRUNKLINE_MODEL=model) as api,
        surfing() as surfer,
    ):
        window = await surfer.open(api.url)
        await window.pick("trigger-sampling-request")
        await window.field("/prompt").fill("anything")
        await window.action("run").click()
        await window.view("inbox")
        await window.approve("allow", within='[data-kind="sampling_request"]')
        await window.approve("deny", within='[data-kind="sampling_response"]')
        await expect(window.find("[data-outcome]")).to_have_count(2)
        calls = await api.until("/state", lambda state: state["calls"][0]["state"] != "running")
        assert "a secret" not in str(calls)
        await window.check(api.origin)


@journey()
async def test_cards_that_have_just_moved_accept_no_answer(tmp_path: Path) -> None:
    async with asking_about("create_directory", tmp_path) as (api, surfer, folder):
        await api.ready("filesystem")
        for name in ("a", "b", "c"):
            call = {"kind": "tool", "id": "filesystem/create_directory", "arguments": {"path": str(folder / name)}}
            await api.request("POST", "/calls", call)
        await api.until("/state", lambda state: len(state["inbox"]) == 3)
        window = await surfer.open(f"{api.origin}/inbox#token={api.token}")
        await expect(window.find('[data-inbox] [data-action="deny"]:not([disabled])')).to_have_count(3)
        await window.page.evaluate(MOVED)
        await window.approve("deny")
        # A second click that was meant for the first card finds another one in its place.
        assert await window.page.evaluate("moved") == [2, 0]
        await window.approve("deny")
        await window.approve("deny")
        await expect(window.find('[data-inbox][data-outcome="denied"]')).to_have_count(3)
        assert not any(folder.iterdir())
        await window.check(api.origin)
