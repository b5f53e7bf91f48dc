"""Records what a real server answers to the catalogue, one file per server."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec

from fakes.outcome import Outcome
from fakes.tiny import tiny_config
from fakes.trace import AnyRecord, Complete, Header, Invoke, TraceWriter, Trainer
from harness.gate import FaultGate
from harness.history_files import read_records, write_records
from real_runs.cleaning import SETTLE_S, Cleaner
from real_runs.client import Background
from real_runs.comparing import FLOAT_TOLERANCE, by_sequence
from real_runs.env import EnvUsage, SglangEnv, find, pins
from real_runs.models import TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.performing import perform
from real_runs.recipes import fill
from real_runs.sequence import ADMIN_KEY, API_KEY, Flavour, Sequence, Step
from real_runs.sequences import catalogue, select
from real_runs.server import Server, ServerSpec


class RealPort:
    """A real server as a `Port`: recipes become payloads here, and keep their memory until the next sequence."""

    def __init__(self, server: Server, model: TinyModel) -> None:
        self._server, self._model = server, model
        self.payloads = TorchPayloads()

    def request(self, step: Step) -> Outcome:
        """One HTTP call; after a generation, the scheduler's moment to put it away."""
        outcome = self._prepared(step)()
        if step.op == "generate":
            time.sleep(SETTLE_S)
        return outcome

    def start(self, step: Step) -> Background:
        """One HTTP call in a thread; its payload is made before it starts."""
        return _Settling(self._prepared(step))

    def sleep(self, seconds: float) -> None:
        """Real seconds."""
        time.sleep(seconds)

    def _prepared(self, step: Step) -> Callable[[], Outcome]:
        body = fill(step.body, self._model, self.payloads.one, self._model.folder)
        raw = None if step.raw is None else step.raw.encode()
        client = self._server.client
        return lambda: client.request(
            step.method,
            step.op,
            body,
            raw=raw,
            query=step.query,
            bearer=step.bearer,
            timeout_s=step.timeout_s,
        )


class _Settling(Background):
    def result(self, timeout_s: float) -> Outcome:
        outcome = super().result(timeout_s)
        time.sleep(SETTLE_S)
        return outcome


def server_spec(version: str, model: TinyModel, flavour: Flavour) -> ServerSpec:
    """The launch options of a flavour."""
    return ServerSpec(
        version=version,
        model=Path(model.folder(0)),
        tp=model.tp,
        dtype=model.dtype,
        api_key=API_KEY if flavour in ("api_key", "both_keys") else None,
        admin_api_key=ADMIN_KEY if flavour in ("admin_key", "both_keys") else None,
        checker_cuda=flavour == "checker_cuda",
    )


class Recorder:
    """One server, restarted when a sequence killed or tainted it; every sequence begins on clean weights of seed 0."""

    def __init__(
        self, env: SglangEnv, model: TinyModel, flavour: Flavour, folder: Path, progress: Callable[[str], None]
    ) -> None:
        self.env, self.model, self.flavour, self.progress = env, model, flavour, progress
        self.server = Server(env, server_spec(env.version, model, flavour), folder, progress)
        self._cleaner = Cleaner(self.server, model)

    def record(self, sequences: Iterable[Sequence], after: Callable[[list[AnyRecord]], None]) -> None:
        """Perform them all; the server is ended whatever happens.

        `after` gets the history so far, its header first, whenever a server has to be ended, and last; also when
        it is interrupted, without the sequence that was under way.
        """
        writer = TraceWriter()
        writer.write(header(self.env.version, self.model, self.flavour))
        began = time.monotonic()
        gate = FaultGate(writer, lambda: round(time.monotonic() - began, 4))
        whole = saved = len(writer.records)
        try:
            for sequence in sequences:
                self._clean()
                self.progress(sequence.name)
                port = RealPort(self.server, self.model)
                perform(sequence, port, gate)
                if sequence.fatal or not self.server.alive:
                    self._note_death(gate)
                port.payloads.release()
                whole = len(writer.records)
                if sequence.taints or sequence.fatal:
                    self.server.stop()
                    after(writer.records)
                    saved = whole
        finally:
            self.server.stop()
            if whole > saved:
                after(writer.records[:whole])

    def _note_death(self, gate: FaultGate) -> None:
        dead = self.server.wait_dead(15)
        cause = self.server.cause_of_death()
        data = {"dead": dead, "returncode": self.server.returncode, "cause": cause}
        gate.fact("death", data, engine="e0", source="probe")
        self.progress(f"  {'died' if dead else 'LIVES'}: {cause}")

    def _clean(self) -> None:
        if self.server.alive and self._cleaner.reset():
            return
        if self.server.alive:
            self.progress("  a reset did not bring the clean state back: restart")
        self.server.start()
        if not self._cleaner.reset():
            raise RuntimeError(f"a fresh server does not come clean (log: {self.server.log_path})")


