"""An oracle for tests: a fake's answers, with one lie that a search has to find."""

from fakes.engine.profiles import profile
from real_runs.fuzz.fake_updater import FakeUpdater
from real_runs.fuzz.search import first_difference, search
from real_runs.fuzz.steps import Vocabulary

PARTS = ("manager", "is_fully_idle", "flush_cache", "record_weight_version_change", "unpickler", "runner")


class ScriptedOracle:
    """Answers as the fake of `version`; `lie(steps, answers)` may change the answers afterwards."""

    version, digest, parts = "scripted", "0" * 64, PARTS

    def __init__(self, version="0.5.23", lie=lambda steps, answers: answers):
        self._version, self._lie = version, lie

    def play(self, steps):
        return self._lie(steps, FakeUpdater(self._version).play(steps))


def lies_about_a_second_begin(steps, answers):
    """The second begin inside a session is granted."""
    for step, answer in zip(steps, answers, strict=False):
        if step["op"] == "begin_weight_update" and "already open" in (answer.get("message") or ""):
            answer.update(success=True, message="Success")
    return answers


def hunt(oracle, *, steps=4000, seed=0, version="0.5.23", **more):
    """A search over the scripted oracle."""
    strategy = Vocabulary(profile(version), PARTS).strategy()
    fake = lambda drawn: FakeUpdater(version).play(drawn)  # noqa: E731
    return search(strategy, oracle.play, fake, steps=steps, first_seed=seed, **more)


__all__ = ["ScriptedOracle", "first_difference", "hunt", "lies_about_a_second_begin"]
