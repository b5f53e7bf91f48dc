"""Draws values of a strategy so that a seed repeats: in any process, whatever modules are loaded there.

Hypothesis mixes constants that it finds in loaded modules into what it draws, so that its own seed repeats only where
the same modules are. It lets a backend draw instead (`settings.backend`): this one draws evenly, from its own seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

if TYPE_CHECKING:
    from hypothesis.internal.conjecture.data import ConjectureData

T = TypeVar("T")
BACKEND = "refitcheck"


class Even(PrimitiveProvider):
    """Integers and booleans, each as likely as the other; strategies of anything else are refused."""

    number: ClassVar[int] = 0
    """The seed of the next one that hypothesis makes."""

    def __init__(self, conjecturedata: ConjectureData | None, /) -> None:
        super().__init__(conjecturedata)
        self._random = Random(self.number)

    def draw_boolean(self, p: float = 0.5) -> bool:
        """True with probability `p`."""
        return self._random.random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """One of a bounded range."""
        if min_value is None or max_value is None:
            self._refused()
        return self._random.randint(min_value, max_value)

    def _refused(self, *args: Any, **more: Any) -> NoReturn:
        raise NotImplementedError("only booleans and bounded integers are drawn evenly")

    draw_float = draw_string = draw_bytes = _refused


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Even"


def draw(
    strategy: st.SearchStrategy[T], number: int, count: int, use: Callable[[T], None], *, shrink: bool = False
) -> None:
    """Call `use` with `count` values, the same for the same `number`. An exception of `use` ends it; with `shrink` it
    is raised for the smallest value that hypothesis finds it for."""
    Even.number = number
    ended: list[Exception] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        backend=BACKEND,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, *([Phase.shrink] if shrink else [])),
        report_multiple_bugs=False,
    )
    @given(strategy)
    def one(value: T) -> None:
        if shrink:
            use(value)
        elif not ended:
            try:
                use(value)
            except Exception as error:  # hypothesis would try the same value again, and find that it is flaky
                ended.append(error)

    one()
    if ended:
        raise ended[0]
