"""Broken clients and lenient engines of the disk path."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import broken, lenient, method

MODULE = "harness.reference.transports.disk"
TRANSPORT = f"{MODULE}:DiskTransport"
UPDATER = "fakes.engine.weight_update:WeightUpdater"
TOKENIZER = "fakes.engine.tokenizer_manager:TokenizerManager"
LENIENT = "a fake that is kinder than SGLang"


def _gone_at_once(original: Any) -> Any:
    def ask(engines: Any, op: str, body: Any, timeout_s: float) -> Any:
        import shutil

        from harness.reference.engines import answered

        waits = [(e, e.endpoint.start(op, body, timeout_s=timeout_s)) for e in engines]
        shutil.rmtree(body["model_path"])
        return answered(waits)

    return ask


class _FirstFileOnly:
    def __init__(self, folder: Any) -> None:
        self._folder = folder

    def write(self, named: Any) -> None:
        if self._folder._files == 0:
            self._folder.write(named)


def _first_file_only(original: Any) -> Any:
    return lambda self, rank, folder, *rest: original(self, rank, _FirstFileOnly(folder), *rest)


def _one_path(original: Any) -> Any:
    def send(self: Any, *args: Any) -> Any:
        self._refits = 0
        self.close(())
        return original(self, *args)

    return send


def _with_a_session(original: Any) -> Any:
    def setup(self: Any, fleet: Any) -> None:
        from harness.reference.profile import EngineProfile

        original(self, fleet)
        self._client.control.profile = EngineProfile.of(fleet.version)

    return setup


def _path(*, moves: bool) -> Any:
    def make(original: Any) -> Any:
        async def update(self: Any, obj: Any) -> Any:
            before = self.model_path
            answer = await original(self, obj)
            self.model_path = obj["model_path"] if moves else before
            return answer

        return update

    return make


def _rolls_back(original: Any) -> Any:
    def disk(self: Any, obj: Any) -> Any:
        from fakes.engine.crash import Crash

        try:
            return (yield from original(self, obj))
        except Crash as crash:
            text = f"Failed to update weights: {crash}.\nRolling back to original weights."
            return {"success": False, "message": text, "num_paused_requests": 0}

    return disk


def _whole_only(original: Any) -> Any:
    def load(self: Any, named: Any) -> Any:
        from fakes.engine.loading import LoadError

        listed = list(named)
        if not any("lm_head" in name for name, _ in listed) or len(listed) < 12:
            raise LoadError("RuntimeError", "tensors are missing")
        return original(self, listed)

    return load


def _ends_the_session(original: Any) -> Any:
    def disk(self: Any, obj: Any) -> Any:
        answer = yield from original(self, obj)
        self.session = None
        return answer

    return disk


def _all_at_once(original: Any) -> Any:
    def told(self: Any, update: int, path: str, load_format: str | None) -> None:
        from contextlib import suppress

        from fakes.engine.protocol import ReadDisk
        from fakes.fronts.io import read_folder

        with suppress(Exception):  # rank 0 will meet it, too
            for rank in self._s.ranks[1:]:
                rank.load(read_folder(ReadDisk(id=0, path=path)))

    return told


def _nothing_is_something(original: Any) -> Any:
    def read(effect: Any) -> Any:
        try:
            return original(effect)
        except RuntimeError:
            return []

    return read


PLANTS = (
    broken(
        "folder-gone-at-once",
        "DISK-1",
        "sgl-project/sglang#7930",
        "the folder is removed when the engines have been told",
        method(f"{MODULE}:ask", _gone_at_once),
    ),
    broken(
        "half-a-folder",
        "DISK-2",
        "a folder that is read while it is written",
        "of several files the first is there",
        method(f"{TRANSPORT}._step", _first_file_only),
    ),
    broken(
        "one-path-for-all",
        "DISK-3",
        "a folder that is written over",
        "every refit uses the same path",
        method(f"{TRANSPORT}.send", _one_path),
    ),
    broken(
        "session-around-a-disk",
        "DISK-4",
        "a finaliser that is not idempotent",
        "begin and end around a disk update",
        method("harness.reference.adapter:ReferenceSut.setup", _with_a_session),
    ),
    lenient(
        "path-is-not-told",
        "DISK-51",
        LENIENT,
        "model_info keeps its path",
        method(f"{TOKENIZER}.update_weights_from_disk", _path(moves=False)),
    ),
    lenient(
        "path-of-a-failure",
        "DISK-52",
        LENIENT,
        "model_info shows a path that was refused",
        method(f"{TOKENIZER}.update_weights_from_disk", _path(moves=True)),
    ),
    lenient("rolls-back", "DISK-53", LENIENT, "a failed load is rolled back", method(f"{UPDATER}._disk", _rolls_back)),
    lenient(
        "whole-folders-only",
        "DISK-54",
        LENIENT,
        "a part of a set is refused",
        method("fakes.engine.weights:RankWeights.load", _whole_only),
    ),
    lenient(
        "disk-ends-the-session",
        "DISK-55",
        LENIENT,
        "a disk update closes the session",
        method(f"{UPDATER}._disk", _ends_the_session),
    ),
    broken(
        "folder-gone-at-rank-0s-answer",
        "DISK-1",
        "a folder that is removed when the call returns",
        "the answer is taken for that of all ranks",
        method(f"{MODULE}:_alone", lambda _original: lambda e: True),
    ),
    lenient(
        "all-ranks-read-at-once",
        "DISK-57",
        LENIENT,
        "the answer to a disk update is that of all ranks",
        method("fakes.engine.late_ranks:LateRanks.told", _all_at_once),
    ),
    lenient(
        "empty-folder-is-fine",
        "DISK-56",
        LENIENT,
        "a folder without weights is a success",
        method("fakes.fronts.io:read_folder", _nothing_is_something),
    ),
)
