"""The weight-update session and every way to change weights, as the scheduler does it.

Order inside a tensor update: session, own payload of every rank, load, session marked, (0.5.22: version,) flush,
(up to 0.5.21: version,) barrier, reply (scheduler_components/weight_updater.py:232@0.5.23). The session is the same on
every rank, so a refused call returns before any payload is opened and before any barrier. Rank 0 alone answers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from fakes.engine import messages as m
from fakes.engine.checker import CheckError, CheckerRules, WeightChecker
from fakes.engine.crash import Crash, crash
from fakes.engine.draft import Draft, checked, roles
from fakes.engine.groups import Groups, receive_error
from fakes.engine.ipc_update import IpcUpdate
from fakes.engine.loading import LoadError
from fakes.engine.protocol import Barrier, Done, OpenPayload, ReadDisk, Recv
from fakes.engine.session import Session, Wholeness
from fakes.engine.weights import get_weights_by_name

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler

Reply = dict[str, Any]
IO = Generator[list[Any], dict[int, Done], Reply]


def ok(message: str) -> Reply:
    """A reply that succeeded."""
    return {"success": True, "message": message}


def failed(message: str) -> Reply:
    """A reply that did not."""
    return {"success": False, "message": message}


class WeightUpdater:
    """begin, end and the updates of one engine."""

    def __init__(self, scheduler: Scheduler, hf_names: Iterable[str]) -> None:
        self._s = scheduler
        self._p = scheduler.profile
        self.session: Session | None = None
        self.wholeness = Wholeness(hf_names, scheduler.ranks[0].layout)
        self._updates = 0
        self.groups = Groups(scheduler)
        config, profile = scheduler.config, scheduler.profile
        rules = CheckerRules(
            cuda=config.device == "cuda" or config.checker_cuda_shim,
            checksum_needs_cuda="checksum" in profile.checker_needs_cuda,
            consumes_snapshot=not profile.checker_compare_keeps_snapshot,
            long_mismatch=profile.checker_long_mismatch,
            role=profile.parallelism_info == "list",
            per_gpu_checksum=profile.parallelism_info != "raw",
        )
        self.draft = Draft(scheduler, rules) if config.eagle_draft else None
        self._checkers = [WeightChecker(rank, rules, seed=config.random_seed) for rank in scheduler.ranks]

    @property
    def torn(self) -> bool:
        """Whether what is served now is known to be a mixture: inside a session after a load, or broken."""
        return self.wholeness.broken or (self.session is not None and self.session.loaded)

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Operations by name."""
        return {
            "begin_weight_update": self._begin,
            "end_weight_update": self._end,
            "update_weights_from_tensor": self._tensor,
            "update_weights_from_distributed": self._distributed,
            "update_weights_from_disk": self._disk,
            "update_weights_from_ipc": IpcUpdate(self, self._s).handle,
            "get_weights_by_name": self._by_name,
            "weights_checker": self._check,
            **self.groups.handlers(),
        }

    def _begin(self, obj: dict[str, Any]) -> Reply:
        if self.session is not None:
            if self._p.session == "assert":
                raise crash(m.MILES_BEGIN_OPEN)
            return failed(m.BEGIN_OPEN.text)
        self._check_selector(obj)
        self.session = Session(obj.get("selector", "all"))
        self._s.observe("session", state="open", selector=self.session.selector, op="begin_weight_update")
        self._s.emit(Barrier("begin_weight_update"))
        return ok(m.SUCCESS.text)

    def _end(self, obj: dict[str, Any]) -> Reply:
        if self.session is None:
            if self._p.session == "assert":
                raise crash(m.MILES_NO_SESSION)
            return failed(m.NO_SESSION.text)
        selector, self.session = self.session.selector, None
        if selector != "draft":
            self._finalise()
        if selector != "target" and self.draft is not None:  # also one that nothing was sent for (radixark/miles#1926)
            self.draft.finalise()
        self._s.observe("session", state="closed", selector=selector, op="end_weight_update")
        self._s.emit(Barrier("end_weight_update"))
        return ok(m.SUCCESS.text)

    def _finalise(self) -> None:
        """process_weights_after_loading of every module, also of those that nothing was sent for
        (model_loader/loader.py:1079@0.5.23)."""
        for rank in self._s.ranks:
            rank.finalise()

    def _refused(self, op: str) -> Reply | None:
        """What an update outside a session gets, None when it may run."""
        if self._p.session == "none" or self.session is not None:
            return None
        if self._p.session == "assert":
            raise crash(m.MILES_OUTSIDE, op=op)
        return failed(m.OUTSIDE_SESSION(op=op))

    def _check_selector(self, obj: dict[str, Any]) -> None:
        """Only a caller in process can get here with a bad one: over HTTP the schema refuses it."""
        if _wrong_selector(obj):
            raise crash(m.BAD_SELECTOR, selector=obj["selector"])

    def _tensor(self, obj: dict[str, Any]) -> IO | Reply:
        refused = self._refused("update_weights_from_tensor")
        return refused if refused is not None else self._tensor_io(obj)

    def _tensor_io(self, obj: dict[str, Any]) -> IO:
        scheduler, payloads, load_format = self._s, obj["serialized_named_tensors"], obj.get("load_format")
        self._updates += 1
        runners = roles(self._p, "update_weights_from_tensor", obj, draft=self.draft is not None)
        has_runner = bool(runners)  # what a payload holds is the runner's business
        effects = []
        for rank in range(len(scheduler.ranks)):
            if rank >= len(payloads):
                raise crash(m.SHORT_LIST, rank)
            data = _payload_bytes(payloads[rank], rank)
            effects.append(
                OpenPayload(
                    id=scheduler.next_id(), rank=rank, data=data, load_format=load_format, unpickle_only=not has_runner
                )
            )
        results = yield effects
        opened = []
        for effect in effects:
            end = results[effect.id]
            if end.error is not None:
                raise Crash(end.error.type, end.error.message, effect.rank)
            opened.append((effect, end.value))
        self._check_selector(obj)
        if not runners:
            return self._after_load(obj, "update_weights_from_tensor", m.SUCCESS.text, barrier=True)
        scheduler.memory.check_writable()
        for effect, named in opened:
            for role in runners:
                if role == "draft" and self.draft is not None:
                    self.draft.load(effect.rank, named, load_format)
                else:
                    self._load(effect.rank, named, load_format, payload_index=effect.rank, data=effect.data)
        return self._after_load(obj, "update_weights_from_tensor", m.SUCCESS.text, barrier=True)

    def _load(
        self, rank: int, named: list[tuple[str, Any]], load_format: str | None, *, payload_index: int, data: bytes
    ) -> None:
        weights = self._s.ranks[rank]
        try:
            if load_format == "direct":
                names = weights.load_direct(named)
            elif load_format in (None, "flattened_bucket"):
                names = weights.load(named)
            else:
                raise crash(m.UNKNOWN_LOAD_FORMAT, rank, load_format=load_format)
        except LoadError as error:
            raise Crash(error.type, error.message, rank) from None
        self._fact(rank, names, payload_index, load_format, _digest(data))

    def _fact(self, rank: int, names: list[str], index: int, load_format: str | None, digest: str) -> None:
        if rank == 0:
            self.wholeness.sent(names)
        self.loaded(rank, names, self._updates, load_format, index, digest)

    def loaded(
        self,
        rank: int,
        names: list[str],
        update: int,
        load_format: str | None,
        index: int | None = None,
        digest: str = "",
    ) -> None:
        """Say what a rank took of an update; `index` is the payload's place in the list, its own by default."""
        self._s.observe(
            "load",
            rank=rank,
            update=update,
            names=names,
            payload_index=rank if index is None else index,
            load_format=load_format,
            digest=digest,
        )

    def next_update(self) -> None:
        """What is loaded from now on belongs to another update."""
        self._updates += 1

    def _after_load(self, obj: dict[str, Any], op: str, message: str, *, barrier: bool) -> Reply:
        """Session mark, version and flush in this version's order, barrier. Disk and IPC leave the session alone."""
        if self.session is not None and op in ("update_weights_from_tensor", "update_weights_from_distributed"):
            self.session.loaded = True
        if self._p.version_before_flush:
            self._s.record_version(obj.get("weight_version"))
        reply = ok(message)
        if obj.get("flush_cache", True) and not self._s.flush():
            if self._p.flush_failure == "die":
                raise crash(m.FLUSH_ASSERT)
            reply = failed(m.FLUSH_REFUSED.text)
        if not self._p.version_before_flush:
            self._s.record_version(obj.get("weight_version"))
        if barrier:
            self._s.emit(Barrier(op))
        return reply

    def _distributed(self, obj: dict[str, Any]) -> IO | Reply:
        refused = self._refused("update_weights_from_distributed")
        return refused if refused is not None else self._distributed_io(obj)

    def _distributed_io(self, obj: dict[str, Any]) -> IO:
        scheduler, group, load_format = self._s, obj["group_name"], obj.get("load_format")
        if not self.groups.joined(group):
            text = m.GROUP_MISSING(group=group, groups=self.groups.names())
            if self._p.group_missing == "die":
                raise Crash(m.GROUP_MISSING.type, text)
            return failed(m.RECEIVE_FAILED(error=text) if self._p.group_missing == "receive" else m.PARTIAL(error=text))
        names, dtypes, shapes = obj["names"], obj["dtypes"], obj["shapes"]
        wrong, posted = receive_error(names, dtypes, shapes, load_format, strict=self._p.bucket_strict)
        if wrong:
            if posted:
                for effect in self._recv(obj, posted, waits=False):
                    scheduler.emit(effect)
            return self._receive_failed(wrong)
        self._updates += 1
        effects = self._recv(obj, min(len(names), len(dtypes), len(shapes)))
        results = yield effects
        errors = [results[effect.id].error for effect in effects]
        for effect, error in zip(effects, errors, strict=True):
            if error is not None and error.type == "SIGABRT":
                raise Crash(error.type, error.message, effect.rank)
        if errors[0] is not None:
            return self._receive_failed(errors[0].message)
        if self._p.session == "assert" and (wrong := _wrong_selector(obj)):
            return failed(m.PARTIAL(error=wrong))  # looked at inside the try (weight_updater.py:236@miles-00a2ca2e)
        self._check_selector(obj)
        runners = roles(self._p, "update_weights_from_distributed", obj, draft=self.draft is not None)
        if not runners:
            return self._after_load(obj, "update_weights_from_distributed", m.DISTRIBUTED_OK.text, barrier=False)
        scheduler.memory.check_writable()
        reply = None
        for effect in effects:
            if results[effect.id].error is not None:
                continue  # a rank other than 0 failed: its reply is never sent, and nobody learns of it
            try:
                applied = []
                for role in runners:
                    if role == "draft" and self.draft is not None:
                        self.draft.ranks[effect.rank].load(results[effect.id].value)
                    else:
                        applied = scheduler.ranks[effect.rank].load(results[effect.id].value)
            except Exception as error:  # whatever a load raises (model_runner_components/weight_updater.py:334@0.5.23)
                self.wholeness.break_()
                if effect.rank == 0:
                    reply = failed(m.PARTIAL(error=error.message if isinstance(error, LoadError) else str(error)))
                continue
            self._fact(effect.rank, applied, effect.rank, load_format, "")
        if reply is not None:
            return reply
        return self._after_load(obj, "update_weights_from_distributed", m.DISTRIBUTED_OK.text, barrier=False)

    def _recv(self, obj: dict[str, Any], count: int, *, waits: bool = True) -> list[Recv]:
        """The receives of all ranks for the first `count` tensors of a request."""
        bucket = obj.get("load_format") == "flattened_bucket"
        return [
            Recv(
                id=self._s.next_id(),
                rank=rank,
                group_name=obj["group_name"],
                names=list(obj["names"][:count]),
                dtypes=list(obj["dtypes"][:count]),
                shapes=[list(shape) for shape in obj["shapes"][:count]],
                load_format="flattened_bucket" if bucket else None,
                waits=waits,
            )
            for rank in range(len(self._s.ranks))
        ]

    def _receive_failed(self, error: str) -> Reply:
        """0.5.21 tells a failed receive from a failed load; before, both say that the weights are partly updated."""
        return failed(m.RECEIVE_FAILED(error=error) if self._p.session == "refuse" else m.PARTIAL(error=error))

    def _disk(self, obj: dict[str, Any]) -> IO:
        """Reads or changes no session (scheduler_components/weight_updater.py:138@0.5.23).

        A load that fails is to be rolled back from the path that the engine has by then, which is the new one: it fails
        again, and that is not caught (model_runner_components/weight_updater.py:239@0.5.23). The answer is rank 0's and
        speaks of rank 0: `late_ranks`.
        """
        scheduler = self._s
        effect = ReadDisk(id=scheduler.next_id(), path=obj["model_path"], load_format=obj.get("load_format"))
        self._updates += 1
        scheduler.late.told(self._updates, effect.path, effect.load_format)
        end = (yield [effect])[effect.id]
        if end.error is not None and end.error.type == "SafetensorError":
            raise Crash(end.error.type, end.error.message)
        if end.error is not None:
            return {
                **failed(m.DISK_ITERATOR(error=_disk_error(end.error.type, end.error.message, effect.path))),
                **_PAUSED,
            }
        scheduler.memory.check_writable()
        try:
            names = scheduler.ranks[0].load(end.value)
        except LoadError as error:
            raise Crash(error.type, error.message) from None
        self._fact(0, names, 0, "disk", "")
        scheduler.ranks[0].finalise()
        if self.draft is not None:  # of a folder of target tensors it takes none
            self.draft.read(end.value)
        return {**self._after_load(obj, "update_weights_from_disk", m.DISK_OK.text, barrier=False), **_PAUSED}

    def _by_name(self, obj: dict[str, Any]) -> dict[str, Any]:
        if self._s.memory.unmapped("weights"):
            return {"parameter": None}
        return {"parameter": get_weights_by_name(self._s.ranks, obj["name"], obj["truncate_size"])}

    def _check(self, obj: dict[str, Any]) -> dict[str, Any]:
        """All exceptions are caught; only rank 0's answer is seen, except that a checksum gathers all ranks."""
        if wrong := _wrong_selector(obj):
            return {**failed(wrong), "payload": None}
        if self._s.memory.unmapped("weights"):
            return {**failed(m.RELEASED_UPDATE.text), "payload": None}
        asked = checked(self._p, obj, draft=self.draft is not None)
        if not asked:
            return {**ok(m.CHECK_OK.text), "payload": None}
        action, skip = obj["action"], obj.get("skip_tensor_list")
        answers: list[dict[str, Any] | None] = []
        error: CheckError | None = None
        for rank, checker in enumerate(self._checkers):
            try:
                answer = checker.handle(action, skip) if "target" in asked else None
                if "draft" in asked and self.draft is not None:
                    answer = self.draft.check(rank, action, skip, answer, roles=self._p.selector)
                answers.append(answer)
            except CheckError as raised:
                if rank == 0:
                    error = raised
        if error is not None:
            return {**failed(error.message), "payload": None}
        found = [answer for answer in answers if answer is not None]
        return {**ok(m.CHECK_OK.text), "payload": found or None}


_PAUSED = {"num_paused_requests": 0}


def _disk_error(type_: str, message: str, path: str) -> str:
    """Hugging Face's words for a folder that does not exist: it takes the path for a repository's name."""
    return hub_words(path) if type_ == "FileNotFoundError" else message


def hub_words(path: str) -> str:
    """What Hugging Face says to a path in the place of a repository's name: it counts slashes first."""
    return m.HUB_FORM(path=path) if path.count("/") > 1 else m.HUB_NAME(path=path)


def _wrong_selector(obj: dict[str, Any]) -> str:
    """What SGLang says to a selector that it does not know, "" for one that it does."""
    selector = obj.get("selector", "all")
    return "" if selector in ("target", "draft", "all") else m.BAD_SELECTOR(selector=selector)


def _payload_bytes(payload: Any, rank: int) -> bytes:
    """Bytes are taken as they are; 0.5.12 gets the base64 text here and dies of what does not decode."""
    if isinstance(payload, bytes):
        return payload
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise Crash("binascii.Error", str(error), rank) from None


def _digest(data: bytes) -> str:
    """First 16 hex digits of the sha256 of the payload's base64 text, as the gate records it."""
    return hashlib.sha256(base64.b64encode(data)).hexdigest()[:16]
