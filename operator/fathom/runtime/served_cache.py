"""What the cluster serves changes when somebody installs something: asked for rarely."""

import asyncio
from typing import Final

from fathom.adapters.ports import Clock, KubePort
from fathom.core.cluster.served import ServedApis
from fathom.core.times import is_over

REFRESH_S: Final = 600.0
RETRY_S: Final = 15.0
"""While there is something that a busy server could not show."""


class ServedCache:
    """Discovery, at most every ten minutes as long as it is answered in full."""

    def __init__(self, kube: KubePort, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._served = ServedApis()
        self._asked_at_s = float("-inf")
        self._asking = asyncio.Lock()

    async def get(self) -> ServedApis:
        """The APIs that the cluster serves.

        Raises:
            KubeError: it could not be asked.
        """
        # A thousand loops begin at once, and one of them asks for all.
        async with self._asking:
            now_s = self._clock.now_s()
            rest_s = RETRY_S if self._served.unknown else REFRESH_S
            if is_over(self._asked_at_s, rest_s, now_s):
                self._served = (await self._kube.served()).or_before(self._served)
                self._asked_at_s = now_s
            return self._served
