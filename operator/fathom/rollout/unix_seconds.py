"""Times that are kept in the tuning ConfigMap, where anyone may have written."""

from typing import Annotated, Final

from pydantic import Field

_YEAR_2100_S: Final = 4.1e9
UnixSeconds = Annotated[float, Field(ge=0, le=_YEAR_2100_S, allow_inf_nan=False)]
