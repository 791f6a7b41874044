"""Two servers under one host, in a script: called by name, within a policy, with the user's approval."""

import asyncio
import tempfile
from pathlib import Path

from examples.hosting.servers import clock, shop
from trunkline import Host
from trunkline.errors import PolicyDenied
from trunkline.host import ApprovalAnswer, ApprovalRequest
from trunkline.types import ElicitRequestParams

POLICY = Path(__file__).with_name("policy.toml")


async def consent(request: ApprovalRequest) -> ApprovalAnswer:
    """Approve one call; a real program would ask the user."""
    print(f"May {request.act.server} {request.act.name}? {dict(request.arguments or {})} - yes")
    return ApprovalAnswer(allow=True)


def answer(question: ElicitRequestParams) -> str:
    """Answer a question of a server."""
    print(f"{question.message} - green")
    return "green"


async def main() -> None:
    """Use both servers."""
    with tempfile.TemporaryDirectory() as folder:
        async with Host.open(
            {"clock": clock, "shop": shop}, policy=POLICY, consent=consent, elicitation=answer, folder=folder
        ) as host:
            print(", ".join(host.catalog.tools))
            print((await host.call_tool("clock/now")).data)
            cost = (await host.call_tool("shop/price", {"thing": "kite"})).data
            print((await host.call_tool("shop/buy", {"thing": "kite", "amount": cost})).data)
            try:
                await host.call_tool("shop/buy", {"thing": "yacht", "amount": 5000})
            except PolicyDenied as denial:
                print(f"denied: {denial.public_message}")


if __name__ == "__main__":
    asyncio.run(main())
