"""What every kind of row has in common, and the marks on its fields."""

from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict

AUDIT: Final = "audit"
"""On fields that say how a row came about: no stage reads them, no digest counts them."""

JSON: Final = "json"
Json = Annotated[str, JSON]  # a JSON object as text


class Row(BaseModel):
    """One row of a table. `None` is NULL in SQL; NaN and infinities are never stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]]
