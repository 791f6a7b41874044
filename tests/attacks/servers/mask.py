"""A server that is whatever a file says at the moment: what it lists, what it answers, and what it announces."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.host.servers.plain import Plain

__all__ = ["Mask"]


class Mask(Plain):
    """Reads the file anew for every request, so that whoever writes it changes the server under the host's feet."""

    def __init__(self, path: str) -> None:
        """Take the file."""
        self._path = Path(path)

    @property
    def face(self) -> dict[str, Any]:
        """What the file says now."""
        shown: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        return shown

    def on_initialize(self, params: dict[str, Any]) -> Any:
        """Say that there is everything, under a name of its own choosing."""
        face = self.face
        kinds = {kind: {"listChanged": True} for kind in ("tools", "prompts", "resources")}
        info = face.get("info", {"name": "mask", "version": "1"})
        said = {"instructions": face["instructions"]} if "instructions" in face else {}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {**kinds, "completions": {}, "logging": {}},
            "serverInfo": info,
            **said,
        }

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List what the file has."""
        return {"tools": self.face.get("tools", [])}

    def on_prompts_list(self, params: dict[str, Any]) -> Any:
        """List what the file has."""
        return {"prompts": self.face.get("prompts", [])}

    def on_resources_list(self, params: dict[str, Any]) -> Any:
        """List what the file has."""
        return {"resources": self.face.get("resources", [])}

    def on_resources_templates_list(self, params: dict[str, Any]) -> Any:
        """List what the file has."""
        return {"resourceTemplates": self.face.get("templates", [])}

    def on_logging_setLevel(self, params: dict[str, Any]) -> Any:
        """Agree."""
        return {}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Say what the file says, log and announce what it wants, and count the call."""
        face, name = self.face, params["name"]
        with self._path.with_suffix(".calls").open("a", encoding="utf-8") as calls:
            calls.write(json.dumps(params) + "\n")
        for line in face.get("logs", []):
            self.send({"method": "notifications/message", "params": {"level": "warning", "data": line}})
        if name in face.get("announces", []):
            self.send({"method": "notifications/tools/list_changed"})
        failure = face.get("errors", {}).get(name)
        if failure is not None:
            self.send_error(failure)
        return face.get("results", {}).get(name, {"content": [{"type": "text", "text": "done"}]})

    def on_prompts_get(self, params: dict[str, Any]) -> Any:
        """Say what the file says."""
        text = self.face.get("prompt", "hello")
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    def on_resources_read(self, params: dict[str, Any]) -> Any:
        """Say what the file says."""
        return {"contents": [{"uri": params["uri"], "text": self.face.get("text", "words")}]}

    def on_completion_complete(self, params: dict[str, Any]) -> Any:
        """Propose what the file says."""
        return {"completion": {"values": self.face.get("values", ["one"])}}

    def send_error(self, failure: dict[str, Any]) -> None:
        """Fail the request."""
        raise Failed(failure)

    def run(self) -> None:
        """Serve until the input ends."""
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            try:
                outcome = {"result": self.answer(message["method"], message.get("params") or {})}
            except Failed as failure:
                outcome = {"error": failure.error}
            except LookupError:
                outcome = {"error": {"code": -32601, "message": "Method not found"}}
            self.send({"id": message["id"], **outcome})


class Failed(Exception):
    """Answer with this error."""

    def __init__(self, error: dict[str, Any]) -> None:
        """Take the error object."""
        super().__init__("failed")
        self.error = error


if __name__ == "__main__":
    sys.stderr.write(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")).get("stderr", ""))
    sys.stderr.flush()
    Mask(sys.argv[1]).run()
