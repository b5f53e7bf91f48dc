"""Broken clients that only a fault brings out: one for every invariant of fault exploration.

No scenario of its own plants the fault that each of them needs; exploration does.
"""

from __future__ import annotations

from typing import Any

from conformance.plants.client_calls import CLIENT, CONTROL, TRANSFER
from conformance.plants.make import broken, method

FLEET = "NVIDIA-NeMo/RL#3330"
REFIT = "NVIDIA-NeMo/RL#3612"


def _end_twice(original: Any) -> Any:
    """An end that got no answer is sent once more."""

    def end(self: Any, engines: Any, timeout_s: float) -> None:
        from harness.reference.errors import CallFailed

        try:
            original(self, engines, timeout_s)
        except CallFailed:
            original(self, engines, timeout_s)

    return end


def _part_is_success(original: Any) -> Any:
    """A bucket that failed is forgotten, if another one of this refit was taken before."""

    def post(self: Any, engine: Any, parcel: Any, payloads: Any) -> None:
        from harness.reference.errors import CallFailed

        try:
            original(self, engine, parcel, payloads)
            self.__dict__["taken"] = True
        except CallFailed:
            if not self.__dict__.get("taken"):
                raise
            engine.complete = parcel.last

    return post


def _paused_after_a_failure(original: Any) -> Any:
    """Nothing is continued after a failure, and nobody says that an engine is held."""
    return lambda self, guards, deadline: original(self, guards, deadline) if guards.error is None else None


def _continued_before_the_pool(original: Any) -> Any:
    """After a failure generation is continued at once; the KV pool follows."""

    def onload(self: Any, guards: Any, deadline: Any) -> None:
        from harness.reference.engines import ask

        if guards.error is not None:
            ask([e for e in self._engines if not e.lost], "continue_generation", {}, deadline.giving_back("continue"))
        original(self, guards, deadline)

    return onload


def _torn_after_a_lost_answer(original: Any) -> Any:
    """What an update without an answer left behind is taken for the old weights."""

    def post(self: Any, engine: Any, parcel: Any, payloads: Any) -> None:
        from harness.reference.engines import Weights
        from harness.reference.errors import CallFailed

        try:
            original(self, engine, parcel, payloads)
        except CallFailed:
            engine.weights = Weights.WHOLE
            raise

    return post


def _pause_believed(original: Any) -> Any:
    """A pause that failed is taken for done."""

    def pause(self: Any, engines: Any, deadline: Any) -> None:
        from harness.reference.errors import CallFailed

        try:
            original(self, engines, deadline)
        except CallFailed:
            return

    return pause


def _never_again(original: Any) -> Any:
    """One failure is the last word, though no policy says so."""

    def refit(self: Any, state: Any, version: str, deadline: Any) -> Any:
        if self.__dict__.get("failed"):
            raise RuntimeError("an earlier refit failed")
        self.__dict__["failed"] = True
        done = original(self, state, version, deadline)
        self.__dict__["failed"] = False
        return done

    return refit


def _pause_without_deadline(original: Any) -> Any:
    """The pause may take for ever."""

    def pause(self: Any, engines: Any, deadline: Any) -> None:
        class Endless:
            def work(self, step: str) -> float:
                return 3600.0

        original(self, engines, Endless())

    return pause


def _given_up_and_called(original: Any) -> Any:
    """The next refit has forgotten which engines were given up."""

    def muster(self: Any) -> None:
        for engine in self._roster():
            engine.lost, engine.tags_known = "", True
        original(self)

    return muster


PLANTS = (
    broken(
        "end-without-an-answer-repeated",
        "EXPLORE-1",
        f"{REFIT}, D03",
        "an end that got no answer is sent again",
        method(f"{CONTROL}.end", _end_twice),
    ),
    broken(
        "part-of-a-transfer-is-success",
        "EXPLORE-2",
        "areal-project/AReaL#1444",
        "a bucket that fails after another was taken is forgotten",
        method(f"{TRANSFER}._post", _part_is_success),
    ),
    broken(
        "paused-after-any-failure",
        "EXPLORE-3",
        f"{REFIT}, D01 D02 D04",
        "after a failure whole engines stay paused, and nobody says so",
        method(f"{CLIENT}._continue", _paused_after_a_failure),
    ),
    broken(
        "continued-before-the-pool-is-back",
        "EXPLORE-4",
        f"{REFIT}, D05 D14",
        "after a failure generation is continued before the KV pool is back",
        method(f"{CLIENT}._onload_kv", _continued_before_the_pool),
    ),
    broken(
        "a-lost-answer-is-no-effect",
        "EXPLORE-5",
        f"{FLEET}, D16",
        "an engine of which an update may have been applied is continued",
        method(f"{TRANSFER}._post", _torn_after_a_lost_answer),
    ),
    broken(
        "pause-that-failed-believed",
        "EXPLORE-6",
        "areal-project/AReaL#1444",
        "a pause that failed is taken for done",
        method(f"{CONTROL}.pause", _pause_believed),
    ),
    broken(
        "one-failure-for-ever",
        "EXPLORE-7",
        "vllm-project/vllm#39212",
        "after one failure no refit is tried any more",
        method(f"{CLIENT}.refit", _never_again),
    ),
    broken(
        "pause-without-deadline",
        "EXPLORE-8",
        f"{FLEET}, D38 D54",
        "a pause that never answers is waited for without end",
        method(f"{CONTROL}.pause", _pause_without_deadline),
    ),
    broken(
        "given-up-and-called",
        "EXPLORE-9",
        FLEET,
        "an engine that was given up is called by the next refit",
        method(f"{CLIENT}._muster", _given_up_and_called),
    ),
)
