"""What transports that walk a collective export do alike: a complete stream, and errors that all ranks learn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from harness.reference.buckets import Parcel
from harness.reference.errors import BadState


class Gathers(Protocol):
    """The trainer's collective that is needed here. Raises TimeoutError."""

    def all_gather(self, rank: int, value: Any, timeout_s: float) -> Sequence[Any]:
        """Every rank's value, on every rank."""
        ...


def next_parcel(stream: Iterator[Parcel], names: set[str], state: Collection[str], phase: str) -> Parcel | None:
    """The next parcel of a stream, None after the last; `names` collects what came.

    Raises:
        BadState: the stream is over, or at its last parcel, and its names are not those of the state.
    """
    parcel = next(stream, None)
    if parcel is not None:
        names.update(name for name, _ in parcel.named)
    if (parcel is None or parcel.last) and names != set(state):
        lacking = sorted(set(state) - names) or sorted(names - set(state))
        raise BadState(f"{phase}: the export is not the state: {', '.join(lacking[:3])} of {len(lacking)}")
    return parcel


def agree(trainer: Gathers, rank: int, error: BaseException | None, meeting: Callable[[], float]) -> None:
    """Every rank tells what it met; the first error of any is raised on all, its own first where nobody answers.

    `meeting()` is the time left to meet, in seconds; it may raise, as it does when a deadline is spent.
    """
    try:
        errors: Sequence[BaseException | None] = trainer.all_gather(rank, error, meeting())
    except BaseException as e:
        errors = [error, e]
    first = next((e for e in errors if e is not None), None)
    if first is not None:
        raise first
