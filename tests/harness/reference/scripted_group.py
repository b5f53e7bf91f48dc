"""A scripted group beside scripted engines, for the transport that broadcasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fakes.outcome import Outcome
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine
from harness.reference.transports.distributed import DistributedTransport
from tests.harness.reference.fleet import Rig, state

INIT, DESTROY, UPDATE = "init_weights_update_group", "destroy_weights_update_group", "update_weights_from_distributed"
NAME = {"group_name": "weight_update_group"}


class Default:
    """The trainer's own group."""

    bound_device_id: object = "cuda:0"


@dataclass
class Groups:
    """Groups whose `join` and `wait` do what the test says; everything lies in one list with the engines' calls."""

    events: list[str]
    default: Any = None
    env: dict[str, str] = field(default_factory=dict)
    joins: Callable[[float, Callable[[], bool]], bool] = lambda timeout_s, unless: True
    waits: Callable[[float, Callable[[], bool]], bool] = lambda timeout_s, unless: True
    sent: list[Any] = field(default_factory=list)
    bound: list[object] = field(default_factory=list)
    address: str = "10.0.0.7"
    port: int = 4242
    backend: str = "gloo"

    def open(self, name: str, world_size: int) -> Groups:
        self.events.append(f"open {name} {world_size}")
        self.bound.append(getattr(self.default, "bound_device_id", None))
        return self

    def join(self, timeout_s: float, *, unless: Callable[[], bool]) -> bool:
        self.events.append(f"join {timeout_s:g}")
        self.bound.append(getattr(self.default, "bound_device_id", None))
        return self.joins(timeout_s, unless)

    def broadcast(self, array: Any) -> int:
        self.sent.append(array)
        return len(self.sent)

    def wait(self, sent: Any, timeout_s: float, *, unless: Callable[[], bool]) -> bool:
        self.events.append(f"wait for {len(list(sent))}, {timeout_s:g}")
        return self.waits(timeout_s, unless)

    def close(self) -> None:
        self.events.append("close")


@dataclass
class Lock:
    events: list[str]

    def holder(self) -> str:
        return ""

    def try_acquire(self, owner: str, lease_s: float) -> bool:
        self.events.append(f"lock {owner} {lease_s:g}")
        return True

    def release(self, owner: str) -> bool:
        self.events.append(f"unlock {owner}")
        return True


class Call:
    """A call that was started; `done` once its answer is there."""

    def __init__(self, wait: Callable[[], Outcome], *, done: bool) -> None:
        self.wait, self.done = wait, done

    def __call__(self) -> Outcome:
        return self.wait()


class Direct:
    def __init__(self, engines: int = 1, tp: int = 1, spare: int = 0) -> None:
        self.rig = Rig(engines=engines, tp=tp, spare=spare)
        self.events = self.rig.order
        self.groups = self.rig.kit.groups = Groups(self.events)  # type: ignore[assignment]
        self.rig.kit.lock = Lock(self.events)
        self.transport = DistributedTransport(self.rig.kit, self.rig.world.clock, 64)  # type: ignore[arg-type]
        self.engines = [Engine(e, (), 0) for e in self.rig.e]  # type: ignore[arg-type]
        self.timeouts: list[tuple[str, float]] = []
        self.answered_at_once: set[str] = set()
        for e in self.rig.e:
            e.start = self.timed(e.start)  # type: ignore[method-assign]

    def timed(self, start: Any) -> Any:
        def timed_start(op: str, body: Any = None, *, method: str = "POST", timeout_s: float) -> Any:
            self.timeouts.append((op, round(timeout_s, 6)))
            return Call(start(op, body, method=method, timeout_s=timeout_s), done=op in self.answered_at_once)

        return timed_start

    def deadline(self, total: float = 100.0, spent: float = 0.0) -> Deadline:
        made = Deadline(self.rig.world.clock, total)
        self.rig.world.sleep(spent)
        return made

    def connect(self, total: float = 100.0) -> bool:
        return self.transport.connect(self.engines, self.deadline(total))

    def send(self, tensors: Any = None) -> int:
        return self.transport.send(self.engines, self.deadline(), state() if tensors is None else tensors, "v1")

    def told(self, op: str) -> list[str]:
        return [event.partition(":")[0] for event in self.events if event.endswith(op)]
