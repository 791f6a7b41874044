"""What people do less often: rules from past calls, comparing messages, adding servers, large forms, attachments."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path

from playwright.async_api import Route, expect

from tests.browser.support import journey, needs_chromium, server_entry, showing, surfing, write_config, write_script

pytestmark = needs_chromium

FORM_SERVER = """
from typing import Any
from trunkline import Server

server = Server("forms")
SCHEMA = {
    "type": "object",
    "required": ["where", "tags", "size"],
    "properties": {
        "where": {
            "oneOf": [
                {"title": "city", "type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
                {"title": "point", "type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}},
            ]
        },
        "tags": {"type": "array", "items": {"type": "string"}},
        "size": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "days": {"type": "array", "items": {"enum": ["mon", "tue", "wed"]}},
        "day": {"type": "string", "format": "date"},
        "picture": {"type": "string", "contentEncoding": "base64"},
        "more": {"type": "object", "additionalProperties": {"type": "string"}},
        "level": {"$ref": "#/$defs/level"},
    },
    "$defs": {"level": {"type": "integer", "minimum": 1, "maximum": 5}},
}

async def echo(
    where: Any, tags: Any, size: Any, days: Any = None, day: Any = None, picture: Any = None, more: Any = None,
    level: Any = None,
) -> str:
    return "done"

server.add_tool(echo, name="echo", description="Return the arguments.", input_schema=SCHEMA)

@server.resource("note://today")
async def note() -> str:
    return "It rains."

@server.resource("note://{day}")
async def note_of(day: str) -> str:
    return f"Nothing on {day}."

@server.prompt
async def plan(day: str) -> str:
    return f"Plan {day}."

server.run()
"""


#: Has a large file that takes long to read: it is read when the test says so.
HELD_FILE = """() => {
  const read = FileReader.prototype.readAsDataURL;
  FileReader.prototype.readAsDataURL = function (file) {
    globalThis.readFile = () => read.call(this, file);
  };
}"""


def form_server(folder: Path) -> dict[str, object]:
    """Return the entry of a server with a large form."""
    file = folder / "forms.py"
    file.write_text(FORM_SERVER)
    return {"command": sys.executable, "args": [str(file)]}


@journey()
async def test_a_large_form_is_filled_in_with_every_kind_of_field(tmp_path: Path) -> None:
    picture = tmp_path / "picture.bin"
    picture.write_bytes(b"\x00\x01")
    config = write_config(tmp_path, forms=form_server(tmp_path))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("forms")
        window = await surfer.open(f"{api.origin}/tools/forms%2Fecho#token={api.token}")
        await window.field("/where/city").wait_for()
        # An alternative, and what is missing in it.
        await window.find("[role=tab]").filter(has_text="point").click()
        await window.action("run").click()
        await window.shown('[role=group][aria-label="size"] .problem', "Required")
        await window.find('[role=group][aria-label="size"] [data-action=add]').click()
        await window.field("/size").fill("large")
        await window.field("/where/x").fill("abc")
        await window.shown(".problem", "Must be a number")
        await window.field("/where/x").fill("2.5")
        for number, word in enumerate(("one", "two", "three")):
            await window.find('[role=group][aria-label="tags"] [data-action=add]').last.click()
            await window.field(f"/tags/{number}").fill(word)
        await window.find('[aria-label="Remove tags 2"]').click()
        for day in ("mon", "wed"):
            await window.find(".chip").filter(has_text=day).click()
        await window.field("/day").fill("2026-02-03")
        await window.field("/picture").set_input_files(picture)
        await window.shown(".field-value", "2 B")
        await window.find('[role=group][aria-label="more"] [data-action=add]').click()
        await window.find('[role=group][aria-label="more"] [data-action=add]').last.click()
        await window.find('[role=group][aria-label="more"] .entry input').first.fill("colour")
        await window.find('[role=group][aria-label="more"] .entry input').first.blur()
        await window.field("/more/colour").fill("blue")
        await window.field("/level").fill("9")
        await window.action("run").click()
        await window.shown(".problem", "At most 5")
        await window.field("/level").fill("4")
        await window.shot("large-form")
        # The same as JSON.
        await window.find('[data-tab="json"]').first.click()
        shown = json.loads(await window.find('textarea[aria-label="Arguments"]').input_value())
        await window.action("run").click()
        await window.shown('[data-call][data-state="done"]')
        [call] = (await api.request("GET", "/calls"))["calls"]
        wanted = {
            "where": {"x": 2.5},
            "tags": ["one", "three"],
            "size": "large",
            "days": ["mon", "wed"],
            "day": "2026-02-03",
            "picture": base64.b64encode(picture.read_bytes()).decode(),
            "more": {"colour": "blue"},
            "level": 4,
        }
        assert shown == wanted
        assert call["arguments"] == wanted
        await window.check(api.origin)


@journey()
async def test_what_is_filled_in_while_a_file_is_read_is_kept(tmp_path: Path) -> None:
    picture = tmp_path / "picture.bin"
    picture.write_bytes(b"\x00\x01")
    config = write_config(tmp_path, forms=form_server(tmp_path))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("forms")
        window = await surfer.open(f"{api.origin}/tools/forms%2Fecho#token={api.token}")
        await window.field("/where/city").wait_for()
        await window.page.evaluate(HELD_FILE)
        await window.field("/picture").set_input_files(picture)
        await window.field("/where/city").fill("Oslo")
        await window.page.evaluate("readFile()")
        await window.shown(".field-value", "2 B")
        await expect(window.field("/where/city")).to_have_value("Oslo")
        await window.check(api.origin)


@journey()
async def test_a_past_call_becomes_a_rule_that_is_explained_and_tested(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("# Ours\n")
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    arguments = ("console", "-c", config, "--policy", str(policy), "--no-open")
    async with showing(*arguments, home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("time")
        await api.call("time/get_current_time", {"timezone": "UTC"})
        window = await surfer.open(f"{api.origin}/audit#token={api.token}")
        await window.find("table.audit tbody button").first.click()
        await window.action("why").click()
        await window.shown(".decision", "the server is not trusted")
        await window.action("rule").click()
        await expect(window.find(".opened textarea")).to_have_value(re.compile("get_current_time"))
        async with window.glimpse(".toast", "Added to the policy"):
            await window.action("save").click()
        assert "get_current_time" in policy.read_text()
        await window.view("policy")
        await window.field("/id").fill("time/get_current_time")
        await window.field("/arguments").fill('{"timezone": "UTC"}')
        await window.action("why").click()
        await expect(await window.shown(".decision")).to_contain_text("allow")
        await window.action("test").click()
        await window.shown(".card", "The policy has no tests")
        test = '[[test]]\nname = "other zones ask"\nserver = "time"\ntool = "get_current_time"\nexpect = "ask"\n'
        source = window.find(".source textarea")
        await source.fill(await source.input_value() + test)
        await window.action("test").click()
        await window.shown(".card", "1 passed, 0 failed")
        await window.action("save").click()
        await expect(window.action("save")).to_be_disabled()
        assert test in policy.read_text()
        # The page has read the file again: what is saved next is a change of that.
        await expect(source).to_have_value(re.compile("other zones ask"))
        await source.fill("[[rule]]\neffect = 1\n")
        await window.action("save").click()
        await window.shown(".problems .tag.bad")
        await window.check(api.origin, errors=["400", "422"])


@journey()
async def test_messages_are_sent_again_compared_and_saved(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("time")
        for zone in ("UTC", "Europe/Oslo"):
            await api.call("time/get_current_time", {"timezone": zone})
        window = await surfer.open(f"{api.origin}/traffic#token={api.token}")
        requests = window.find("[data-row]:not(.answer)").filter(has_text="tools/call")
        await requests.first.click()
        await window.shown(".detail .card", "get_current_time")
        await window.action("diff").click()
        await requests.nth(1).click()
        await expect(await window.shown(".detail .diff")).to_contain_text("Europe/Oslo")
        await window.find(".note button").filter(has_text="Stop").click()
        await window.action("replay").click()
        await window.shown('[data-view="calls"] [data-result]')
        await window.view("traffic")
        await window.action("record").click()
        async with window.page.expect_download() as download:
            await window.find("dialog [data-action=save]").click()
        file = tmp_path / "recording.json"
        await (await download.value).save_as(file)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert "get_current_time" in json.dumps(lines)
        await window.action("clear").click()
        await window.action("confirm").click()
        await expect(requests).to_have_count(0)
        await window.check(api.origin)


@journey()
async def test_messages_that_arrive_while_the_list_is_loaded_are_listed_once(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time"))
    async with showing("console", "-c", config, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        await api.ready("time")
        window = await surfer.open(api.url)
        await window.shown("[data-item]")

        async def hold(route: Route) -> None:
            # The list has what an event has shown already.
            await api.call("time/get_current_time", {"timezone": "Europe/Oslo"})
            await window.shown("[data-row].answer")
            await route.continue_()

        await window.page.route(re.compile(r"/api/traffic\?"), hold, times=1)
        await window.view("traffic")
        await window.shown("[data-row]", "tools/list")
        shown = await window.find("[data-row]").evaluate_all("(rows) => rows.map((row) => row.dataset.row)")
        assert len(shown) == len(set(shown)), shown
        await window.check(api.origin)


@journey()
async def test_servers_are_imported_added_from_the_registry_edited_checked_and_removed(tmp_path: Path) -> None:
    other = tmp_path / "user" / ".cursor" / "mcp.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({"mcpServers": {"clock": server_entry("trunkline_servers.time")}}))
    registry = tmp_path / "server.json"
    package = {
        "registryType": "pypi",
        "identifier": "mcp-server-none",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
    }
    registry.write_text(
        json.dumps({"name": "io.example/none", "description": "Nothing.", "version": "1.0.0", "packages": [package]})
    )
    config = write_config(tmp_path)
    home = tmp_path / "home"
    arguments = ("console", "-c", config, "--no-open")
    async with showing(*arguments, home=home, HOME=str(tmp_path / "user")) as api, surfing() as surfer:
        window = await surfer.open(f"{api.origin}/servers#token={api.token}")
        await window.shown(".empty", "No servers yet")
        await window.action("import").click()
        await (await window.shown("dialog label", "clock")).click()
        await window.find("dialog [data-action=import]").click()
        await api.ready("clock")
        await (await window.shown('[data-item="clock"] h2 a')).click()
        await window.action("doctor").click()
        await window.shown(".checks li", "handshake")
        await window.action("edit").click()
        entry = json.loads(await window.field("/entry").input_value())
        await window.field("/entry").fill(json.dumps({**entry, "args": [*entry["args"], "--local-timezone", "UTC"]}))
        await window.action("save").click()
        await window.shown(".card .code", "--local-timezone")
        assert "--local-timezone" in (tmp_path / "mcp.json").read_text()
        await window.action("remove").click()
        await window.action("confirm").click()
        await window.shown(".empty", "No servers yet")
        await window.action("add").click()
        await window.find('dialog [data-tab="registry"]').click()
        await window.find('dialog input[type="file"]').set_input_files(registry)
        await window.shown("dialog .code", "mcp-server-none")
        await window.shot("registry")
        await window.check(api.origin)


@journey()
async def test_a_resource_and_a_prompt_are_attached_to_a_message(tmp_path: Path) -> None:
    model = write_script(tmp_path, {"says": "Take an umbrella.", "again": True})
    config = write_config(tmp_path, forms=form_server(tmp_path))
    arguments = ("console", "-c", config, "--no-open")
    async with showing(*arguments, home=tmp_path / "home", TRUNKLINE_MODEL=model) as api, surfing() as surfer:
        await api.ready("forms")
        window = await surfer.open(f"{api.origin}/chat#token={api.token}")
        await window.action("attach").click()
        await (await window.shown("dialog [data-item]", "note")).click()
        await window.find(".composer .chip").wait_for()
        await window.action("attach").click()
        await window.find('dialog input[type="search"]').fill("plan")
        await (await window.shown("dialog [data-item]", "plan")).click()
        await window.field("/day").fill("Sunday")
        await window.find("dialog [data-action=attach]").click()
        await window.action("send").click()
        await window.shown(".turn.model", "Take an umbrella.")
        await window.shown(".turn.user .chip", "today")
        # A template is filled in and read; a resource is followed.
        await window.page.goto(f"{api.origin}/resources/forms%2Fnote%3A%2F%2F%7Bday%7D")
        await window.field("/day").fill("Monday")
        await window.action("run").click()
        await window.shown("[data-result]", "Nothing on Monday.")
        await window.page.goto(f"{api.origin}/resources/forms%2Fnote%3A%2F%2Ftoday")
        await window.action("run").click()
        await window.shown("[data-result]", "It rains.")
        await window.check(api.origin)
