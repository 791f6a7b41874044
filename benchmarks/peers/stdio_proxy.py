"""mcp-proxy before one server on stdio. Arguments: the port, the kind, the command as JSON, a folder."""

import json
import sys

from mcp_proxy.__main__ import main

if __name__ == "__main__":
    command = json.loads(sys.argv[3])
    sys.argv = ["mcp-proxy", "--port", sys.argv[1], "--host", "127.0.0.1", "--pass-environment", "--", *command]
    main()
