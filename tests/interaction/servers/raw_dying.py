"""A handshake server written by hand that dies in the middle of a call, with a word on its standard error."""

from __future__ import annotations

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "tools/call":
        sys.stderr.write("the disk caught fire\n")
        sys.stderr.flush()
        sys.exit(3)
    if message.get("method") == "initialize":
        info = {"name": "dying", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
    elif message.get("method") == "ping":
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}) + "\n")
    elif "id" in message:
        error = {"code": -32601, "message": "Method not found"}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}) + "\n")
    sys.stdout.flush()
