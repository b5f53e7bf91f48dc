"""What goes into the engine core and what comes out: typed events and effects, no I/O.

`EngineCore.step(event, now) -> list[Effect]` with `now` in virtual seconds; `next_deadline()` says when a
`Tick` is due. The front performs the I/O effects (`OpenPayload`, `ReadDisk`, `Join`, `Recv`) and feeds back `Done`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

Via = Literal["http", "engine"]


class Call(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One request to the engine.

    `via="http"`: `body` is the raw request body (bytes) or the JSON value already decoded; routing, auth and
    validation apply.
    `via="engine"`: `body` holds the keyword arguments of the request struct; no HTTP validation applies,
    `Reply.value` is what SGLang's Engine returns.
    """

    id: int
    path: str
    method: str = "POST"
    body: Any = None
    query: dict[str, str] = {}
    bearer: str | None = None
    content_type: str = "application/json"
    via: Via = "http"


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """The caller of `id` went away."""

    id: int


class Raised(msgspec.Struct, frozen=True):
    """An exception as data: `type` is the class name that SGLang's log shows."""

    type: str
    message: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """The front finished the I/O effect `id`: a value, or the exception that it raised."""

    id: int
    value: Any = None
    error: Raised | None = None


class Tick(msgspec.Struct, frozen=True, tag=True):
    """Time has passed; nothing else happened."""


Event = Call | Cancel | Done | Tick


class Reply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The last word on call `id`. `media` is json, text or empty; `value` is the in-process return value."""

    id: int
    status: int
    body: Any = None
    media: Literal["json", "text", "empty"] = "json"
    value: Any = None


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The stream of call `id` has begun: status 200 and its headers are out, whatever may follow."""

    id: int


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The connection of call `id` is closed amid its stream: the handler raised after the headers were out."""

    id: int
    error: Raised


class Token(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One streamed chunk of call `id`: the JSON object of a `data:` line."""

    id: int
    chunk: Any


class Die(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The process tree is gone. Every open call is dropped, every later one refused."""

    rank: int
    error: Raised


class Freeze(msgspec.Struct, frozen=True, tag=True):
    """The process that serves HTTP answers nothing from now until `until`, when it dies; the kernel still connects."""

    until: float


class Block(msgspec.Struct, frozen=True, tag=True):
    """Scheduler `rank` waits for the I/O effect `id` and does nothing else."""

    rank: int
    id: int


class Barrier(msgspec.Struct, frozen=True, tag=True):
    """All TP ranks of the engine met after `op`."""

    op: str


class Observed(msgspec.Struct, frozen=True, tag=True):
    """A fact of source core, for the trace."""

    name: str
    data: dict[str, Any]


class OpenPayload(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Unpickle one rank's payload with the profile's allow-list; Done.value is `list[(name, ndarray)]`.

    `unpickle_only`: no runner will load it (a selector without one), so that is all that happens to it.
    """

    id: int
    rank: int
    data: bytes
    load_format: str | None
    unpickle_only: bool = False


class OpenAdapter(OpenPayload, frozen=True, tag=True, kw_only=True):
    """The same of a LoRA adapter's payload; Done.value as `lora_payload.open_adapter` gives it."""


class ReadDisk(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """One rank reads a Hugging Face folder; Done.value is `list[(name, ndarray)]`.

    `looks_only`: it lists the files and opens none; Done.value is then empty.
    """

    id: int
    path: str
    load_format: str | None = None
    rank: int = 0
    looks_only: bool = False


class ReadAdapter(ReadDisk, frozen=True, tag=True, kw_only=True):
    """Read a LoRA adapter's folder; Done.value is (adapter_config.json, added_tokens.json or None, its tensors by name
    or the words of what kept them from being read)."""


class IpcTurn(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One turn of a checkpoint-engine worker at the socket `address`, which it is the answering side of.

    Sends `reply` (None: nothing is owed yet, so connect), then waits for the next request; Done.value is an
    `ipc_wire.Message`, Done.error what the socket raised.
    """

    id: int
    rank: int
    address: str
    reply: bytes | None


class IpcClose(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The worker of `rank` sends its last reply, if it owes one, and closes its socket. There is no `Done`."""

    rank: int
    address: str
    reply: bytes | None


class Join(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Rendezvous of one scheduler rank in a weight-update group."""

    id: int
    rank: int
    group_name: str
    master_address: str
    master_port: int
    group_rank: int
    world_size: int
    backend: str
    store_only: bool = False
    """Connect to the group's store and no further: what comes next will be refused in this process."""


class Leave(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One scheduler rank closes its side of a group. Nothing is waited for, so there is no `Done`."""

    rank: int
    group_name: str


class Recv(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Receive broadcasts from group rank 0; Done.value is `list[(name, ndarray)]`.

    `waits` False: the broadcasts are posted, but the scheduler has gone on and wants no `Done`.
    """

    id: int
    rank: int
    group_name: str
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    load_format: str | None
    waits: bool = True


Effect = (
    Reply
    | Opened
    | Token
    | Broken
    | Die
    | Freeze
    | Block
    | Barrier
    | Observed
    | OpenPayload
    | ReadDisk
    | IpcTurn
    | IpcClose
    | Join
    | Leave
    | Recv
)


class AnyOf(list[Any]):
    """I/O effects of which the first to be done resumes their handler. `earlier`: ids of others that it waits for."""

    def __init__(self, effects: Iterable[Any], earlier: Iterable[int] = ()) -> None:
        super().__init__(effects)
        self.earlier = dict.fromkeys(earlier)


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The launch arguments that change behaviour, under SGLang's own names where it has one.

    `profile` is a key of `fakes.engine.profiles.PROFILES` ("0.5.23", "miles", ...). `dtype` is bfloat16 or float32.
    `strict_memory` poisons resumed weights instead of zeroing them. `stale_batch_steps` keeps the last batch for so
    many decode steps after its last response (the race of sgl-project/sglang#14062, made certain).
    """

    profile: str = "0.5.23"
    model_path: str = ""
    tp_size: int = 1
    dp_size: int = 1
    dtype: str = "bfloat16"
    device: Literal["cpu", "cuda"] = "cpu"
    enable_memory_saver: bool = False
    enable_weights_cpu_backup: bool = False
    strict_memory: bool = False
    api_key: str | None = None
    admin_api_key: str | None = None
    weight_version: str = "default"
    max_total_tokens: int = 2048
    max_running_requests: int = 8
    watchdog_timeout: float = 300.0
    health_generation: bool = True
    checker_cuda_shim: bool = False
    stale_batch_steps: int = 0
    random_seed: int = 0
    quantisation: Literal["", "fp8-tensor", "fp8-online", "fp8", "mxfp8", "mxfp8-trtllm"] = ""
    """How the linear layers are stored: `fakes.engine.quantised.SCHEMES`. The weights of such an engine are those of a
    quantised checkpoint."""
    base_gpu_id: int = 0
    checkpoint_engine: Literal["", "0.1.2", "0.4.2"] = ""
    """The checkpoint-engine package beside SGLang: none, the one that it pins (0.1.2 in every release), or a later
    one."""
    eagle_draft: bool = False
    """Whether an EAGLE draft lies beside the target: `fakes.engine.draft`."""
    enable_draft_weights_cpu_backup: bool = False
    enable_lora: bool = False
    max_lora_rank: int | None = None
    lora_target_modules: list[str] = []
    max_loras_per_batch: int = 8
    max_loaded_loras: int | None = None
    launch_command: str | None = None
    """The command line that launched it, for /server_info."""
