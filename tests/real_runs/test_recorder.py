"""The recorder, against a scripted server: what is written, merged and scrubbed."""

import msgspec
import pytest

from fakes.outcome import Outcome
from fakes.trace import Complete, Fact, Header, Invoke, TraceWriter
from harness.gate import FaultGate
from harness.history_files import read_records, write_records
from real_runs import recorder as module
from real_runs.comparing import exchanges
from real_runs.env import SglangEnv
from real_runs.models import TinyModel
from real_runs.performing import perform
from real_runs.recorder import Recorder, header, merged, renumbered, scrub
from real_runs.sequence import Sequence, call, generate, payload, whole

MODEL = TinyModel("llama", False, "float32", 1)


class ScriptedServer:
    def __init__(self, env, spec, folder, progress):
        self.spec, self.alive, self.starts, self.asked = spec, False, 0, []
        self.returncode, self.log_path = None, folder / "log"

    client = property(lambda self: self)

    def start(self):
        self.alive, self.returncode = True, None
        self.starts += 1

    def stop(self):
        self.alive = False

    def wait_dead(self, timeout_s):
        return not self.alive

    def cause_of_death(self):
        return "IndexError: list index out of range"

    def request(self, method, op, body=None, **options):
        self.asked.append((op, body))
        if op == "kill":
            self.alive, self.returncode = False, -9
            return Outcome(ending="dropped", error="RemoteDisconnected")
        if not self.alive:
            return Outcome(ending="refused", error="ConnectionRefusedError")
        if op == "generate":
            return Outcome(ending="reply", status=200, body={"output_ids": [1, 2]})
        return Outcome(ending="reply", status=200, body={"success": True, "model_path": str(self.spec.model)})


def recorded(monkeypatch, tmp_path, sequences, saved=None):
    saved = [] if saved is None else saved
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "Server", ScriptedServer)
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    made = Recorder(SglangEnv("0.5.23", tmp_path, tmp_path), MODEL, "plain", tmp_path, lambda line: None)
    made.record(sequences, lambda so_far: saved.append(list(so_far)))
    return made, saved


def one(name, *steps, **options):
    return Sequence(name=name, about=name, steps=list(steps), **options)


def test_one_server_serves_all_harmless_sequences(monkeypatch, tmp_path):
    made, saved = recorded(monkeypatch, tmp_path, [one("a", call("x")), one("b", call("y"))])

    assert made.server.starts == 1
    assert not made.server.alive
    assert [exchange.name for exchange in exchanges(saved[-1])] == ["a", "b"]
    assert isinstance(saved[-1][0], Header)


def test_resets_are_not_recorded(monkeypatch, tmp_path):
    _, saved = recorded(monkeypatch, tmp_path, [one("a", call("x"))])

    assert [record.op for record in saved[-1] if isinstance(record, Invoke)] == ["x"]


def test_a_death_is_recorded_and_the_next_sequence_gets_a_new_server(monkeypatch, tmp_path):
    sequences = [one("a", call("kill"), call("x"), fatal=True), one("b", call("kill"), fatal=True)]
    made, saved = recorded(monkeypatch, tmp_path, sequences)

    assert made.server.starts == 2
    assert len(saved) == 2  # after each death
    first = exchanges(saved[-1])[0]
    assert first.died
    assert [answer.ending for answer in first.answers] == ["dropped", "refused"]
    facts = [record.data for record in saved[-1] if isinstance(record, Fact)]
    assert facts[0] == {"dead": True, "returncode": -9, "cause": "IndexError: list index out of range"}


def test_a_tainted_server_is_replaced(monkeypatch, tmp_path):
    made, _ = recorded(monkeypatch, tmp_path, [one("a", call("x"), taints=True), one("b", call("y"))])

    assert made.server.starts == 2


def test_an_interrupted_recording_keeps_the_sequences_that_were_whole(monkeypatch, tmp_path):
    saved = []

    def perform_until_interrupted(sequence, port, gate):
        perform(sequence, port, gate)
        if sequence.name == "b":
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "perform", perform_until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorded(monkeypatch, tmp_path, [one("a", call("x")), one("b", call("y")), one("c", call("z"))], saved)

    assert [[exchange.name for exchange in exchanges(records)] for records in saved] == [["a"]]


