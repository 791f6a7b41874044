"""The shop on Trunkline. Arguments: the number of workers, the port."""

import sys

from benchmarks.servers.shop_tools import TOOLS
from trunkline import Server

server = Server("shop", tools=TOOLS)

if __name__ == "__main__":
    workers, port = map(int, sys.argv[1:])
    server.run("http", host="127.0.0.1", port=port, path="/mcp", workers=workers)