def header(version: str, model: TinyModel, flavour: Flavour) -> Header:
    """All that a replay must know to build the same engine."""
    return Header(
        clock="real",
        lane="sglang-cpu",
        engine_version=version,
        tp=model.tp,
        meta={
            "shape": model.shape,
            "tied": model.tied,
            "dtype": model.dtype,
            "flavour": flavour,
            "weights": {str(seed): model.digest(seed) for seed in (0, 1, 2)},
            "recorded": datetime.now(UTC).date().isoformat(),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        },
    )


def scrub(records: Iterable[Any], replacements: dict[str, str]) -> list[Any]:
    """The records with machine paths replaced, so that a recording is the same wherever it is made."""
    out = []
    for record in records:
        text = msgspec.json.encode(record, enc_hook=str).decode()
        for path, word in replacements.items():
            text = text.replace(path, word)
        out.append(msgspec.json.decode(text, type=type(record)))
    return out


def record_file(
    out: Path,
    *,
    version: str,
    tp: int,
    shape: str,
    tied: bool,
    dtype: str,
    flavour: str,
    wanted: Callable[[Sequence], bool],
    suffix: str,
    progress: Callable[[str], None],
    missing: bool = False,
) -> Path:
    """Record the wanted sequences of one server and write the file, named by what the server was; its path.

    `missing`: only those that the file does not have, or has in another form.

    ValueError for an option that is wrong or when nothing is wanted, EnvUsage without an environment (none is made
    here), MalformedHistory when the file is there and broken, OSError when `out` cannot be written, ServerError and
    RuntimeError when the server does not behave.
    """
    pins(version)  # what is wrong is refused before anything costly
    tiny_config(shape, tied, dtype)
    kind = _one_of("flavour", flavour, get_args(Flavour))
    _one_of("dtype", dtype, tuple(FLOAT_TOLERANCE))
    model = TinyModel(shape, tied, dtype, tp)
    path = out / f"{version}-tp{tp}-{shape}{'-tied' if tied else ''}-{dtype}-{flavour}{suffix}.jsonl.xz"
    there = recorded(path, model)  # read in any case: a broken file must not be found when all is recorded
    known = there if missing else {}
    sequences = [
        entry for entry in select(version, tp, kind) if wanted(entry) and known.get(entry.name) != as_recorded(entry)
    ]
    if not sequences:
        raise ValueError("no sequence is wanted of this server")
    env = find(version)
    if env is None:
        raise EnvUsage(f"there is no environment of SGLang {version}; `refitcheck env make {version}` makes it")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass  # it can be written
    words = machine_words(env, model)

    def save(so_far: list[AnyRecord]) -> None:
        write_records(path, merged(path, scrub(so_far, words)))

    folder = Path(tempfile.mkdtemp(prefix="refitcheck-record-"))
    try:
        Recorder(env, model, kind, folder, progress).record(sequences, save)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return path


def _one_of(what: str, text: str, known: tuple[Any, ...]) -> Any:
    if text not in known:
        raise ValueError(f"unknown {what} {text!r}; one of {', '.join(known)}")
    return text


def as_recorded(sequence: Sequence) -> Any:
    """A sequence as a file gives it back: a tuple of its recipes comes back as a list."""
    return msgspec.json.decode(msgspec.json.encode(sequence))


def recorded(path: Path, model: TinyModel) -> dict[str, Any]:
    """The sequences that a file of these weights has, as data, by name."""
    if not path.exists():
        return {}
    records = read_records(path)
    head = records[0]
    if (
        not isinstance(head, Header)
        or head.meta["weights"] != header(head.engine_version, model, "plain").meta["weights"]
    ):
        return {}
    return {name: found[0].data for name, found in by_sequence(records).items() if isinstance(found[0], Trainer)}


def merged(path: Path, records: list[AnyRecord]) -> list[AnyRecord]:
    """The new records, and the sequences of a file of the same weights that were not recorded now."""
    if not path.exists():
        return renumbered(records)
    old = read_records(path)
    head, former = records[0], old[0]
    assert isinstance(head, Header)
    assert isinstance(former, Header)
    if head.meta["weights"] != former.meta["weights"]:
        return renumbered(records)
    kept = {**by_sequence(old), **by_sequence(records)}
    order = [entry.name for entry in catalogue()]
    known = sorted((name for name in kept if name in order), key=order.index)
    return renumbered([head, *(record for name in known for record in kept[name])])


def renumbered(records: list[AnyRecord]) -> list[AnyRecord]:
    """The same records with sequence and call numbers that grow through the whole file."""
    writer = TraceWriter()
    calls: dict[int, int] = {}
    for record in records:
        if isinstance(record, Invoke):
            calls[record.call] = sum(isinstance(former, Invoke) for former in writer.records) + 1
        if isinstance(record, Invoke | Complete):
            record = msgspec.structs.replace(record, call=calls[record.call])
        writer.write(record)
    return writer.records


def machine_words(env: SglangEnv, model: TinyModel) -> dict[str, str]:
    """What names this machine in a recording, and the word for it."""
    site = next((env.folder / "lib").glob("python*"), env.folder) / "site-packages"
    return {**{model.folder(seed): f"MODEL{seed}" for seed in (0, 1, 2)}, f"{site}/": ""}
