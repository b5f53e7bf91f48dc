"""What no log of a good run says: searched in the text without white space, so that a broken line hides nothing."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from real_runs.evidence.training.markers import plain

# Lower case, without white space. What a configuration says of itself (watchdog_timeout=300) is no event.
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("a traceback", r"traceback\(mostrecentcalllast\)"),
        ("a fatal signal", r"fatalpythonerror|segmentationfault|coredumped|receivedsig(?:quit|segv|abrt|kill|bus)"),
        (
            "out of memory",
            r"out_?ofmemory|outofmemoryerror|oom-?kill|cannotallocatememory|cuda_error_out_of_memory"
            r"|(?<![a-z])memoryerror",
        ),
        (
            "a watchdog",
            r"watchdog(?!_?timeout[=:\"'])(?:(?!watchdog).){0,160}?tim(?:eout|edout)(?![=\"'])",
        ),
        (
            "a collective error",
            r"nccl(?:system|remote|internal|unhandledcuda|invalidusage|invalidargument)error"
            r"|nccl(?:error|communicatorwasaborted)|distbackenderror|ncclcommabort|failedtorecv"
            r"|connectionresetbypeer|connectionclosedbypeer|collectiveoperationtimeout|pg.{0,40}?wasaborted"
            r"|gloo.{0,60}?(?:connectionclosed|timedout)|nixl_err_[a-z_]+",
        ),
        ("a CUDA error", r"cudaerror:|illegalmemoryaccess|device-sideassert|uncorrectableecc|nvrm:xid"),
        (
            "a worker that died",
            r"rayactorerror|actordiederror|workercrashederror|nodediederror|raytaskerror|diedunexpectedly"
            r"|childprocess.{0,40}?failed",
        ),
        ("a flush that failed", r"kvcacheinvalidation.{0,60}?fail"),
    )
)


BLOCK = 2**20
_BLANKS = {code: None for code in range(0x3001) if chr(code).isspace()}  # all that there are; no list of words is made


def found(name: str, text: str) -> Iterator[str]:
    """One line per kind of event, with the place of its first."""
    starts: list[int] = []  # of blocks of whole lines: there may be 10^8 lines
    blocks: list[tuple[int, int]] = []
    parts: list[str] = []
    length = 0
    for begin, end in _blocks(text):
        squeezed = _squeezed(text[begin:end])
        starts.append(length)
        blocks.append((begin, end))
        parts.append(squeezed)
        length += len(squeezed)
    whole = "".join(parts)
    for what, pattern in PATTERNS:
        match = pattern.search(whole)
        if match is not None:
            at = bisect_right(starts, match.start()) - 1
            number = _line_of(text, *blocks[at], match.start() - starts[at])
            yield f"{name}:{number}: {what} ({match[0][:60]})"


def _squeezed(text: str) -> str:
    return plain(text).translate(_BLANKS).lower()


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + BLOCK) + 1 or len(text)
        yield begin, end
        begin = end


def _line_of(text: str, begin: int, end: int, offset: int) -> int:
    """The number of the line that has a squeezed block's character `offset`."""
    number = text.count("\n", 0, begin) + 1
    for line in text[begin:end].split("\n"):
        offset -= len(_squeezed(line))
        if offset < 0:
            break
        number += 1
    return number
