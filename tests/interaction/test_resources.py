"""Resources and templates: lists, contents, what is not there, and subscriptions to one of them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.interaction.rows import ALL, ANYWHERE, EVERYWHERE, HANDSHAKE, SINCE_2025_06, STATELESS, behaviour
from tests.interaction.servers.catalog import PIXEL
from tests.interaction.wire import Peer, Wire, make

UPDATED = "notifications/resources/updated"
PLAIN = {"uri", "name", "description", "mimeType", "annotations"}
MEMBERS = {
    "2024-11-05": PLAIN | {"size"},
    "2025-03-26": PLAIN | {"size"},
    "2025-06-18": PLAIN | {"size", "title"},
    "2025-11-25": PLAIN | {"size", "title", "icons"},
    "2026-07-28": PLAIN | {"size", "title", "icons"},
}


async def contents(peer: Peer, uri: str) -> Any:
    """Read a resource and give its first contents."""
    return (await peer.result("resources/read", {"uri": uri}))["contents"][0]


@behaviour("resources.list", "2025-11-25 server/resources#listing-resources")
async def test_resources_are_listed_by_uri_and_templates_are_not_among_them(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        uris = [resource["uri"] for resource in (await peer.result("resources/list"))["resources"]]
        assert uris == ["note://one", "image://logo", "note://locked", "note://broken"]


@behaviour("resources.list-members", "2025-11-25 server/resources#resource")
async def test_a_resource_is_listed_with_the_members_that_the_revision_has(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        resource = (await peer.result("resources/list"))["resources"][0]
        assert set(resource) == MEMBERS[wire.revision]


@behaviour("resources.annotations-modified", "2025-06-18 server/resources#annotations", SINCE_2025_06)
async def test_annotations_say_when_a_resource_changed(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        annotations = (await peer.result("resources/list"))["resources"][0]["annotations"]
        assert annotations == {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}


@behaviour("resources.annotations-modified-absent", "2025-03-26 schema#annotations", ALL[:2])
async def test_annotations_do_not_say_when_a_resource_changed_where_they_cannot(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        annotations = (await peer.result("resources/list"))["resources"][0]["annotations"]
        assert annotations == {"audience": ["user"], "priority": 0.5}


@behaviour("resources.templates", "2025-11-25 server/resources#resource-templates")
async def test_templates_are_listed_apart(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        templates = (await peer.result("resources/templates/list"))["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["city://{name}/map", "file:///{+path}"]
        assert (templates[0]["name"], templates[0]["mimeType"]) == ("map", "text/plain")


@behaviour("resources.read-text", "2025-11-25 server/resources#reading-resources", transports=ANYWHERE)
async def test_a_text_is_read_with_its_uri_and_type(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert await contents(peer, "note://one") == {"uri": "note://one", "mimeType": "text/plain", "text": "one"}


@behaviour("resources.read-blob", "2025-11-25 server/resources#binary-content")
async def test_bytes_are_read_as_base64(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        found = await contents(peer, "image://logo")
        assert (found["mimeType"], base64.b64decode(found["blob"], validate=True)) == ("image/png", PIXEL)
        assert "text" not in found


@behaviour("resources.read-template", "2025-11-25 server/resources#resource-templates")
@pytest.mark.parametrize(("uri", "city"), [("city://Oslo/map", "Oslo"), ("city://S%C3%A3o%20Paulo/map", "São Paulo")])
async def test_a_uri_of_a_template_is_read_with_its_variables_decoded(wire: Wire, uri: str, city: str) -> None:
    async with wire.open("catalog") as peer:
        found = await contents(peer, uri)
        assert (found["uri"], found["text"]) == (uri, f"map of {city}")


UNKNOWN = ["note://none", "city://Oslo/plan", "", "not a uri", "NOTE://one"]


@behaviour("resources.not-found", "2025-11-25 server/resources#error-handling", HANDSHAKE)
async def test_an_unknown_resource_has_an_error_of_its_own(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        errors = [await peer.error("resources/read", {"uri": uri}) for uri in UNKNOWN]
        assert [(error["code"], error["data"]["uri"]) for error in errors] == [(-32002, uri) for uri in UNKNOWN]


@behaviour("resources.not-found-invalid", "2026-07-28 server/resources#error-handling", STATELESS)
async def test_an_unknown_resource_is_a_case_of_invalid_params(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        errors = [await peer.error("resources/read", {"uri": uri}) for uri in UNKNOWN]
        assert [(error["code"], error["data"]["uri"]) for error in errors] == [(-32602, uri) for uri in UNKNOWN]


@behaviour("resources.traversal", "2026-07-28 server/resources#security-considerations")
async def test_a_uri_that_climbs_out_of_its_template_is_rejected(wire: Wire) -> None:
    uris = ["file:///a/../../etc/passwd", "file:///%2e%2e/secret", "file:////etc/passwd", "city://..%2F..%2Fx/map"]
    async with wire.open("catalog") as peer:
        codes = {uri: (await peer.error("resources/read", {"uri": uri}))["code"] for uri in uris}
        assert {uri: code for uri, code in codes.items() if code not in (-32002, -32602)} == {}


@behaviour("resources.failure-wanted", "2025-11-25 server/resources#error-handling")
async def test_a_resources_own_error_is_reported(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error("resources/read", {"uri": "note://locked"})
        assert (error["code"], error["message"]) == (-32603, "the note is locked")


@behaviour("resources.failure-unexpected", "2025-11-25 server/resources#error-handling")
async def test_an_unexpected_failure_is_internal_and_has_no_internal_details(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error("resources/read", {"uri": "note://broken"})
        assert (error["code"], "hunter2" in json.dumps(error)) == (-32603, False)


# --- subscriptions to one resource, where they are requests of their own ---------------------------------------------


@behaviour("resources.subscribe", "2025-11-25 server/resources#subscriptions", HANDSHAKE, EVERYWHERE)
async def test_a_subscriber_is_notified_of_a_change_by_uri(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        assert await peer.result("resources/subscribe", {"uri": "note://one"}) == {}
        await peer.call("touch", {"uri": "note://one"})
        await peer.settle()
        assert peer.notices(UPDATED) == [{"uri": "note://one"}]


@behaviour("resources.subscribe-twice", "2025-11-25 server/resources#subscriptions", HANDSHAKE)
async def test_a_client_that_subscribed_twice_is_notified_once(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.result("resources/subscribe", {"uri": "note://one"})
        await peer.result("resources/subscribe", {"uri": "note://one"})
        await peer.call("touch", {"uri": "note://one"})
        await peer.settle()
        assert len(peer.notices(UPDATED)) == 1


@behaviour("resources.subscribe-others", "2025-11-25 server/resources#subscriptions", HANDSHAKE)
async def test_a_subscriber_is_not_notified_of_other_resources(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.result("resources/subscribe", {"uri": "note://one"})
        await peer.call("touch", {"uri": "note://two"})
        await peer.settle()
        assert peer.notices(UPDATED) == []


@behaviour("resources.subscribe-unknown", "2025-11-25 server/resources#error-handling", HANDSHAKE)
async def test_a_subscription_to_an_unknown_resource_is_rejected(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        assert (await peer.error("resources/subscribe", {"uri": "note://none"}))["code"] == -32002


@behaviour("resources.subscribe-own", "2025-11-25 server/resources#subscriptions", HANDSHAKE, ANYWHERE)
async def test_a_subscription_belongs_to_the_client_that_made_it(wire: Wire) -> None:
    server = make("changing")
    async with wire.open(server) as one, wire.open(server) as other:
        await one.result("resources/subscribe", {"uri": "note://one"})
        await other.call("touch", {"uri": "note://one"})
        await one.settle()
        await other.settle()
        assert (one.notices(UPDATED), other.notices(UPDATED)) == ([{"uri": "note://one"}], [])


@behaviour("resources.unsubscribe", "2025-11-25 schema#unsubscriberequest", HANDSHAKE, ANYWHERE)
async def test_an_unsubscribed_client_is_not_notified(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.result("resources/subscribe", {"uri": "note://one"})
        assert await peer.result("resources/unsubscribe", {"uri": "note://one"}) == {}
        await peer.call("touch", {"uri": "note://one"})
        await peer.settle()
        assert peer.notices(UPDATED) == []
