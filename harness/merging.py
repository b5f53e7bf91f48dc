"""One order out of the records of several writers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fakes.trace import AnyRecord, Complete, Header, Invoke
from harness.errors import MalformedHistory
from harness.words import quoted

_LEAST, _MOST = -1e15, 1e15  # seconds: beyond, sums of floats lose the order of records


def merge(writers: Iterable[Iterable[AnyRecord]]) -> tuple[Header, list[AnyRecord]]:
    """Merge writers by time, keeping each writer's own order: the first header, and the records without headers.

    Within a writer the order of writing is the order of happening, and `seq` must grow per (engine, incarnation).
    Between writers only the clock can tell: `meta["epoch"]` of a writer's header (seconds of a clock that all share;
    0 if missing) plus `t` times `meta["scale"]` (shared seconds per second of the trace; 1 if missing).
    """
    headers: list[Header] = []
    keyed: list[tuple[float, int, int, AnyRecord]] = []
    for number, records in enumerate(writers):
        epoch, scale, latest = 0.0, 1.0, float("-inf")
        seen: dict[tuple[str, int], int] = {}
        for place, record in enumerate(records):
            key = (record.engine, record.incarnation)
            if record.seq <= seen.get(key, 0):
                engine = quoted(record.engine, 60)
                raise MalformedHistory(
                    f"record {place + 1} of writer {number + 1}: seq {record.seq} of engine {engine!r} "
                    f"incarnation {record.incarnation} after seq {seen.get(key, 0)}"
                )
            seen[key] = record.seq
            if isinstance(record, Header):
                headers.append(record)
                epoch, scale = _number(record, "epoch", 0.0), _number(record, "scale", 1.0)
                continue
            latest = max(latest, epoch + record.t * scale)
            keyed.append((latest, number, place, record))
    if not headers:
        raise MalformedHistory("no header record: a history begins with one")
    keyed.sort(key=lambda item: item[:3])
    return headers[0], [item[3] for item in keyed]


def _number(header: Header, name: str, default: float) -> float:
    value = header.meta.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST <= value <= _MOST:
        raise MalformedHistory(f"header: meta.{name} is {quoted(value, 60)}, not a number of seconds")
    return float(value)


def completions(records: Sequence[AnyRecord]) -> dict[int, tuple[int, Complete]]:
    """Call id -> place and record of its completion. MalformedHistory where calls do not pair."""
    ends: dict[int, tuple[int, Complete]] = {}
    begun: set[int] = set()
    for pos, record in enumerate(records):
        if isinstance(record, Invoke):
            if record.call in begun:
                raise MalformedHistory(f"call {record.call} (/{quoted(record.op, 60)}) begins twice")
            begun.add(record.call)
        elif isinstance(record, Complete):
            if record.call not in begun:
                raise MalformedHistory(f"call {record.call} ends but never began")
            if record.call in ends:
                raise MalformedHistory(f"call {record.call} ends twice")
            ends[record.call] = (pos, record)
    return ends
