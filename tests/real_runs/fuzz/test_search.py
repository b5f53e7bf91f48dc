from random import Random

from fakes.engine.profiles import profile
from real_runs.fuzz.fake_updater import FakeUpdater
from real_runs.fuzz.search import first_difference, reduced
from real_runs.fuzz.steps import WIDTH, Vocabulary
from real_runs.fuzz.telling import told
from tests.real_runs.fuzz.scripted_oracle import PARTS, ScriptedOracle, hunt, lies_about_a_second_begin


def test_a_wrong_answer_is_found_and_told_as_the_shortest_sequence():
    found = hunt(ScriptedOracle(lie=lies_about_a_second_begin))
    (only,) = found.divergences
    assert [step["op"] for step in only.steps] == ["begin_weight_update", "begin_weight_update"]
    assert only.what["success"] == (True, False)


def test_equal_sides_are_searched_to_the_end_and_counted():
    found = hunt(ScriptedOracle(), steps=300)
    assert found.divergences == []
    assert found.steps >= 300
    assert found.sequences > 5
    assert sum(found.cells.values()) == 0


def test_the_same_seed_finds_the_same_and_another_seed_draws_others():
    drawn = {}
    for key, seed in (("first", 3), ("again", 3), ("other", 4)):
        seen = drawn.setdefault(key, [])

        def keep(steps, answers, seen=seen):
            seen.append(steps)
            return []

        hunt(ScriptedOracle(), steps=200, seed=seed, cells=keep)
    assert drawn["first"] == drawn["again"]
    assert drawn["first"] != drawn["other"]


def test_a_known_difference_is_counted_and_the_search_goes_on():
    oracle = ScriptedOracle(lie=lies_about_a_second_begin)
    found = hunt(oracle, steps=500, explain=lambda steps, real, fake: "second-begin")
    assert found.divergences == []
    assert found.explained["second-begin"] > 0


def test_steps_that_a_difference_does_not_need_are_taken_out():
    oracle = ScriptedOracle(lie=lies_about_a_second_begin)
    begin = {"op": "begin_weight_update", "body": {"selector": "all"}}
    steps = [{"op": "generate"}, begin, {"op": "abort"}, {"op": "flush_cache"}, begin]
    fake = lambda drawn: FakeUpdater("0.5.23").play(drawn)  # noqa: E731
    from real_runs.fuzz.search import Divergence

    long = Divergence(tuple(steps), tuple(oracle.play(steps)), tuple(fake(steps)), 0)
    assert reduced(long, oracle.play, fake, lambda *a: None).steps == (begin, begin)


def test_a_death_on_one_side_only_is_a_difference_at_the_step_that_kills():
    alive = {"success": True}
    dead = {"raised": ["AssertionError", "x"]}
    assert first_difference([alive, alive], [alive, dead]) == 1
    assert first_difference([alive], [alive, alive]) == 1
    assert first_difference([alive, dead], [alive, dead]) is None


def test_the_text_has_both_answers_and_a_test_that_fails_until_the_fake_agrees():
    (only,) = hunt(ScriptedOracle(lie=lies_about_a_second_begin)).divergences
    text = told(only, "0.5.23", "refitcheck diff ...")
    assert "differs from 0.5.23 after 2 step(s)" in text
    code = text[text.index("def test_") :]
    scope = {"FakeUpdater": FakeUpdater}
    exec(code, scope)
    (test,) = [value for name, value in scope.items() if name.startswith("test_")]
    try:
        test()
    except AssertionError:
        return
    raise AssertionError("the ready test passes although the fake differs")


def test_only_the_last_step_may_kill_whatever_the_state():
    words = Vocabulary(profile("0.5.23"), PARTS)
    some = Random(0)
    for _ in range(100):
        steps = words.sequence([some.randrange(WIDTH) for _ in range(3)])
        for step in steps[:-1]:
            assert step.get("body", {}).get("selector") != "both" or step["op"] == "weights_checker"
            assert step.get("body", {}).get("load_format") != "auto"


def test_where_a_call_outside_its_session_kills_only_the_last_one_may():
    words = Vocabulary(profile("miles"), PARTS)
    last, some = 0, Random(0)
    for _ in range(400):
        steps = words.sequence([some.randrange(WIDTH) for _ in range(5)])
        answers = FakeUpdater("miles").play(steps)
        sessions = [a for a in answers[:-1] if "session" in str(a.get("raised"))]
        assert sessions == []
        last += "session" in str(answers[-1].get("raised")) and len(answers) == len(steps)
        assert "session" not in str(answers[-1].get("raised")) or len(answers) == len(steps)
    assert last > 0


def test_a_version_is_asked_only_what_it_knows():
    for version in ("0.5.12.post1", "0.5.17", "0.5.20", "0.5.23"):
        chosen = profile(version)
        words = Vocabulary(chosen, PARTS)
        some = Random(0)
        steps = [step for _ in range(400) for step in words.sequence([some.randrange(WIDTH) for _ in range(3)])]
        assert ("begin_weight_update" in {s["op"] for s in steps}) == (chosen.session != "none")
        assert any("selector" in s.get("body", {}) for s in steps) == chosen.selector
