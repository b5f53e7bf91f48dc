"""The tokenizer manager: pause, the reader/writer lock, one call in flight per operation.

Method by method what SGLang's TokenizerManager does, on the deterministic loop. What a method returns is what
`sglang.Engine` returns in process; `control.py` turns it into HTTP. A scheduler that died never answers: then these
coroutines simply do not go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fakes.engine import checker
from fakes.engine import messages as m
from fakes.engine.crash import TokenizerCrash
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.loop import Condition, Event, Future, Lock, Loop, RWLock
from fakes.engine.lora_registry import LoraRegistry
from fakes.engine.protocol import EngineConfig, Observed
from fakes.engine.serialized import normalize

if TYPE_CHECKING:
    from fakes.engine.generation import State

Result = tuple[bool, str]
DISTRIBUTED = "update weights from distributed"
DESTROY = "destroy parameter update group"
TENSOR = "update weights from tensor"
IPC = "update weights from IPC"


class Communicator:
    """Requests of one operation, one in flight, first come first served (managers/communicator.py:13@0.5.23)."""

    def __init__(self, loop: Loop, send: Callable[[str, dict[str, Any]], None], op: str) -> None:
        self._send = send
        self._op = op
        self._lock = Lock(loop)
        self._event = Event(loop)
        self._waiting = False
        self._reply: Any = None

    async def __call__(self, obj: dict[str, Any]) -> Any:
        """Send and wait for the reply."""
        async with self._lock:
            self._send(self._op, obj)
            self._waiting = True
            self._event.clear()
            await self._event.wait()
            self._waiting = False
            return self._reply

    def receive(self, reply: Any) -> None:
        """A reply came; one that nobody waits for is dropped."""
        if self._waiting:
            self._reply = reply
            self._event.set()


class TokenizerManager:
    """The HTTP process's half of an engine."""

    def __init__(
        self,
        config: EngineConfig,
        profile: EngineProfile,
        loop: Loop,
        *,
        send: Callable[[str, dict[str, Any]], None],
        emit: Callable[[Observed], None],
    ) -> None:
        self.config = config
        self.profile = profile
        self.loop = loop
        self._send = send
        self._emit = emit
        self.is_pause = False
        self.pause_cond = Condition(loop)
        self.update_lock = RWLock(loop)
        self.healthy = True
        self.last_receive = -1.0
        self.weight_version = config.weight_version
        self.model_path = config.model_path
        self.served_model_name = config.model_path
        self.load_format = "auto"
        self.states: dict[str, State] = {}
        self.lora = LoraRegistry(self)
        self._communicators: dict[str, Communicator] = {}
        self._disk_result: Future[Any] | None = None
        self.load_snapshot: Callable[[], dict[str, int]] = dict

    def send(self, op: str, obj: dict[str, Any]) -> None:
        """Put a message into the scheduler's inbox."""
        self._send(op, obj)

    def communicator(self, op: str) -> Communicator:
        """The communicator of an operation."""
        found = self._communicators.get(op)
        if found is None:
            found = self._communicators[op] = Communicator(self.loop, self._send, op)
        return found

    def receive(self, op: str, payload: Any) -> None:
        """A message came from the scheduler; any message counts as a sign of life."""
        self.last_receive = self.loop.now
        if op == "batch":
            for item in payload:
                state = self.states.get(item["rid"])
                if state is not None:
                    state.batch_output(item, self)
        elif op == "abort":
            state = self.states.get(payload["rid"])
            if state is not None:
                state.abort_output(payload, self)
        elif op == "update_weights_from_disk":
            if self._disk_result is None or self._disk_result.done:
                raise TokenizerCrash("InvalidStateError", "invalid state", alive=True)
            self._disk_result.set_result(payload)
        elif op in self._communicators:
            self._communicators[op].receive(payload)

    def guard(self, what: str) -> None:
        """No data-parallel replicas for weight updates: an AssertionError, which HTTP shows as a bare 500."""
        if self.config.dp_size != 1:
            message = m.DP_OLD if self.profile.dp_guard == "old" else m.DP_NEW
            raise AssertionError(message(what=what))

    def observe(self, name: str, **data: Any) -> None:
        """Write a core fact."""
        self._emit(Observed(name, data))

    def abort_request(self, rid: str | None = "", abort_all: bool = False) -> None:
        """managers/tokenizer_manager.py:2241@0.5.23. Fire and forget; an unknown rid is ignored."""
        rid = rid or ""
        if not abort_all:
            if not rid and self.profile.abort_unknown_rid_warns:
                return
            state = self.states.get(rid)
            if state is None:
                return
            state.aborted = state.asked
            if self.profile.abort_once:
                if state.abort_sent:
                    return
                state.abort_sent = True
        else:
            for state in self.states.values():
                state.aborted = state.asked
        self.send("abort", {"rid": rid, "abort_all": abort_all})

    async def pause_generation(self, mode: str = "abort") -> None:
        """managers/tokenizer_manager.py:2267@0.5.23. abort holds the condition until no request is left, in steps of
        1 s."""
        async with self.pause_cond:
            self.is_pause = True
            self.observe("pause", state="paused", mode=mode)
            if mode != "abort":
                self.send("pause", {"mode": mode})
                return
            while True:
                self.abort_request(abort_all=True)
                if not await self.update_lock.is_locked():
                    return
                await self.loop.sleep(1.0)

    async def continue_generation(self, torch_empty_cache: bool = True) -> None:
        """managers/tokenizer_manager.py:2282@0.5.23."""
        async with self.pause_cond:
            self.is_pause = False
            self.observe("pause", state="running", mode="")
            self.send("continue", {"torch_empty_cache": torch_empty_cache})
            self.pause_cond.notify_all()

    async def _gated(self, op: str, obj: dict[str, Any]) -> Any:
        """Paused: call at once, holding the condition. Not paused: call as the only writer, after all running
        requests."""
        communicator = self.communicator(op)
        async with self.pause_cond:
            paused = self.is_pause
            if paused:
                result = await communicator(obj)
        if not paused:
            async with self.update_lock.writer:
                result = await communicator(obj)
        return result

    async def begin_weight_update(self, obj: dict[str, Any]) -> Result:
        """No dp guard; the lock is held for this one call only (managers/tokenizer_control_mixin.py:470@0.5.23)."""
        return _result(await self._gated("begin_weight_update", obj))

    async def end_weight_update(self, obj: dict[str, Any]) -> Result:
        """As begin."""
        return _result(await self._gated("end_weight_update", obj))

    async def update_weights_from_tensor(self, obj: dict[str, Any]) -> Result:
        """managers/tokenizer_control_mixin.py:563@0.5.23."""
        self.guard(TENSOR)
        if obj.get("abort_all_requests"):
            self.abort_request(abort_all=True)
        if self.profile.base64 == "http400":
            obj = {**obj, "serialized_named_tensors": normalize(obj["serialized_named_tensors"])}
        return self._versioned(obj, *_result(await self._gated("update_weights_from_tensor", obj)))

    async def update_weights_from_distributed(self, obj: dict[str, Any]) -> Result:
        """managers/tokenizer_control_mixin.py:502@0.5.23."""
        self.guard(DISTRIBUTED)
        if obj.get("abort_all_requests"):
            self.abort_request(abort_all=True)
        return self._versioned(obj, *_result(await self._gated("update_weights_from_distributed", obj)))

    async def update_weights_from_ipc(self, obj: dict[str, Any]) -> Result:
        """Every exception becomes a failed reply (managers/tokenizer_control_mixin.py:598@0.5.23)."""
        try:
            self.guard(IPC)
        except AssertionError as error:
            return False, m.IPC_FAILED(error=error)
        return self._versioned(obj, *_result(await self._gated("update_weights_from_ipc", obj)))

    async def update_weights_from_disk(self, obj: dict[str, Any]) -> tuple[bool, str, int]:
        """Looks at the pause but lets go of the condition before the call
        (managers/tokenizer_manager.py:2288@0.5.23)."""
        if obj.get("load_format") is None:
            obj = {**obj, "load_format": self.load_format}
        if obj.get("abort_all_requests"):
            self.abort_request(abort_all=True)
        async with self.pause_cond:
            paused = self.is_pause
        if paused:
            reply = await self._disk(obj)
        else:
            async with self.update_lock.writer:
                reply = await self._disk(obj)
        if reply["success"]:
            self.model_path = self.served_model_name = obj["model_path"]
            self.load_format = obj["load_format"]
        success, message = self._versioned(obj, *_result(reply))
        return success, message, reply["num_paused_requests"]

    async def _disk(self, obj: dict[str, Any]) -> Any:
        """One future for all callers (managers/tokenizer_manager.py:2372@0.5.23).

        Two paused calls at once: the second takes the future over and gets the first reply, the first waits for ever,
        and the second reply is an InvalidStateError that ends the process (sgl-project/sglang#33698; seen on 0.5.23).
        """
        self._disk_result = self.loop.future()
        self.send("update_weights_from_disk", obj)
        return await self._disk_result

    def _versioned(self, obj: dict[str, Any], success: bool, message: str) -> Result:
        version = obj.get("weight_version")
        if success and version is not None:
            self._set_version(version)
            message += m.VERSION_SUFFIX(version=version)
        return success, message

    def _set_version(self, version: str) -> None:
        self.weight_version = version
        self.observe("version", owner="tokenizer", value=version)

    async def update_weight_version(self, obj: dict[str, Any]) -> None:
        """From 0.5.19 the schedulers hear of it first (managers/tokenizer_control_mixin.py:1065@0.5.23)."""
        if self.profile.spans:
            await self.communicator("update_weight_version")(obj)
        self._set_version(obj["new_version"])

    async def init_weights_update_group(self, obj: dict[str, Any]) -> Result:
        """managers/tokenizer_control_mixin.py:444@0.5.23; the dp guard speaks of updates."""
        self.guard(DISTRIBUTED)
        return _result(await self.communicator("init_weights_update_group")(obj))

    async def destroy_weights_update_group(self, obj: dict[str, Any]) -> Result:
        """managers/tokenizer_control_mixin.py:457@0.5.23."""
        self.guard(DESTROY)
        return _result(await self.communicator("destroy_weights_update_group")(obj))

    async def flush_cache(self, timeout_s: float = 0.0) -> dict[str, Any]:
        """No lock, no look at the pause. {success, message}."""
        reply: dict[str, Any] = await self.communicator("flush_cache")({"timeout_s": timeout_s})
        return reply

    async def release_memory_occupation(self, obj: dict[str, Any]) -> None:
        """No lock, no look at the pause."""
        await self.communicator("release_memory_occupation")(obj)

    async def resume_memory_occupation(self, obj: dict[str, Any]) -> None:
        """No lock, no look at the pause."""
        await self.communicator("resume_memory_occupation")(obj)

    async def slow_down(self, obj: dict[str, Any]) -> None:
        """Make every step longer, for tests."""
        await self.communicator("slow_down")(obj)

    async def get_weights_by_name(self, obj: dict[str, Any]) -> Any:
        """A list of floats, or None."""
        return (await self.communicator("get_weights_by_name")(obj))["parameter"]

    async def server_info(self) -> list[dict[str, Any]]:
        """The internal states, one per data-parallel rank: asks the scheduler, so hangs when that is blocked."""
        return [await self.communicator("server_info")({})]

    async def get_load(self) -> dict[str, int]:
        """What `fakes.engine.load` publishes (managers/tokenizer_control_mixin.py:808@0.5.12.post1, 867@0.5.20)."""
        if self.profile.load_snapshots:
            return self.load_snapshot()
        found: dict[str, int] = await self.communicator("get_load")({})
        return found

    async def weights_checker(self, obj: dict[str, Any]) -> tuple[bool, str, list[dict[str, Any]] | None, str | None]:
        """(success, message, ranks, per_engine_checksum) (managers/tokenizer_control_mixin.py:885@0.5.23)."""
        reply = await self.communicator("weights_checker")(obj)
        ranks = reply["payload"]
        if ranks is None:
            return reply["success"], reply["message"], None, None
        if self.profile.parallelism_info == "raw":
            return reply["success"], reply["message"], ranks[:1], None
        total = checker.engine_checksum([rank["per_gpu_checksum"] for rank in ranks])
        return reply["success"], reply["message"], ranks, total


def _result(reply: dict[str, Any]) -> Result:
    return reply["success"], reply["message"]
