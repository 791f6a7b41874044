"""Two servers under one host, in a script: used by name, within a policy, with the user's consent."""

import asyncio
import tempfile
from pathlib import Path

from examples.hosting.servers import clock, shop
from trunkline import Host
from trunkline.errors import PolicyDenied
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest
from trunkline.types import ElicitRequestParams

POLICY = Path(__file__).with_name("policy.toml")


async def consent(question: ApprovalRequest) -> ApprovalAnswer:
    """Ask a person; this one says yes and wants to be asked again next time."""
    print(f"May {question.act.server} {question.act.name}? {dict(question.arguments or {})} - yes")
    return ApprovalAnswer(allow=True)


def answer(question: ElicitRequestParams) -> str:
    """Answer what a server asks."""
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
