"""Answers every request with its own params; ends with its input."""

import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": request.get("params")}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
