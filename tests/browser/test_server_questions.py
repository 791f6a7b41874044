"""What servers ask: a form that is filled in, and a sampling request that is edited and whose answer is reviewed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.async_api import expect

from tests.browser.support import journey, needs_chromium, showing, surfing, write_script

pytestmark = needs_chromium

EVERYTHING = f"{sys.executable} -m trunkline_servers.everything"


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
        text = await result.inner_text()
        assert re.search(r"Name: Ada\b", text), text
        assert re.search(r"Favorite Integer: 7\b", text), text
        assert "hero-3" in text
        window.check(api.origin)


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
        window.check(api.origin)


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
        assert "the capital of Peru" in await prompt.input_value()
        await prompt.fill("the capital of Norway")
        await window.shot("sampling")
        await window.approve("allow", within='[data-kind="sampling_request"]')
        response = await window.shown('[data-inbox][data-kind="sampling_response"]')
        answer = response.locator("textarea")
        assert await answer.input_value() == "You asked: the capital of Norway"
        await answer.fill("Oslo, after review")
        await window.approve("allow", within='[data-kind="sampling_response"]')
        await expect(window.find("[data-outcome]")).to_have_count(2)
        await window.view("calls")
        await window.find('[data-view="calls"] [data-item]').first.click()
        await window.shown("[data-result]", "Oslo, after review")
        window.check(api.origin)


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
        window.check(api.origin)
