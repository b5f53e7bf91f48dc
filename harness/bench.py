"""What a scenario gets: engines, the system under test, canaries, traffic, notes. It acts and records, never judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.bench_engines import CANARY_LENGTH, CANARY_TOKENS, VOCABULARY, EngineBench, answer_of, generation
from harness.errors import HarnessError, RefitcheckError, Unsupported, UsageError
from harness.faults import Fault, parse_fault
from harness.gate import FaultGate
from harness.lanes.base import EngineHandle, EngineSpec, Lane
from harness.sut.protocol import Caps, Endpoint, Fleet, RefitResult, Sut
from harness.watchdog import Hung, watched
from harness.words import cut, text_of, told

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CANARY_LENGTH", "CANARY_TOKENS", "VOCABULARY", "Bench", "Refitted", "answer_of", "generation"]

CLOSE_S = 5.0  # real seconds for a client that is given up
_WORLDS_OWN = ("WorldBroken", "WorldClosed")  # by name: a lane without a world need not import it


@dataclass(frozen=True)
class Refitted:
    """How one refit of the system under test ended: a result, or the exception that it raised."""

    ok: bool
    result: RefitResult | None = None
    error: BaseException | None = None


class Bench(EngineBench):
    """One scenario's view of a lane. Everything that happens here is in the history.

    Set before the system under test is first asked for: `spare_ranks` gives the trainer ranks that feed no engine,
    `gpus` the colocated GPUs of an engine by its name, one per tp_rank, where they are not dealt out in order.
    `transport` is the way in which the weights are to travel ("" leaves it to the adapter), `transposed` lets the
    policy's export give views of transposed memory. `adapter_config` is the adapter_config.json of what is sent over
    the transport lora.

    `hang_timeout` are the real seconds that code of the client may take (0: no limit); where the lane's clock is not
    virtual a refit's deadline is added.
    """

    def __init__(
        self,
        lane: Lane,
        gate: FaultGate,
        spec: EngineSpec,
        *,
        seed: int = 0,
        sut_factory: Callable[[], Sut] | None = None,
        sut_options: Mapping[str, Any] | None = None,
        sut_name: str = "",
        hang_timeout: float = 0.0,
    ) -> None:
        super().__init__(lane, gate, spec, seed=seed)
        self._sut_factory = sut_factory
        self._sut_options = dict(sut_options or {})
        self._sut: Sut | None = None
        self._candidate: tuple[Sut, Caps] | None = None
        self._sut_name = sut_name or "adapter"
        self._hang_timeout = hang_timeout
        self.spare_ranks = 0
        self.gpus: dict[str, tuple[int, ...]] = {}
        self.transport = ""
        self.transposed = False
        self.adapter_config: dict[str, Any] = {}
        self._setup: dict[str, Any] | None = None
        self._refits = 0
        self.kit: Any = None

    # -- the system under test -----------------------------------------------------------------------------------

    @property
    def sut(self) -> Sut:
        """The system under test, set up with the engines that run when it is first asked for."""
        if self._sut is None:
            if self._sut_factory is None:
                raise Unsupported("no system under test: this is an engine-side run")
            sut, caps = self._made()
            self.note(
                "caps",
                policy=caps.policy,
                pause_mode=caps.pause_mode,
                transports=sorted(caps.transports),
                optional=sorted(caps.optional),
            )
            self._candidate = None
            fleet = self._fleet(caps)
            self._sut = sut  # also while its set-up fails: `abandon_sut` closes it
            with self._adapter("setup()"):
                sut.setup(fleet)
        return self._sut

    def _made(self) -> tuple[Sut, Caps]:
        """The adapter that is set up next, and what it declares; Unsupported when that lacks this bench's transport."""
        assert self._sut_factory is not None
        if self._candidate is None:
            with self._adapter("its factory"):
                sut = self._sut_factory()
            with self._adapter("capabilities()"):
                caps = sut.capabilities()
            if not isinstance(caps, Caps):
                raise HarnessError(f"system under test {self._sut_name!r}: capabilities() gave {caps!r}, no Caps")
            self._candidate = sut, caps
        if self.transport and self.transport not in self._candidate[1].transports:
            raise Unsupported(f"the adapter has no transport {self.transport}")
        return self._candidate

    def engine(self, name: str = "", **overrides: Any) -> EngineHandle:
        """One more engine, once it is known that the client has this bench's transport: a server may take seconds."""
        if self.transport and self._sut is None and self._sut_factory is not None:
            self._made()
        needs = dict(getattr(self._sut_factory, "engine_options", None) or {})
        if needs:
            needs["base_gpu_id"] = sum(e.spec.tp for e in self.engines)
            overrides = {**needs, **dict(self.spec.options), **overrides}
        return super().engine(name, **overrides)

    @contextmanager
    def _adapter(self, doing: str) -> Iterator[None]:
        """What an adapter raises outside a refit is nobody's verdict, nor that it hangs: HarnessError that names it."""
        who = f"system under test {self._sut_name!r}: {doing}"
        try:
            with watched(self._hang_timeout, who):
                try:
                    yield
                except Exception as error:
                    if isinstance(error, (RefitcheckError, Unsupported)) or type(error).__name__ in _WORLDS_OWN:
                        raise
                    raise HarnessError(f"{who} raised {told(error)}") from error
        except Hung as hung:
            raise HarnessError(f"{who}: {hung}") from hung

    @property
    def caps(self) -> Caps:
        """What the adapter can do."""
        return self.sut.capabilities()

    @property
    def declared(self) -> Caps:
        """What it says that it can do, also before it is set up."""
        if self._sut is not None:
            return self.caps
        if self._sut_factory is None:
            raise Unsupported("no system under test: this is an engine-side run")
        return self._made()[1]

    def adapter_attribute(self, name: str) -> Any:
        """What the adapter says about itself under this name; None when it says nothing. It is not set up for it."""
        if self._sut_factory is None:
            raise Unsupported("no system under test: this is an engine-side run")
        sut = self._sut if self._sut is not None else self._made()[0]
        with self._adapter(f"its attribute {name}"):
            return getattr(sut, name, None)

    def _fleet(self, caps: Caps) -> Fleet:
        from harness.endpoint import endpoints_of

        if not self.engines:
            self.engine()
        endpoints = endpoints_of(self.engines, self.gpus)
        kit = self.lane.trainer(self._trainer_ranks(caps, endpoints) + self.spare_ranks)
        if kit is not None:
            kit.transposed = self.transposed
        self.kit = kit
        options = {**self._sut_options, "transport": self.transport}
        held = {str(dict(e.spec.options).get("quantisation") or "") for e in self.engines}
        if held - {""}:
            options["quantisation"] = {"scheme": max(held).split("-")[0]}
        if self.adapter_config:
            options["lora"] = dict(self.adapter_config)
        if self._setup is not None:
            options["setup"] = dict(self._setup)
        return Fleet(
            endpoints=endpoints,
            clock=self.lane,
            version=self.version,
            record=self.record,
            trainer=kit,
            options=options,
        )

    def _trainer_ranks(self, caps: Caps, endpoints: Sequence[Endpoint]) -> int:
        """Colocated: one on every GPU of an engine. Else two, so that there is one beside the source."""
        apart = self._setup is not None and not self._setup.get("colocated", True)
        if apart or self.transport not in ("", "tensor", "ipc", "lora"):
            return max(caps.ranks, 2)
        gpus = max(gpu for endpoint in endpoints for gpu in endpoint.gpu_ids) + 1
        return max(caps.ranks, gpus)

    def construct(self, setup: Mapping[str, Any], **about: Any) -> bool:
        """A new system under test is set up with this (`Caps.optional` "setup"); whether it took it.

        Noted as `construct` with the setup, what it was refused with ("" where it was not) and `about`. The one before
        is closed.
        """
        self.close_sut()
        if self._sut_factory is None:
            raise Unsupported("no system under test: this is an engine-side run")
        sut = self._sut_factory()
        caps = sut.capabilities()
        if "setup" not in caps.optional:
            raise Unsupported("the adapter reads no setup")
        self._setup = dict(setup)
        refused = ""
        try:
            sut.setup(self._fleet(caps))
            self._sut = sut
        except (RefitcheckError, Unsupported):
            raise
        except Exception as error:
            if type(error).__name__ in _WORLDS_OWN:
                raise
            refused = told(error)
        self.note("construct", setup=self._setup, refused=refused, **about)
        return not refused

    def replace_sut(self) -> None:
        """The trainer dies and another starts: what it had open is closed as by the kernel, nobody says farewell."""
        if self._sut is not None:
            self.note("replaced")
            if self.kit is not None:
                self.kit.groups.close()
            self._sut = None

    @property
    def groups(self) -> Any:
        """The trainer's side of weight-update groups, for a scenario that plays the trainer itself."""
        make = getattr(self.lane, "groups", None)
        if make is None:
            raise Unsupported(f"lane {self.lane.name} has no groups between a trainer and its engines")
        return make()

    def close_sut(self) -> None:
        """Tell the system under test that it is over; what it still calls is in the history."""
        if self._sut is not None:
            sut, self._sut = self._sut, None
            self.note("closing")
            with self._adapter("close()"):
                sut.close()

    def abandon_sut(self) -> None:
        """The scenario failed: what the client holds is closed, in bounded time and whatever it says to that."""
        sut, self._sut = self._sut, None
        if sut is None:
            return
        try:
            with watched(CLOSE_S, f"system under test {self._sut_name!r}: close()"):
                sut.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # Hung too: something else is being told
            del error

    def fault(self, *faults: Fault | str) -> None:
        """Plant faults in the client's calls; their `nth` counts from now on."""
        for fault in faults:
            self.gate.plant(parse_fault(fault) if isinstance(fault, str) else fault)

    def when(self, engine: EngineHandle, op: str, nth: int, act: Callable[[], None]) -> None:
        """Do `act` when the client's nth call of `op` to `engine`, from now on, is on its way; it must not wait."""
        self.gate.when(engine.name, op, nth, act)

    def refit(
        self,
        seed: int | None,
        version: str | None = None,
        *,
        deadline_s: float = 60.0,
        state: Mapping[str, np.ndarray] | None = None,
    ) -> Refitted:
        """The policy takes `state` (default: the weights of `seed`), then the client refits; both ends are marked.

        `seed` is what the engines must hold afterwards, None where that is no seed's weights. Never raises for what the
        client does: a deadlock or the death of an in-process engine ends the refit too. Only a client that does not
        come back ends the scenario: `Hung`, after the refit's end is marked with it.
        """
        if state is None:
            if seed is None:
                raise ValueError("a refit needs a seed or a state")
            state = self.weights(seed)
        sut = self.sut
        index, name = self._refits, version or f"v{self._refits + 1}"
        self._refits += 1
        about: dict[str, Any] = {"index": index, "version": name, "seed": seed}
        self.note("refit", phase="start", **about, deadline_s=deadline_s, names=list(state))
        limit = self._hang_timeout
        if limit and self.lane.clock != "virtual":
            limit += deadline_s * getattr(self.lane, "time_scale", 1.0)  # the deadline is in the lane's seconds
        begun = self.now
        try:
            with watched(limit, f"system under test {self._sut_name!r}: refit {index + 1}"):
                done, about_it = self._ended(sut, state, name, deadline_s)
        except Hung as hung:
            if not hung.theirs and self.now - begun <= deadline_s:
                raise HarnessError(f"refit {index + 1}: {hung}, which is ours") from hung
            self.note("refit", phase="end", **about, ok=False, error_type="Hung", error=str(hung), hung=hung.where)
            raise
        sync = getattr(self.lane, "sync", None)  # a client of urls: what it gave up last is to be recorded first
        if sync is not None:
            sync()
        self.note("refit", phase="end", **about, **about_it)
        return done

    @staticmethod
    def _ended(
        sut: Sut, state: Mapping[str, np.ndarray], name: str, deadline_s: float
    ) -> tuple[Refitted, dict[str, Any]]:
        """How a refit ended, and that in words, which are the client's code too: an exception may spin in its text."""
        try:
            sut.set_weights(state, name)
            result = sut.refit(deadline_s)
        except (KeyboardInterrupt, SystemExit, GeneratorExit, Unsupported, UsageError, Hung):
            raise
        except BaseException as error:
            if type(error).__name__ in _WORLDS_OWN:  # a fake broke: that is no client's doing
                raise
            words = {"error_type": type(error).__name__, "error": cut(text_of(error)), "reported": None}
            return Refitted(False, error=error), {"ok": False, **words}
        reported = _bounded(getattr(result, "version", None))
        return Refitted(True, result=result), {"ok": True, "error_type": "", "error": "", "reported": reported}

    def unsupported(self, what: str) -> None:
        """End the scenario: the lane or the adapter lacks `what`."""
        raise Unsupported(what)


def _bounded(value: Any) -> Any:
    return cut(value) if isinstance(value, str) else value