def test_recipes_are_filled_for_the_server_and_kept_in_the_record(monkeypatch, tmp_path):
    body = {"serialized_named_tensors": payload(whole(1)), "model_path": {"$model": 1}}
    made, saved = recorded(monkeypatch, tmp_path, [one("a", call("x", body), call("generate", generate()))])
    sent = dict(made.server.asked)["x"]

    assert [type(entry) for entry in sent["serialized_named_tensors"]] == [str]
    assert sent["model_path"].startswith(str(tmp_path))
    assert next(record.request for record in saved[-1] if isinstance(record, Invoke)) == body


def history(*names, body="x"):
    writer = TraceWriter()
    writer.write(header("0.5.23", MODEL, "plain"))
    gate = FaultGate(writer, lambda: 0.0)

    class Port:
        def request(self, step):
            return Outcome(ending="reply", status=200, body=body)

    for name in names:
        perform(one(name, call("x")), Port(), gate)
    return writer.records


def test_a_new_recording_of_one_sequence_replaces_it_in_the_file(tmp_path):
    path = tmp_path / "file.jsonl.xz"
    write_records(path, history("session/whole", "flush/idle"))
    records = merged(path, history("flush/idle", body="new"))
    write_records(path, records)

    found = {exchange.name: exchange.answers[0].body for exchange in exchanges(read_records(path))}
    assert found == {"session/whole": "x", "flush/idle": "new"}
    assert [record.seq for record in records if record.engine == "e0"] == [1, 2, 3, 4]
    assert [record.call for record in records if isinstance(record, Invoke | Complete)] == [1, 1, 2, 2]


def test_what_a_file_has_already_need_not_be_recorded_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find", lambda version: SglangEnv(version, tmp_path, tmp_path))
    performed = []
    monkeypatch.setattr(
        Recorder, "record", lambda self, sequences, after: performed.append([e.name for e in sequences])
    )
    options = {"version": "0.5.23", "tp": 1, "shape": "llama", "tied": False, "dtype": "float32", "flavour": "plain"}
    options |= {"suffix": "", "progress": lambda line: None, "missing": True}
    have = {entry.name: entry for entry in module.catalogue()}
    writer = TraceWriter()
    writer.write(header("0.5.23", MODEL, "plain"))
    gate = FaultGate(writer, lambda: 0.0)
    perform(have["validation/continue"], ScriptedServerPort(), gate)
    perform(have["shape/short-columns"], ScriptedServerPort(), gate)  # its recipe has a tuple, a file has none
    perform(msgspec.structs.replace(have["flush/idle"], about="in another form"), ScriptedServerPort(), gate)
    write_records(tmp_path / "0.5.23-tp1-llama-float32-plain.jsonl.xz", writer.records)
    names = {"validation/continue", "shape/short-columns", "flush/idle", "session/whole"}

    module.record_file(tmp_path, wanted=lambda entry: entry.name in names, **options)

    assert performed == [["session/whole", "flush/idle"]]


class ScriptedServerPort:
    def request(self, step):
        return Outcome(ending="reply", status=200)


def test_a_sequence_that_the_catalogue_no_longer_has_is_dropped(tmp_path):
    path = tmp_path / "file.jsonl.xz"
    write_records(path, history("session/whole", "no/such"))

    assert [e.name for e in exchanges(merged(path, history("flush/idle")))] == ["session/whole", "flush/idle"]


def test_a_file_of_other_weights_is_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "file.jsonl.xz"
    write_records(path, history("session/whole"))
    monkeypatch.setattr(TinyModel, "digest", lambda self, seed: "other")

    assert [e.name for e in exchanges(merged(path, history("flush/idle")))] == ["flush/idle"]


def test_paths_of_the_machine_become_words():
    records = history("session/whole", body={"message": 'File "/home/me/env/sglang/x.py"'})
    scrubbed = scrub(records, {"/home/me/env/": ""})

    assert exchanges(scrubbed)[0].answers[0].body == {"message": 'File "sglang/x.py"'}


def test_numbers_grow_through_the_file():
    records = renumbered([*history("session/whole"), *history("flush/idle")[1:]])

    assert [record.call for record in records if isinstance(record, Invoke)] == [1, 2]
