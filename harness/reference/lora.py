"""The reference client for adapters: every refit loads a new one under a name of its own, and gives the old ones back.

Nothing is paused or flushed: requests go on with the adapter that they named, prefixes are cached by adapter, and an
unload waits for the requests that use it. So a name is never used twice; one is unloaded when two newer ones are
there, since requests may have been sent under the last; and what a failed refit loaded is given back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, ask, raise_failed, said_no
from harness.reference.errors import BadSetup, BadState, BrokenGather, CallFailed, NoEngines
from harness.reference.markers import Markers
from harness.reference.transports.tensor import TensorTransfer, Trainer
from harness.sut.protocol import RefitResult

PHASE = "transfer"
LOAD, UNLOAD = "load_lora_adapter_from_tensors", "unload_lora_adapter"
KEPT = 2
"""Adapters on an engine after a refit: the new one, and the one before."""

ONE_CALL = 1 << 62
"""Bytes: an adapter travels whole."""

Incarnation = tuple[str, int]


@dataclass
class AdapterTransfer(TensorTransfer):
    """One adapter to all engines, a whole copy to every rank of each: SGLang cuts it there."""

    name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    one_payload: bool = False
    """0.5.12: all ranks open the same one."""

    def _post(self, engine: Engine, parcel: Any, payloads: Sequence[str | BaseException | None]) -> None:
        for rank, payload in zip(engine.ranks, payloads, strict=True):
            if isinstance(payload, BaseException):
                raise payload
            if not isinstance(payload, str):
                raise BrokenGather(f"{PHASE}: no payload for {engine.name} from trainer rank {rank}")
        body: dict[str, Any] = {"lora_name": self.name, "config_dict": dict(self.config)}
        body["load_format"] = "flattened_bucket"
        if self.one_payload:
            body["serialized_tensors"] = payloads[0]
        else:
            body["serialized_named_tensors"] = list(payloads)
        outcome = engine.endpoint.request(LOAD, body, timeout_s=self.deadline.work(PHASE))
        if not outcome.ok:
            raise CallFailed(PHASE, engine.name, outcome)


class LoraClient:
    """Pushes adapters to a fleet. `config` is adapter_config.json; `serving` the name that requests are to use."""

    def __init__(
        self,
        trainer: Trainer,
        markers: Markers,
        roster: Callable[[], Sequence[Engine]],
        config: Mapping[str, Any],
        *,
        one_payload: bool,
    ) -> None:
        if not config:
            raise BadSetup("adapters are to be sent, and nothing says of which rank, alpha and modules")
        self.version: str | None = None
        self.serving = ""
        self.index = 0
        self._trainer = trainer
        self._markers = markers
        self._roster = roster
        self._config = dict(config)
        self._one_payload = one_payload
        self._loaded: dict[Incarnation, list[str]] = {}

    def refit(self, state: Mapping[str, Any], version: str, deadline: Deadline) -> RefitResult:
        """Load `state` (PEFT names) on every engine, name it in requests from then on, unload what is older."""
        self.index += 1
        with self._markers.refit(transfer="lora", index=self.index, version=version):
            if not state:
                raise BadState("an adapter without tensors")
            engines = [e for e in self._roster() if not e.lost]
            if not engines:
                raise NoEngines("every engine is lost")
            name = f"policy-{version}-{self.index}"
            try:
                self._markers.phase = PHASE
                self._load(engines, state, name, deadline)
            except BaseException:
                self._give_back(engines, [name], deadline)
                raise
            self.serving, self.version = name, version
            self._markers.phase = "retire"
            for e, names in list(self._held(engines)):
                self._unload([e], names[:-KEPT], deadline.work("retire"))
        return RefitResult(version=version, buckets=1)

    def offload(self, deadline: Deadline) -> None:
        """Adapters are sent to engines that keep their memory."""
        raise BadState("a client of adapters takes no memory of its engines")

    def close(self) -> None:
        """Engines keep what they have: whoever runs the fleet ends them."""

    def _load(self, engines: Sequence[Engine], state: Mapping[str, Any], name: str, deadline: Deadline) -> None:
        for e in engines:  # also where the answer is lost
            self._names(e).append(name)
        AdapterTransfer(
            self._trainer,
            engines,
            deadline,
            state,
            name,
            ONE_CALL,
            name=name,
            config=self._config,
            one_payload=self._one_payload,
        ).run()

    def _names(self, e: Engine) -> list[str]:
        return self._loaded.setdefault((e.name, e.incarnation), [])

    def _held(self, engines: Sequence[Engine]) -> Iterator[tuple[Engine, list[str]]]:
        for e in engines:
            yield e, self._names(e)

    def _unload(self, engines: Sequence[Engine], names: Sequence[str], timeout_s: float) -> None:
        for name in names:
            answers = ask(engines, UNLOAD, {"lora_name": name}, timeout_s)
            for e, outcome in answers:
                if outcome.ok or said_no(outcome):
                    self._names(e).remove(name)
            raise_failed("unload", [(e, o) for e, o in answers if not said_no(o)])

    def _give_back(self, engines: Sequence[Engine], names: Sequence[str], deadline: Deadline) -> None:
        """After a load that failed somewhere. What cannot be unloaded now is so by a later refit."""
        try:
            self._unload(engines, names, deadline.giving_back("unload"))
        except Exception as later:
            del later  # the failure of the load is what is told
