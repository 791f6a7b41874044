"""A server whose one tool answers with much: a text of escapes, of some kind and size, written without a library."""

from __future__ import annotations

import json
import sys

#: By kind, what is repeated in the JSON of the answer.
KINDS = {
    "plain": "a",
    "controls": "\\u0000",
    "mixed": "\\u001ba",
    "lines": "\\n",
    "quotes": '\\"',
    "brackets": '\\"[',
    "wide": "\\u202e",
}


def main(kind: str, size: int) -> None:
    """Answer as a server of the handshake era does."""
    information = {"name": "gushing", "version": "1"}
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": information,
        },
        "tools/list": {"tools": [{"name": "gush", "inputSchema": {"type": "object"}}]},
        "ping": {},
    }
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(asked["id"])},'
        if asked["method"] == "tools/call":
            text = KINDS[kind] * (size // len(KINDS[kind]))
            sys.stdout.write(f'{head}"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}\n')
        elif asked["method"] in results:
            sys.stdout.write(f'{head}"result":{json.dumps(results[asked["method"]])}}}\n')
        else:
            sys.stdout.write(f'{head}"error":{{"code":-32601,"message":"not known"}}}}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
