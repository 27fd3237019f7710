"""What the cluster serves changes when somebody installs something: asked for rarely."""

from typing import Final

from fathom.adapters.ports import Clock, KubePort
from fathom.core.served import ServedApis

REFRESH_S: Final = 600.0


class ServedCache:
    """Discovery, at most every ten minutes."""

    def __init__(self, kube: KubePort, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._served: ServedApis | None = None
        self._asked_at_s = float("-inf")

    async def get(self) -> ServedApis:
        """The APIs that the cluster serves.

        Raises:
            KubeError: it could not be asked.
        """
        now_s = self._clock.now_s()
        if self._served is None or now_s - self._asked_at_s >= REFRESH_S:
            self._served = await self._kube.served()
            self._asked_at_s = now_s
        return self._served
