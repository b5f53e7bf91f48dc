"""The differential search over HTTP calls, with a second fake in the real side's place."""

import contextlib
from random import Random

import pytest

from conformance.plants import catalogue
from fakes.engine.profiles import profile
from real_runs.comparing import Exchange
from real_runs.fuzz.server_search import Limits, cells, hunt
from real_runs.fuzz.server_steps import CHANGES, ServerVocabulary
from real_runs.fuzz.sides import FakeSide, tiny
from real_runs.fuzz.steps import WIDTH

MODEL = tiny()
VERSION = "0.5.23"
WORDS = ServerVocabulary(profile(VERSION))


def plant(name):
    return next(one for one in catalogue() if one.id == name).apply


def search(under=None, *, steps=120, seed=0, fatal=100, version=VERSION, **more):
    words = ServerVocabulary(profile(version))
    real = FakeSide(version, MODEL, under)
    return hunt(words, real, FakeSide(version, MODEL), Limits(steps, fatal), seed, **more)


def drawn(version=VERSION, count=150):
    words = ServerVocabulary(profile(version))
    some = Random(0)
    return [words.sequence([some.randrange(WIDTH) for _ in range(5)]) for _ in range(count)]


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.20", "0.5.23"])
def test_a_fake_does_not_differ_from_itself(version):
    found = search(version=version, steps=80)
    assert found.found == []
    assert found.steps >= 80
    assert found.left_out["hangs"] == 0


@pytest.mark.parametrize(
    "name",
    ["session-not-needed", "begin-again", "no-lock", "label-lost", "flush-always-granted", "resume-says-something"],
)
def test_a_lenient_engine_is_found(name):
    (only,) = search(plant(name), steps=400).found
    assert only.differences
    assert len(only.sequence.steps) < 12


def test_the_shortest_sequence_holds_what_differs_and_the_way_home():
    (only,) = search(plant("begin-again"), steps=400).found
    assert [step.op for step in only.sequence.steps] == [
        "begin_weight_update",
        "begin_weight_update",
        "continue_generation",
        "model_info",
        "generate",
    ]


def test_what_kills_reaches_the_real_side_only_as_often_as_it_may():
    none, some = search(fatal=0, steps=200), search(fatal=2, steps=200)
    assert none.fatal == 0
    assert none.left_out["kills"] > 0
    assert some.fatal == 2


def test_a_known_difference_does_not_end_the_search():
    found = search(plant("begin-again"), steps=200, explain=lambda sequence, difference: "known")
    assert found.found == []
    assert found.explained["known"] > 0


def test_the_same_seed_performs_the_same():
    one, again, other = search(seed=5, steps=60), search(seed=5, steps=60), search(seed=6, steps=60)
    assert (one.cells, one.steps) == (again.cells, again.steps)
    assert one.cells != other.cells


def test_the_defect_is_in_force_on_its_own_side_only():
    entered = []

    @contextlib.contextmanager
    def under():
        entered.append("in")
        yield
        entered.append("out")

    FakeSide(VERSION, MODEL, under).perform(WORDS.sequence([0]))
    FakeSide(VERSION, MODEL).perform(WORDS.sequence([0]))
    assert entered == ["in", "out"]


def test_no_drawn_sequence_waits_for_a_paused_engine():
    for sequence in drawn():
        paused = False
        for step in sequence.steps:
            if step.op == "pause_generation" and isinstance(step.body, dict) and step.body.get("mode") != "no":
                paused = True
            elif step.op == "continue_generation" and isinstance(step.body, dict):
                paused = False
            greedy = isinstance(step.body, dict) and isinstance(step.body.get("input_ids"), list)
            assert not (step.do == "call" and step.op == "generate" and paused and greedy)


def test_traffic_that_something_changed_is_compared_by_its_ending_only():
    seen = set()
    for sequence in drawn():
        for index, step in enumerate(sequence.steps):
            if step.do == "start":
                changed = any(later.op in CHANGES for later in sequence.steps[index:])
                assert step.compare == ("ending" if changed else "prefix")
                seen.add(step.compare)
    assert seen == {"ending", "prefix"}


def test_calls_of_sessions_and_selectors_are_drawn_where_they_exist():
    assert not any(step.op == "end_weight_update" for seq in drawn("0.5.20") for step in seq.steps)
    assert any(step.op == "end_weight_update" for seq in drawn("0.5.23") for step in seq.steps)


def test_cells_are_followed_by_what_was_answered():
    from real_runs import sequence as s

    steps = [
        s.BEGIN,
        s.BEGIN,
        s.start("a", "generate", {}),
        s.pause("in_place"),
        s.FLUSH,
        s.CONTINUE,
        s.join("a"),
        s.END,
    ]
    one = FakeSide(VERSION, MODEL).perform(
        s.Sequence(name="x", about="", steps=[*steps[:2], s.start("a", "generate", s.generate()), *steps[3:]])
    )
    assert isinstance(one, Exchange)
    assert [state for _, state in cells(one)] == [
        "free idle, closed",
        "free idle, open",
        "free idle, open",
        "free running, open",
        "in_place running, open",
        "in_place running, open",
        "free idle, open",
    ]
