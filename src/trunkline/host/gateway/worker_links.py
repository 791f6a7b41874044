"""What connects a worker of a gateway to the others: the supervisor, the broker, the store."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from trunkline.host.upstreams.broker.worker import BrokerConnection
from trunkline.host.upstreams.routing.parked_elsewhere import ParkedElsewhere
from trunkline.store.interface import Store
from trunkline.store.open import open_store
from trunkline.store.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from trunkline.host.core import HostCore
    from trunkline.host.gateway.gateway import Gateway
    from trunkline.host.gateway.worker_gateway import WorkerGateway
    from trunkline.transports.http.server.worker_process import WorkerProcess

__all__ = ["WorkerLinks"]


class WorkerLinks:
    """The links of one worker."""

    def __init__(
        self, process: WorkerProcess, broker: BrokerConnection, url: str | None, folder: RuntimeFolder
    ) -> None:
        """Set what the worker has of its supervisor, the broker, and the URL of the store.

        Without a URL the store is the one in the folder of the run.
        """
        self.process = process
        self.broker = broker
        self.url = url
        self._folder = folder
        self._parked: ParkedElsewhere | None = None

    @property
    def gateway_class(self) -> type[WorkerGateway]:
        """The class of the gateways of a worker."""
        from trunkline.host.gateway.worker_gateway import WorkerGateway

        return WorkerGateway

    def open_store(self, name: str) -> Store:
        """Return a connection to the store; ``name`` separates its keys from those of others."""
        if self.url is not None:
            return open_store(self.url, name=name)
        return self._folder.store(name)

    def share(self, gateway: Gateway) -> Store:
        """Share the sessions and changes of a gateway with other workers; return the store of its endpoint."""
        from trunkline.host.gateway.worker_gateway import WorkerGateway

        assert isinstance(gateway, WorkerGateway)
        gateway.share(self.broker, self.open_store(f"{gateway.name}/host"))
        return self.open_store(gateway.name)

    async def start(self, core: HostCore, gateways: list[Gateway]) -> None:
        """Connect, so that parked calls are found at other workers; a store that is away is connected to later.

        Raises:
            ConfigError: other workers have other keys.
        """
        if self.url is not None:
            from trunkline.server.runtime import server_store

            await asyncio.gather(*(server_store(gateway).start() for gateway in gateways))
        self._parked = ParkedElsewhere(self.open_store("trunkline/parked"), core.parking, random=os.urandom)
        await self._parked.start()

    async def aclose(self) -> None:
        """Disconnect."""
        if self._parked is not None:
            await self._parked.aclose()
