"""Mutants of the fake engine that no recording of the real one shows, each with the lane that would show it and why.

`refitcheck mutate --replay tests/recorded/histories` holds the fake's other mutants to the recordings, and says which
recording shows each of them.
"""

from __future__ import annotations

_UNREAD = "fake: this death of its version is in no recording"
_GROUP = "http: no recording has a group of trainer and engines"
_DISK = "http: no recording has these loads from a folder"
_SAVER = "sglang-gpu: only a GPU has the memory saver; the recordings are of a CPU"
_SHARED = "sglang-gpu: only a GPU shares memory between processes by handles"
_FP8 = "sglang-gpu: only a GPU has kernels for fp8; the engines of the recordings are not quantised"
_LORA = "fake: no recording has an engine with adapters"
_WORKER = "sglang-gpu: the engines of the recordings have neither a GPU nor checkpoint-engine, and open no socket"
_DRAFT = "fake: no recording has an engine with a draft model"
_LATE = "http: no recording has a rank that reads a folder later than rank 0"

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
    "written-to-the-old-mapping": _SAVER,
    "end-forgets-the-layouts": _FP8,
    "every-load-derives": _FP8,
    "finalise-made-idempotent": _FP8,
    "only-what-was-loaded": _FP8,
    "folder-left-underived": _FP8,
    "quantised-slots-take-their-own": _FP8,
    "never-final": _FP8,
    "never-across": _FP8,
    "quantised-for-good": _FP8,
    "llama-as-the-others": _FP8,
    "end-derives-nothing": _FP8,
    "updates-derive-too": _FP8,
    "derived-once": _FP8,
    "derived-where-changed": _FP8,
    "disk-derives-nothing": _FP8,
    "only-its-own-dtype": _FP8,
    "either-way-round": _FP8,
    "quantised-once": _FP8,
    "llama-knows-blocks": _FP8,
    "final-takes-more": _FP8,
    "adapter-without-its-down-projection": _LORA,
    "a-name-is-replaced": _LORA,
    "unloaded-at-once": _LORA,
    "unknown-adapters-are-none": _LORA,
    "any-rank-will-do": _LORA,
    "shapes-are-looked-at-first": _LORA,
    "full-is-full": _LORA,
    "adapters-fall-off": _LORA,
    "one-cache-for-all-adapters": _LORA,
    "adapters-without-the-option": _LORA,
    "a-queued-abort-is-counted": _LORA,
    "a-queued-abort-is-forgotten": _LORA,
    "unloads-under-a-pause": _LORA,
    "all-ranks-take-what-rank-0-read": _LATE,
    "rank-0-reads-alone": _LATE,
    "all-ranks-read-at-once": _LATE,
    "one-socket-for-all-ranks": _WORKER,
    "missing-id-is-no-failure": _WORKER,
    "worker-answers-nothing-bad": _WORKER,
    "refused-inside-a-session": _WORKER,
    "ipc-read-at-the-end": _WORKER,
    "ipc-any-handle": _WORKER,
    "ipc-failures-are-kept": _WORKER,
    "ipc-ends-the-session": _WORKER,
    "disable-draft-model-is-not-read": _DRAFT,
    "draft-comes-back": _DRAFT,
    "draft-hears-broadcasts": _DRAFT,
    "draft-hears-no-broadcast": _DRAFT,
    "frozen-draft-stays-as-it-is": _DRAFT,
    "selector-is-not-read": _DRAFT,
}
