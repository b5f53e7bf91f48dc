"""What scenarios ask of clean engines is foreseen, or every run on a real lane starts one server more."""

import json

import pytest

from harness.lanes.base import EngineSpec
from real_runs import questions


@pytest.mark.parametrize("version", ["0.5.23"])
def test_every_question_of_the_scenarios_is_kept(version):
    found = questions.collect([version])
    kept = json.loads(questions.path().read_text("utf-8"))
    unknown = {
        model: sorted(set(asked) - {(seed, tuple(prompt), n) for seed, n, prompt in kept.get(model, [])})
        for model, asked in found.items()
    }

    assert not any(unknown.values()), f"run `refitcheck real questions`: {unknown}"


def test_what_is_written_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "path", lambda: tmp_path / "q.json")
    questions.write({"llama-bfloat16": [(0, (1, 2), 8), (1, (3,), 4)], "qwen2-tied-float32": [(0, (5,), 1)]})

    assert questions.kept(EngineSpec("0.5.23")) == [(0, (1, 2), 8), (1, (3,), 4)]
    assert questions.kept(EngineSpec("0.5.23", shape="qwen2", tied=True, dtype="float32")) == [(0, (5,), 1)]
    assert questions.kept(EngineSpec("0.5.23", shape="qwen3")) == []
