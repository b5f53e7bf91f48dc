"""Mutants of the fake engine that no recording of the real one shows, each with the lane that would show it and why.

`refitcheck mutate --replay tests/recorded/histories` holds the fake's other mutants to the recordings, and says which
recording shows each of them.
"""

from __future__ import annotations

_UNREAD = "fake: the deaths of this version are in no recording"
_GROUP = "http: no recording has a group of trainer and engines"
_DISK = "http: no recording has these loads from a folder"
_SAVER = "sglang-gpu: only a GPU has the memory saver; the recordings are of a CPU"
_SHARED = "sglang-gpu: only a GPU shares memory between processes by handles"

ELSEWHERE: dict[str, str] = {
    "asserts-turned-into-400": "fake: the asserting build is read, not run",
    "flush-death-turned-into-400": _UNREAD,
    "base64-death-turned-into-400": _UNREAD,
    "base64-refused": _UNREAD,
    "unpickler-opened": "fake: what the recorded payloads name does not load, whether it is admitted or not",
    "mixed-dtypes-mixed-up": "fake: no recorded bucket mixes dtypes",
    "poison-left-out": _SAVER,
    "resumed-as-it-was": _SAVER,
    "backup-forgotten": _SAVER,
    "released-again": _SAVER,
    "served-while-away": _SAVER,
    "written-while-away": _SAVER,
    "producer-outlived": _SHARED,
    "memory-never-recycled": _SHARED,
    "receives-nothing": _GROUP,
    "receives-all-the-same": _GROUP,
    "first-of-a-bucket": _GROUP,
    "bucket-is-cut": _GROUP,
    "bucket-is-refused": _GROUP,
    "equal-lists-only": _GROUP,
    "dtype-with-its-module": _GROUP,
    "name-taken-twice": _GROUP,
    "nameless-group": _GROUP,
    "joins-alone": _GROUP,
    "failed-load-is-fine": _GROUP,
    "dies-with-the-trainer": _GROUP,
    "nccl-on-a-cpu": "sglang-gpu: over NCCL",
    "path-is-not-told": _DISK,
    "path-of-a-failure": _DISK,
    "rolls-back": _DISK,
    "empty-folder-is-fine": _DISK,
}
