"""Where refits begin and end is read off the calls."""

from __future__ import annotations

from conformance.rules import all_rules
from fakes.outcome import Outcome
from real_runs.recording.marks import NOT_JUDGED, RefitMarks

GOOD = Outcome(ending="reply", status=200, body={"success": True})
BAD = Outcome(ending="reply", status=400, body={"success": False, "message": "no"})


class Told:
    def __init__(self, engines=1):
        self.marks: list[tuple[str, int, bool | None, str]] = []
        self.now = 0.0
        self.refits = RefitMarks(engines, self.mark)

    def mark(self, data):
        self.marks.append((data["phase"], data["index"], data.get("ok"), data.get("error", "")))

    def call(self, op, engine="e0", seen=GOOD, after=0.1):
        self.now += after
        self.refits.before(op, self.now)
        self.refits.after(engine, op, seen, self.now)

    def calls(self, text, engine="e0"):
        for op in text.split():
            self.call(OPS.get(op, op), engine)


OPS = {
    **{"pause": "pause_generation", "begin": "begin_weight_update", "end": "end_weight_update"},
    **{"continue": "continue_generation", "flush": "flush_cache", "update": "update_weights_from_tensor"},
}
REFIT = "pause flush begin update update end continue"


def test_a_refit_that_pauses_ends_with_its_continue():
    told = Told()
    told.calls(f"generate flush {REFIT} generate flush {REFIT}")

    assert told.marks == [("start", 0, None, ""), ("end", 0, True, ""), ("start", 1, None, ""), ("end", 1, True, "")]


def test_it_ends_when_the_last_engine_is_continued():
    told = Told(engines=2)
    for ops in ("pause", "begin update end", "continue"):
        told.calls(ops, "e0")
        told.calls(ops, "e1")

    assert told.marks == [("start", 0, None, ""), ("end", 0, True, "")]


def test_engines_one_after_the_other_are_one_refit():
    told = Told(engines=2)
    told.calls(REFIT, "e0")
    told.calls(REFIT, "e1")
    assert told.marks == [("start", 0, None, ""), ("end", 0, True, "")]


def test_without_a_pause_the_next_one_begins_after_a_silence():
    told = Told()
    told.calls("begin update end begin update end")
    told.call("begin_weight_update", after=10.0)
    told.refits.close()
    told.refits.close()

    assert told.marks == [("start", 0, None, ""), ("end", 0, True, ""), ("start", 1, None, ""), ("end", 1, True, "")]


def test_a_silence_inside_a_call_is_none():
    told = Told()
    told.refits.before("begin_weight_update", 0.0)
    told.refits.before("update_weights_from_distributed", 99.0)

    assert len(told.marks) == 1


def test_a_call_that_failed_fails_it_unless_it_was_asked_again():
    told = Told()
    told.call("pause_generation")
    told.call("begin_weight_update", seen=BAD)
    told.calls("begin update end continue pause begin")
    told.call("update_weights_from_tensor", seen=BAD)
    told.calls("end continue")

    assert told.marks[1] == ("end", 0, True, "")
    assert told.marks[3] == ("end", 1, False, "update_weights_from_tensor on e0: 400")


def test_engines_that_are_left_paused_are_told():
    told = Told()
    told.calls("pause begin update end")
    told.refits.close()

    assert told.marks[1] == ("end", 0, False, "left paused")


def test_what_is_not_judged_exists():
    assert set(NOT_JUDGED) <= {rule.id for rule in all_rules()}
