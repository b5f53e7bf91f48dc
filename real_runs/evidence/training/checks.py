"""The rules of evidence: one table, an id and a check for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from real_runs.evidence.training import count_checks, log_checks, provenance_checks, value_checks
from real_runs.evidence.training.run import TrainingRun

MAIN = "NVIDIA-NeMo/RL#3330"


@dataclass(frozen=True)
class Check:
    """`find` gives one line per reason to refuse. `text` says what is promised.

    `find` looks its function up when it is called: a mutant is that function replaced. `mend` says where to look.
    """

    rule: str
    text: str
    citations: tuple[str, ...]
    find: Callable[[TrainingRun], Iterator[str]]
    mend: str = ""


CHECKS: tuple[Check, ...] = (
    Check(
        "EVID-1",
        "A log whose refit markers are not whole tokens with exactly their fields is refused.",
        (MAIN,),
        lambda run: log_checks.whole_markers(run),
        mend="look at the reader of markers: it wants the whole token and exactly the fields, not a substring",
    ),
    Check(
        "EVID-2",
        "Refit indices that are not unique, growing by one and each ended by one success are refused.",
        (MAIN,),
        lambda run: log_checks.paired(run),
        mend="look at the count of indices: unique, growing by one, each with one success",
    ),
    Check(
        "EVID-3",
        "GROUP_READY after the first success, or of another topology than the expected one anywhere, is refused.",
        (MAIN, "D56"),
        lambda run: log_checks.topology(run),
        mend="look at GROUP_READY: before the first success, with the expected sizes in every line",
    ),
    Check(
        "EVID-4",
        "A log with a traceback, OOM, watchdog or collective error is refused, also when its line is broken.",
        (MAIN,),
        lambda run: log_checks.nothing_fatal(run),
        mend="look at the patterns of fatal lines, and join lines that were broken before they are searched",
    ),
    Check(
        "EVID-5",
        "Losses that are not finite and gap-free up to the last step are refused.",
        (MAIN,),
        lambda run: count_checks.losses(run),
        mend="look at the losses: every step once up to the last, each a finite number",
    ),
    Check(
        "EVID-6",
        "Another number of successful refits than of training steps and value checks is refused.",
        (MAIN,),
        lambda run: count_checks.refits_equal_steps(run),
        mend="look at the three counts, refits, steps and value checks: all equal",
    ),
    Check(
        "EVID-7",
        "A token_mult_prob_error beyond its bound at any step is refused.",
        (MAIN, "NVIDIA-NeMo/RL#3612"),
        lambda run: count_checks.gate(run),
        mend="look at the bound of token_mult_prob_error: at every step, not on the mean",
    ),
    Check(
        "EVID-8",
        "A reported series with a gap, a step without valid tokens, or no gradient at all is refused.",
        (MAIN,),
        lambda run: count_checks.reported(run),
        mend="look at the series: each step there, with valid tokens, and a gradient that is not zero throughout",
    ),
    Check(
        "EVID-9",
        "Artefacts that are missing, empty or older than the run are refused.",
        (MAIN,),
        lambda run: count_checks.artefacts(run),
        mend="look at the artefacts: present, not empty, and newer than the run's start",
    ),
    Check(
        "EVID-10",
        "A transfer that is proven by shapes and not by values is refused, and so are values that differ.",
        (MAIN, "D107"),
        lambda run: value_checks.by_values(run),
        mend="look at the value check: compare values, not shapes, and refuse any difference",
    ),
    Check(
        "EVID-11",
        "A value check without a whole reset as its control, or with ranks missing or unnumbered, is refused.",
        (MAIN, "D108"),
        lambda run: value_checks.with_control(run),
        mend="look at the control: a reset must be seen to change all values, on every numbered rank",
    ),
    Check(
        "EVID-12",
        "A value check that asks the engine for an action that it does not know is refused.",
        (MAIN, "D109"),
        lambda run: value_checks.known_actions(run),
        mend="look at the checker's actions of that engine version: compare, reset, snapshot",
    ),
    Check(
        "EVID-13",
        "Placeholder digests, movable revisions and provenance compared with its own default are refused.",
        (MAIN, "D110"),
        lambda run: provenance_checks.claims(run),
        mend="look at digests and revisions: full hashes from the run itself, not defaults or branches",
    ),
    Check(
        "EVID-14",
        "Evidence whose tests are not collected or whose drivers cannot be executed is refused.",
        (MAIN, "D110"),
        lambda run: provenance_checks.tests(run),
        mend="look at what is collected and executable before anything is believed",
    ),
    Check(
        "EVID-15",
        "A preflight that failed is refused with the whole chain of its causes.",
        (MAIN, "D110"),
        lambda run: provenance_checks.preflight(run),
        mend="look at the preflight's error: its whole chain of causes belongs into the refusal",
    ),
    Check(
        "EVID-16",
        "A snapshot, submodule or conversion cache of another run or commit is refused.",
        (MAIN, "D111", "D97"),
        lambda run: provenance_checks.snapshot(run),
        mend="look at the keys of snapshot, submodule and cache: this run's commit",
    ),
    Check(
        "EVID-17",
        "A patch that is not in the file's content is refused, whatever the tool's exit code.",
        (MAIN, "D112"),
        lambda run: provenance_checks.patches(run),
        mend="read the file again after the tool ran, and search it for the patch's own lines",
    ),
    Check(
        "EVID-18",
        "An environment whose package versions are not recorded, or not those of its own lock, is refused.",
        (MAIN, "D119"),
        lambda run: provenance_checks.packages(run),
        mend="look at the recorded versions beside the environment's own lock",
    ),
    Check(
        "EVID-19",
        "A recipe that is not registered, an undeclared override, a stale deselection and a budget over its cap are "
        "refused.",
        (MAIN, "D120", "D116"),
        lambda run: provenance_checks.launch(run),
        mend="look at the recipe's registration, its overrides, deselections and budget",
    ),
    Check(
        "EVID-20",
        "A run without its times in order or without its process's exit is refused.",
        (MAIN, "D80"),
        lambda run: provenance_checks.times(run),
        mend="look at the times, in order, and at the exit of the process",
    ),
)
