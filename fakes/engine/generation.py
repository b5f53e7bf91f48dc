"""/generate in the tokenizer manager: wait for the pause, hold the reader lock for life, collect, stream.

The reader lock is held until the last token of the last prompt was delivered: that is what makes an unpaused update
wait
for every running request (managers/tokenizer_manager.py:939@0.5.23).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fakes.engine import messages as m
from fakes.engine.generate_batch import GenerateRequest, Item
from fakes.engine.generate_request import prepare
from fakes.engine.loop import Cancelled, Event
from fakes.engine.request import LogprobRow, Logprobs, Req, Sampling

if TYPE_CHECKING:
    from fakes.engine.tokenizer_manager import TokenizerManager

HEALTH_PREFIX = "HEALTH_CHECK"
DISCONNECT_POLL_S = 4.0
"""How often a waiting request looks whether its client is still there (environ.py
SGLANG_REQUEST_STATE_WAIT_TIMEOUT)."""


class Aborted(Exception):
    """A finish reason that becomes an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestAborted(ValueError):
    """An abort met a generation before the scheduler did (managers/tokenizer_manager.py:198@0.5.17)."""

    status = 499


class State:
    """What the tokenizer manager knows of one prompt (its ReqState)."""

    def __init__(self, tm: TokenizerManager, rid: str, stream: bool) -> None:
        self.rid = rid
        self.stream = stream
        self.event = Event(tm.loop)
        self.output_ids: list[int] = []
        self.outputs: list[dict[str, Any]] = []
        self.finished = False
        self.abort_sent = self.aborted = False
        self.dispatched = False
        self.asked = True
        self.disconnected = False
        self.lora_id: str | None = None
        self.created = tm.loop.now
        self.responded = False
        self.logprobs: Logprobs | None = None

    def batch_output(self, item: dict[str, Any], tm: TokenizerManager) -> None:
        """managers/tokenizer_manager.py:2480@0.5.23."""
        self.output_ids += item["output_ids"]
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": item["finish"],
            "prompt_tokens": item["prompt_tokens"],
            "weight_version": tm.weight_version,
            "num_retractions": item["num_retractions"],
        }
        if self.logprobs is not None:
            meta.update(logprob_info(self.logprobs, item["input_rows"], item["output_rows"]))
        cached = item["cached_tokens"]
        meta["reasoning_tokens"] = 0
        meta["completion_tokens"] = item["completion_tokens"]
        meta["cached_tokens"] = cached
        if item["spans"] is not None:
            _put_spans(meta, item["spans"], item["completion_tokens"])
        meta["cached_tokens_details"] = {"device": cached, "host": 0} if cached else None
        meta["dp_rank"] = None
        if item["finish"] is not None:
            self.finished = True
            meta["e2e_latency"] = tm.loop.now - self.created
            tm.states.pop(self.rid, None)
            self.release_lora(tm)
        elif not self.stream:
            return
        self.outputs.append({"output_ids": list(self.output_ids), "meta_info": meta})
        self.event.set()

    def release_lora(self, tm: TokenizerManager) -> None:
        """The adapter is no longer in use by this prompt; once (managers/tokenizer_manager.py:1924@0.5.23)."""
        lora_id, self.lora_id = self.lora_id, None
        if lora_id is not None:
            tm.lora.release(lora_id)

    def abort_output(self, item: dict[str, Any], tm: TokenizerManager) -> None:
        """A request that was aborted in the waiting queue (managers/tokenizer_manager.py:3577@0.5.23)."""
        if item["health"]:
            return
        self.finished = True
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": {"type": "abort", "message": m.ABORT_WAITING.text},
            "weight_version": tm.weight_version,
            "e2e_latency": tm.loop.now - self.created,
        }
        if item["spans"] is not None:
            _put_spans(meta, item["spans"], len(self.output_ids))
        if self.logprobs is not None:
            meta.update(logprob_info(self.logprobs, [], item["rows"][: len(self.output_ids)]))
        meta["completion_tokens"] = len(self.output_ids)
        if tm.profile.lora_release == "every":
            self.release_lora(tm)
        if not tm.profile.queue_abort_keeps_rid:
            tm.states.pop(self.rid, None)
        only_last = self.stream and tm.profile.queue_abort_streams == "last"
        output_ids = self.output_ids[-1:] if only_last else list(self.output_ids)
        self.outputs.append({"text": "", "output_ids": output_ids, "meta_info": meta})
        self.event.set()


def _put_spans(meta: dict[str, Any], spans: list[dict[str, Any]], count: int) -> None:
    """Those of the `count` tokens that are answered: a queued request that is aborted may have more in the scheduler
    (utils/weight_versions.py:90@0.5.23)."""
    visible = [span for span in spans if span["start"] < count or span["start"] == 0]
    meta["weight_versions"] = [{**span, "end": min(span["end"], count)} for span in visible]
    meta["weight_version"] = visible[-1]["version"]


