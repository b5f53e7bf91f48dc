"""The differential search over HTTP calls, with a second fake in the real side's place."""

import contextlib
from random import Random

import pytest

from conformance.plants import catalogue
from fakes.engine.profiles import profile
from real_runs.comparing import differences
from real_runs.fuzz.draft import CHANGES, LONG, Draft
from real_runs.fuzz.server_payloads import deadly
from real_runs.fuzz.server_search import Limits, hunt
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import FakeSide, tiny
from real_runs.fuzz.steps import WIDTH

MODEL = tiny()
VERSION = "0.5.23"
WORDS = ServerVocabulary(profile(VERSION))


def plant(name):
    return next(one for one in catalogue() if one.id == name).apply


def search(
    under=contextlib.nullcontext,
    *,
    steps=120,
    seed=0,
    fatal=0,
    longest=30,
    seconds=600,
    version=VERSION,
    model=MODEL,
    **more,
):
    words = ServerVocabulary(profile(version), tp=model.tp)
    real = FakeSide(version, model, under)
    return hunt(words, real, FakeSide(version, model), Limits(steps, fatal, longest, seconds), seed, **more)


def drawn(version=VERSION, count=100):
    words = ServerVocabulary(profile(version))
    some = Random(0)
    return [
        words.sequence([some.randrange(WIDTH) + WIDTH * some.randrange(WIDTH) for _ in range(8)]) for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("version", "model"),
    [
        ("0.5.12.post1", MODEL),
        ("0.5.20", MODEL),
        ("0.5.23", MODEL),
        ("0.5.20", tiny(2)),
        ("0.5.23", tiny(2, "qwen2-tied")),
    ],
)
def test_a_fake_does_not_differ_from_itself(version, model):
    found = search(version=version, model=model, steps=200)
    assert found.found == {}
    assert found.steps >= 200
    assert not found.left_out  # nothing that is drawn hangs or kills


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("tp", [1, 2])
def test_what_is_drawn_apart_kills(tp, seed):
    fake = FakeSide(VERSION, tiny(tp))
    numbers = range(seed, 12 * len(deadly(tp)) * 44, 44 * len(deadly(tp)) // 6 + 1)
    words = ServerVocabulary(profile(VERSION), tp=tp)
    died = [fake.perform(words.fatal(number)).died for number in numbers]
    assert died.count(True) > len(died) / 2


@pytest.mark.parametrize("name", ["direct-without-effect", "another-rank's-shard", "long-list-refused"])
def test_what_only_a_list_of_payloads_shows_is_found(name):
    assert search(plant(name), model=tiny(2), steps=300, seed=4, longest=12).found


@pytest.mark.parametrize(
    "name",
    ["session-not-needed", "begin-again", "label-lost", "flush-always-granted", "resume-says-something"],
)
def test_a_lenient_engine_is_found(name):
    found = search(plant(name), steps=60, seed=5).found
    assert found
    assert all(entry.difference.sequence == "drawn" for entry in found.values())


def test_an_update_that_does_not_wait_for_a_generation_is_found():
    from real_runs import sequence as s

    draft = Draft(profile(VERSION))
    draft.start()
    draft.add(s.BEGIN)
    draft.start()
    draft.add(s.update(s.whole(1), weight_version="v1"))
    sequence = draft.whole("waits")
    unlocked, fake = FakeSide(VERSION, MODEL, plant("no-lock")), FakeSide(VERSION, MODEL)
    (first, *_) = differences(unlocked.perform(sequence), fake.perform(sequence))
    assert (first.op, first.what, first.real) == ("model_info", "body.weight_version", "v1")
    assert differences(FakeSide(VERSION, MODEL).perform(sequence), fake.perform(sequence)) == []


def test_a_finding_does_not_end_the_run_and_is_counted():
    found = search(plant("resume-says-something"), steps=60)
    assert found.steps >= 60
    assert {entry.kind[:2] for entry in found.found.values()} == {("release_memory_occupation", "body")}
    assert sum(entry.count for entry in found.found.values()) > 1


def test_what_comes_after_a_difference_is_not_counted():
    found, clean = search(plant("resume-says-something"), steps=90), search(steps=90)
    assert found.sequences > clean.sequences


def test_what_kills_is_drawn_apart_and_as_often_as_it_may():
    none, some = search(steps=60), search(fatal=2, steps=60)
    assert (none.fatal, some.fatal) == (0, 2)
    assert some.found == {}


def test_a_known_difference_is_no_finding():
    found = search(plant("resume-says-something"), steps=50, explain=lambda sequence, difference: "known")
    assert found.found == {}
    assert found.explained["known"] > 0


def test_the_same_seed_performs_the_same():
    one, again, other = search(seed=5, steps=60), search(seed=5, steps=60), search(seed=6, steps=60)
    assert (one.cells, one.steps) == (again.cells, again.steps)
    assert one.cells != other.cells


def test_a_run_ends_when_its_time_is_over():
    assert search(seconds=-1, fatal=3).steps == 0


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
            if step.do == "start" and step.op == "generate":
                end = [later.label for later in sequence.steps].index(step.label, index + 1)
                changed = any(later.op in CHANGES for later in sequence.steps[index:end])
                assert step.compare == ("ending" if changed else "prefix")
                seen.add(step.compare)
    assert seen == {"ending", "prefix"}


def test_every_generation_is_ended_and_joined_before_the_end():
    for sequence in drawn():
        started = [step.label for step in sequence.steps if step.do == "start"]
        assert sorted(started) == sorted(step.label for step in sequence.steps if step.do == "join")
        assert [step.op for step in sequence.steps[-2:]] == ["model_info", "generate"]


def test_nine_of_ten_health_calls_take_the_bypass():
    asked = [step.op for seq in drawn(count=600) for step in seq.steps if step.op.startswith("health")]
    assert 0 < asked.count("health_generate") / len(asked) < 0.2


def test_calls_of_sessions_and_selectors_are_drawn_where_they_exist():
    assert not any(step.op == "end_weight_update" for seq in drawn("0.5.20") for step in seq.steps)
    assert any(step.op == "end_weight_update" for seq in drawn("0.5.23") for step in seq.steps)


def test_states_are_those_of_the_engine():
    from real_runs import sequence as s

    long = s.generate(n=200, stream=True)
    steps = [s.BEGIN, s.BEGIN, s.start("a", "generate", long), s.sleep(0.05), s.pause("in_place"), s.FLUSH]
    steps += [s.pause("retract"), s.FLUSH, s.start("b", "generate", long), s.CONTINUE, s.sleep(0.05), s.pause("abort")]
    steps += [s.call("release_memory_occupation", {}), s.start("c", "generate", long), s.MODEL_INFO, s.CONTINUE]
    side = FakeSide(VERSION, MODEL)
    done = side.perform(s.Sequence(name="x", about="", steps=steps))
    assert side.states == [
        "free idle, closed",
        "free idle, open",
        "free idle, open",
        "free running, open",
        "in_place running, open",
        "in_place running, open",
        "retract queued, open",
        "retract queued, open",
        "retract queued, open",
        "free running, open",
        "abort idle, open",
        "abort idle, open, released",
        "abort held, open, released",
        "abort held, open, released",
    ]
    assert done.answers[2].body["meta_info"]["finish_reason"]["type"] == "abort"  # the last chunk of its stream


def test_a_generation_in_the_background_is_long_enough_to_be_aborted():
    starts = [step for seq in drawn() for step in seq.steps if step.do == "start" and step.op == "generate"]
    assert {step.body["sampling_params"]["max_new_tokens"] for step in starts} == {LONG}
