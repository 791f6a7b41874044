"""A handshake server written by hand that writes more than messages, and tells what it was sent and started with."""

from __future__ import annotations

import json
import os
import sys

seen: list[str] = []
sys.stderr.write("chatty is starting\n" * 10_000)
sys.stderr.flush()
for line in sys.stdin:
    seen.append(line)
    message = json.loads(line)
    sys.stdout.write("this is no message\n\n")
    if message.get("method") == "initialize":
        info = {"name": "chatty", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
    elif message.get("method") == "tools/call":
        told = {"lines": len(seen), "breaks": sum(line.count("\n") for line in seen), "environment": sorted(os.environ)}
        content = [{"type": "text", "text": json.dumps(told)}]
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}}) + "\n")
    elif "id" in message:
        error = {"code": -32601, "message": "Method not found"}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}) + "\n")
    sys.stdout.flush()