def logprob_info(wanted: Logprobs, inputs: list[LogprobRow], outputs: list[LogprobRow]) -> dict[str, Any]:
    """The log-probability keys of meta_info: [logprob, token id, text] with text null (no tokenizer)."""

    def plain(rows: list[LogprobRow]) -> list[list[Any]]:
        return [[row.own, row.token, None] for row in rows]

    def several(rows: list[list[tuple[float, int]] | None]) -> list[Any]:
        return [None if row is None else [[value, token, None] for value, token in row] for row in rows]

    info: dict[str, Any] = {
        "input_token_logprobs": plain(inputs),
        "output_token_logprobs": plain(outputs),
        "output_token_logprobs_length": len(outputs),
    }
    if wanted.top > 0:
        info["input_top_logprobs"] = several([row.top for row in inputs])
        info["output_top_logprobs"] = several([row.top for row in outputs])
    if wanted.token_ids is not None:
        info["input_token_ids_logprobs"] = several([row.ids for row in inputs])
        info["output_token_ids_logprobs"] = several([row.ids for row in outputs])
    return info


class Generator:
    """Runs generation requests for one tokenizer manager."""

    def __init__(self, tm: TokenizerManager, *, context_len: int, max_req_len: int, epoch: float = 0.0) -> None:
        self._tm = tm
        self._context_len = context_len
        self._max_req_len = min(context_len - 1, max_req_len - 1)
        self._number = 0
        self._epoch = epoch

    def new_rid(self) -> str:
        """32 hex digits, like uuid4().hex, but the same in every run."""
        import hashlib

        self._number += 1
        return hashlib.md5(f"{self._tm.config.random_seed}:{self._number}".encode(), usedforsecurity=False).hexdigest()

    async def run(self, request: GenerateRequest, emit: Callable[[Any], None] | None, states: dict[str, State]) -> Any:
        """The reply: one object or a list. Chunks of a stream go to `emit`. `states` is filled for a later disconnect.

        ValueError for what SGLang refuses with a 400; Aborted for a finish reason with a status.
        """
        tm = self._tm
        for item in request.items:
            item.rid = item.rid or self.new_rid()
            if item.rid in tm.states:
                for mine in states.values():
                    tm.states.pop(mine.rid, None)
                raise ValueError(m.DUPLICATE_RID(rid=item.rid))
            self._new_state(item.rid, request.stream, states)
        try:
            async with tm.pause_cond:
                await tm.pause_cond.wait_for(lambda: not tm.is_pause)
            self._heed_aborts(request.items, states)
            async with tm.update_lock.reader:
                await self._resolve_lora(request, states)
                self._heed_aborts(request.items, states)
                if request.refusal:
                    raise ValueError(request.refusal)
                if request.n > 1:
                    items = await self._sample_in_parallel(request, states)
                else:
                    items = request.items
                    for item in items:
                        self._dispatch(item, *self._prepare(item), states, request.stream)
                return await self._collect(items, request, emit, states)
        except BaseException:
            self._release(states)
            raise

    async def _resolve_lora(self, request: GenerateRequest, states: dict[str, State]) -> None:
        """Names become ids, each counted as in use: once per prompt and answer (managers/tokenizer_manager.py:3744,
        managers/io_struct.py:635@0.5.23)."""
        if not self._tm.config.enable_lora or not any(item.lora for item in request.items):
            return
        names = [item.lora for item in request.items] * request.n
        for item, lora_id in zip(request.items, await self._tm.lora.acquire(names), strict=False):
            item.lora_id = states[str(item.rid)].lora_id = lora_id

    def _heed_aborts(self, items: list[Item], states: dict[str, State]) -> None:
        """RequestAborted when one of them was aborted (managers/tokenizer_manager.py:785,789,1826@0.5.17)."""
        for item in items:
            if self._tm.profile.abort_remembered and states[str(item.rid)].aborted:
                raise RequestAborted(m.REQUEST_ABORTED(rid=item.rid))

    def _new_state(self, rid: str, stream: bool, states: dict[str, State]) -> State:
        state = State(self._tm, rid, stream)
        first = next(iter(states.values()), None)
        state.disconnected = first is not None and first.disconnected
        states[rid] = self._tm.states[rid] = state
        return state

    async def _sample_in_parallel(self, request: GenerateRequest, states: dict[str, State]) -> list[Item]:
        """Every prompt once without output, to cache its prefix, then n times. What is wrong with any of them is said
        before the first is sent, and the one without output is not verified again
        (managers/tokenizer_manager.py:2124@0.5.22)."""
        prepared = [(item, *self._prepare(item)) for item in request.items]
        for item, prompt, sampling in prepared:
            self._heed_aborts([item], states)
            warm = self._copy(item, states, stream=False)
            if self._tm.profile.lora_release == "every":  # before, it gave back what its samples had taken
                states[str(warm.rid)].lora_id = None
            silent = dataclasses.replace(sampling, max_new_tokens=0)
            await self._next(self._dispatch(warm, prompt, silent, states, stream=False))
            self._heed_aborts([item], states)
        samples = []
        for item, prompt, sampling in prepared:
            self._heed_aborts([item], states)
            self._tm.states.pop(str(item.rid), None)
            states[str(item.rid)].lora_id = None
            for _ in range(request.n):
                sample = self._copy(item, states, stream=request.stream)
                self._dispatch(sample, prompt, sampling, states, request.stream)
                samples.append(sample)
        return samples

    def _copy(self, item: Item, states: dict[str, State], *, stream: bool) -> Item:
        """The same prompt under a name that the caller does not know."""
        rid = self.new_rid()
        state = self._new_state(rid, stream, states)
        state.asked, state.lora_id = False, item.lora_id
        return dataclasses.replace(item, rid=rid)

    def _prepare(self, item: Item) -> tuple[list[int], Sampling]:
        limit = self._max_req_len - 5
        return prepare(self._tm.profile, item, self._context_len, limit, self._max_req_len)

    def _dispatch(
        self, item: Item, prompt: list[int], sampling: Sampling, states: dict[str, State], stream: bool
    ) -> State:
        assert item.rid is not None
        state = states[item.rid]
        state.logprobs = item.logprobs
        self._number += 1
        req = Req(
            rid=item.rid,
            prompt=prompt,
            sampling=sampling,
            stream=stream,
            logprobs=item.logprobs,
            extra_key=item.extra_key if item.lora_id is None else (item.extra_key or "") + item.lora_id,
            lora_id=item.lora_id,
            health=item.rid.startswith(HEALTH_PREFIX),
            number=self._number,
        )
        state.dispatched = True
        self._tm.send("generate", {"req": req})
        return state

    async def _collect(
        self,
        items: list[Item],
        request: GenerateRequest,
        emit: Callable[[Any], None] | None,
        states: dict[str, State],
    ) -> Any:
        mine = [states[item.rid] for item in items if item.rid is not None]
        if request.stream and emit is not None:
            tasks = [
                self._tm.loop.spawn(self._stream(state, emit, None if request.single else index), "stream")
                for index, state in enumerate(mine)
            ]
            try:
                for task in tasks:
                    await task
            except Cancelled:
                for task in tasks:
                    task.cancel()
                raise
            return None
        outputs = [await self._last(state) for state in mine]
        return outputs[0] if request.single else outputs

    async def _stream(self, state: State, emit: Callable[[Any], None], index: int | None) -> None:
        while not state.finished:
            out = await self._next(state)
            emit(out if index is None else {**out, "index": index})

    async def _last(self, state: State) -> dict[str, Any]:
        while True:
            out = await self._next(state)
            if state.finished:
                self._raise_abort(out)
                return out

    async def _next(self, state: State) -> dict[str, Any]:
        """The newest output. A client that went away is noticed every 4 s, then the request is aborted."""
        while not state.outputs:
            if state.disconnected:
                await self._tm.loop.sleep(DISCONNECT_POLL_S)
                if state.outputs:
                    break
                self._tm.abort_request(state.rid)
                raise ValueError(
                    f"Request is disconnected from the client side (type 1). Abort request obj.rid={state.rid!r}"
                )
            await state.event.wait()
        out, state.outputs = state.outputs[-1], []
        state.event.clear()
        if not state.responded:
            state.responded = True
            out["meta_info"]["response_sent_to_client_ts"] = self._epoch + self._tm.loop.now
        return out

    def _raise_abort(self, out: dict[str, Any]) -> None:
        """Which status codes of a finish reason become the HTTP status (managers/tokenizer_manager.py:1891@0.5.23)."""
        finish = out["meta_info"]["finish_reason"]
        status = finish.get("status_code")
        if finish["type"] != "abort" or status is None:
            return
        wide = self._tm.profile.abort_statuses == "4xx5xx"
        if (400 <= status < 600) if wide else status in (400, 500, 503):
            raise Aborted(status, finish["message"])

    def _release(self, states: dict[str, State]) -> None:
        """Forget what was not sent, abort what was (managers/tokenizer_manager.py:3850@0.5.23).

        0.5.18 and 0.5.19 forget both, so that what was sent runs on for nobody; 0.5.12 forgets nothing.
        """
        fate = self._tm.profile.failed_generation
        if fate == "leak":
            return
        for rid, state in states.items():
            if self._tm.states.get(rid) is not state:
                continue
            if state.dispatched and fate == "abort":
                self._tm.abort_request(rid)
            else:
                del self._tm.states[rid]
                if self._tm.profile.lora_release == "every":
                    state.release_lora(self._tm)

    async def abort_later(self, states: dict[str, State]) -> None:
        """What a stream's background task does 2 s after its client left: it aborts the names that the client gave,
        whoever bears them by then (managers/tokenizer_manager.py:1606@0.5.12.post1, 2427@0.5.22)."""
        await self._tm.loop.sleep(2.0)
        for rid, state in states.items():
            if state.asked:
                self._tm.abort_request(rid)

    def disconnect(self, states: dict[str, State]) -> None:
        """The client of these prompts went away; they do not stream."""
        for state in states.values():
            state.disconnected = True
            state.event.set()
