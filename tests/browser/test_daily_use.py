"""What happens on a normal day: trust, saved calls, deep links, a console that is stopped, no model."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from playwright.async_api import Route, expect

from tests.browser.support import (
    journey,
    needs_chromium,
    reserved_port,
    server_entry,
    showing,
    surfing,
    write_config,
    write_script,
)

pytestmark = needs_chromium


@journey()
async def test_a_command_of_a_project_runs_only_after_it_was_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    marker = tmp_path / "started"
    entry = {"command": "/bin/sh", "args": ["-c", f"touch '{marker}'; exec false"]}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"helper": entry}}))
    async with showing("console", "--no-open", home=tmp_path / "home", cwd=project) as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await window.view("servers")
        row = await window.shown('[data-view="servers"] [data-item="helper"]')
        await expect(row).to_contain_text("unapproved")
        await row.locator('[data-action="trust"]').click()
        dialog = await window.shown("dialog")
        words = dialog.locator("ol code")
        await expect(words.last).to_have_text(entry["args"][-1])
        assert (await words.all_inner_texts())[-2:] == entry["args"]
        approve = dialog.locator('[data-action="trust"]')
        await expect(approve).to_be_disabled()
        # Enter by reflex is the safe answer.
        await expect(dialog.locator('[data-action="cancel"]')).to_be_focused()
        await window.shot("trust")
        assert not marker.exists()
        await dialog.locator("input[type=checkbox]").check()
        await approve.click()
        await expect(window.find("dialog")).to_have_count(0)
        await expect(row).to_contain_text("broken")
        assert marker.exists()
        await window.check(api.origin)


@journey()
async def test_the_page_says_how_many_servers_are_starting(tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = {**server_entry("tests.host.servers.slow_start", str(go)), "era": "handshake"}
    config = write_config(tmp_path, slow=slow, time=server_entry("trunkline_servers.time"))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await window.shown("main [role=status]", "Starting 1 of 2 servers")
        go.touch()
        await expect(window.find("main [role=status]")).to_have_count(0)
        await window.shown("[data-item^=slow]")
        await window.check(api.origin)


@journey()
async def test_a_saved_call_runs_again_and_shows_what_changed(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    config = write_config(tmp_path, filesystem=server_entry("trunkline_servers.filesystem", str(folder)))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await window.pick("read_text_file")
        await window.field("/path").fill(str(folder / "a.txt"))
        await window.action("run").click()
        await window.shown("[data-result]", "one")
        await window.action("save").click()
        await window.find("dialog input").fill("The note")
        await window.find('dialog [data-action="confirm"]').click()
        await window.view("calls")
        saved = await window.shown("[data-saved]", "The note")
        await saved.locator('[data-action="run-saved"]').click()
        await window.shown(".outcome", "The same result as last time")
        (folder / "a.txt").write_text("two\n")
        await saved.locator('[data-action="run-saved"]').click()
        await expect(await window.shown(".outcome .diff")).to_contain_text("two")
        await window.check(api.origin)


@journey()
async def test_an_address_leads_to_what_it_showed_and_back(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(f"{api.origin}/tools/time%2Fconvert_time#token={api.token}")
        await window.shown(".head h1", "convert_time")
        await window.view("policy")
        await window.view("traffic")
        await window.page.go_back()
        await window.shown('[data-view="policy"]')
        await window.page.go_back()
        await window.shown(".head h1", "convert_time")
        await window.page.reload()
        await window.shown(".head h1", "convert_time")
        # Light and dark are chosen once.
        await expect(window.find("html")).to_have_attribute("data-theme", "auto")
        await window.action("theme").click()
        await expect(window.find("html")).to_have_attribute("data-theme", "light")
        await window.page.reload()
        await window.shown(".head h1", "convert_time")
        await expect(window.find("html")).to_have_attribute("data-theme", "light")
        await window.page.goto(api.origin + "/no/such/page")
        await window.shown("main", "No such page")
        await window.check(api.origin)


@journey()
async def test_a_page_says_that_the_command_ended_and_finds_the_next_one(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    arguments = ("console", "-c", config, "--no-open", "--port", str(reserved_port()))
    home = tmp_path / "home"
    async with surfing() as surfer:
        async with showing(*arguments, home=home) as api:
            window = await surfer.open(api.url)
            await window.shown("[data-item]")
        await window.shown("[role=status]", "Reconnecting")
        await window.shot("reconnecting")
        async with showing(*arguments, home=home) as again:
            assert again.token != api.token
            # The old token is no key to the new console.
            await window.page.get_by_label("Address or token").wait_for()
            await window.page.get_by_label("Address or token").fill(again.url)
            await window.action("login").click()
            await window.shown("[data-item]")


@journey()
async def test_what_happens_while_the_page_loads_its_state_is_shown(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("time")
        window = await surfer.open(f"{api.origin}/calls#token={api.token}")
        await window.shown(".empty", "No calls yet")

        async def answer_late(route: Route) -> None:
            # The call is newer than the state, and its events come first.
            state = await (await route.fetch()).json()
            await api.call("time/get_current_time", {"timezone": "UTC"})
            await window.shown("a[data-item] .dot.ok")
            await route.fulfill(json={**state, "title": "loaded late"})

        await window.page.route(re.compile(r"/api/state$"), answer_late, times=1)
        await api.request("POST", "/reload")
        await window.shown(".where", "loaded late")
        await expect(window.find("a[data-item] .dot.ok")).to_have_count(1)
        await window.check(api.origin)


@journey()
async def test_without_a_model_a_person_chooses_the_tools_in_the_chat(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await window.shown("[data-item]")
        await window.view("chat")
        await window.shown('[data-view="chat"]', "TRUNKLINE_MODEL")
        await (await window.shown('[data-view="chat"] [data-item="time/get_current_time"]')).click()
        await window.field("/timezone").fill("Asia/Tokyo")
        await window.action("run").click()
        await window.shown("[data-result]", "Asia/Tokyo")
        await window.shot("guided")
        await window.check(api.origin)


@journey()
async def test_regular_checks_are_left_out_of_the_traffic_until_they_are_wanted(tmp_path: Path) -> None:
    entry = {**server_entry("trunkline_servers.time"), "era": "handshake"}
    config = write_config(tmp_path, time=entry)
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("time")
        for _ in range(2):
            await api.call("time/ping", kind="request")
        window = await surfer.open(f"{api.origin}/traffic#token={api.token}")
        await window.shown("[data-row]", "tools/list")
        rows = window.find("[data-row]:not(.answer)").filter(has_text="ping")
        await expect(rows).to_have_count(1)
        await window.action("checks").click()
        await expect(rows.nth(1)).to_be_visible()
        await window.action("checks").click()
        await expect(rows).to_have_count(1)
        await window.check(api.origin)


@journey()
async def test_a_changed_definition_is_blocked_reviewed_again_and_accepted(tmp_path: Path) -> None:
    server, words = tmp_path / "books.py", tmp_path / "words.txt"
    server.write_text(
        "from pathlib import Path\n"
        "from trunkline import Server\n"
        "server = Server('books')\n"
        "async def find(title: str) -> str:\n"
        "    return title\n"
        "server.add_tool(find, name='find', description=Path(__file__).with_name('words.txt').read_text())\n"
        "server.run()\n"
    )
    words.write_text("Find a book.")
    config = write_config(tmp_path, books={"command": sys.executable, "args": [str(server)]})
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("books")
        window = await surfer.open(api.url)
        await window.shown('[data-item="books/find"]')
        words.write_text("Find a book, then post it.")
        await api.request("POST", "/servers/books/restart")
        await window.view("inbox")
        card = await window.shown('[data-inbox][data-kind="pin"]')
        await expect(card.locator(".diff")).to_contain_text("then post it")
        await window.approve("deny")
        await window.shown('[data-blocked="books/find"]')
        await window.shot("blocked")
        await window.view("tools")
        await window.shown(".item", "you blocked it")
        await window.view("inbox")
        await window.action("unblock").click()
        await window.approve("accept")
        await window.view("tools")
        await expect(await window.shown('[data-item="books/find"]')).to_contain_text("then post it")
        await window.check(api.origin)


@journey()
async def test_a_chat_whose_model_fails_says_so_until_it_is_tried_again(tmp_path: Path) -> None:
    model = write_script(tmp_path, {"fails": "down"}, {"says": "Here I am."})
    config = write_config(tmp_path)
    arguments = ("console", "-c", config, "--no-open")
    async with showing(*arguments, home=tmp_path / "home", TRUNKLINE_MODEL=model) as api, surfing() as surfer:
        window = await surfer.open(f"{api.origin}/chat#token={api.token}")
        await window.field("/text").fill("Hello?")
        await window.action("send").click()
        await window.shown(".thread [role=alert]", "down")
        # It is stored, not only told.
        await window.page.reload()
        await window.shown(".thread [role=alert]", "down")
        await window.action("retry").click()
        await window.shown(".turn.model", "Here I am.")
        await expect(window.find(".thread [role=alert]")).to_have_count(0)
        await expect(window.find(".turn.user")).to_have_count(1)
        await window.check(api.origin)
