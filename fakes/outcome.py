"""How one call to an engine ended, as its caller saw it.

The same four endings exist on every lane: in process, over HTTP, against a real server.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Ending = Literal["reply", "dropped", "refused", "timeout"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One call's ending.

    `status` and `body` exist only for `reply`. `body` is the decoded JSON, or the text where the
    engine answered text/plain, or None for an empty body. `elapsed_s` is in seconds of the lane's clock.
    `value` is what SGLang's in-process Engine would have returned, where the lane has one.
    """

    ending: Ending
    status: int | None = None
    body: Any = None
    error: str = ""
    elapsed_s: float = 0.0
    value: Any = None

    @property
    def ok(self) -> bool:
        """A 200 whose body does not say success=false."""
        if self.ending != "reply" or self.status != 200:
            return False
        return not (isinstance(self.body, dict) and self.body.get("success") is False)

    @property
    def text(self) -> str:
        """What the engine said, for an error message."""
        if self.ending != "reply":
            return self.error or self.ending
        if isinstance(self.body, dict):
            error = self.body.get("error")
            nested = error.get("message") if isinstance(error, dict) else error
            return str(self.body.get("message") or nested or self.body)
        return "" if self.body is None else str(self.body)
