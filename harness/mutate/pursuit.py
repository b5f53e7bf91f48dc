"""One mutant pursued: its checks run in an order until one notices, and what they found is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from harness.mutate.budget import Budget, BudgetSpent, limit_for
from harness.mutate.checks import Check, Finding, one_line
from harness.mutate.jobs import Job, Report, Step

UNTRIED = 0.1
"""How likely a check is thought to kill before it was tried, of one try."""
ELSEWHERE = 2.0
"""What a check did to mutants of other functions counts like so many tries on those of this one."""
START_S = 0.0005


class Killers:
    """Which checks killed the mutants before: those that kill often for little time go first.

    Most of all what they did to mutants of the same function counts.
    """

    def __init__(self) -> None:
        self._hits: Counter[tuple[str, int]] = Counter()
        self._tries: Counter[tuple[str, int]] = Counter()

    def saw(self, job: Job, check: int, hit: bool) -> None:
        """A check ran on a mutant."""
        for key in {("", check), (_function(job), check)}:
            self._tries[key] += 1
            self._hits[key] += hit

    def learn(self, job: Job, report: Report) -> None:
        """What a report tells of the checks that ran."""
        for check in report.met:
            self.saw(job, check, check == report.check)

    def order(self, job: Job) -> Sequence[Step]:
        """The steps of a job; declared ones stay before others as they are, and so do all when all are to run."""
        some = 0 < job.declared < len(job.steps) or (job.breaks and not job.declared)
        if some or job.everything or not self._tries:
            return job.steps
        function = _function(job)

        def cost(step: Step) -> tuple[bool, float]:
            here, everywhere = (function, step.check), ("", step.check)
            chance = (self._hits[everywhere] + UNTRIED) / (self._tries[everywhere] + 1)
            chance = (self._hits[here] + ELSEWHERE * chance) / (self._tries[here] + ELSEWHERE)
            return step.heavy, (step.cpu + START_S) / chance

        return variety(sorted(job.steps, key=cost))


def variety(steps: Iterable[Step]) -> list[Step]:
    """The steps in their order, but nothing again elsewhere before all was done once."""
    seen: Counter[str] = Counter()
    placed: list[tuple[tuple[bool, int], Step]] = []
    for step in steps:
        placed.append(((step.heavy, seen[step.same] if step.same else 0), step))
        seen[step.same] += 1
    return [step for _, step in sorted(placed, key=lambda both: both[0])]


def _function(job: Job) -> str:
    return f"{job.site.source.name}:{job.site.qualname}" if job.site is not None else ""


def pursue(
    job: Job,
    checks: Sequence[Check],
    budget: Budget,
    tell: Callable[[Step], None],
    killers: Killers | None = None,
) -> Report:
    """Run the steps of a job and judge what they find. The mutant is already in place."""
    if job.members:
        return _crowd(job, checks, budget, tell)
    report = Report("survived")
    other: Report | None = None
    for at, step in enumerate(killers.order(job) if killers else job.steps):
        if at == job.declared and other is not None and not job.everything:
            break  # no declared rule noticed, another one did: nothing that follows can change the verdict
        if job.enough and at == job.enough:
            report.ending = "suspect"
            break
        tell(step)
        report.met.append(step.check)
        report.ran += 1
        found = run_step(step, checks, budget)
        if killers:
            killers.saw(job, step.check, bool(found))
        for finding in found:
            if not finding.crash:
                report.found.append((step.check, finding.rule))
            ending = _ending(finding, job)
            if ending == "killed" and report.ending != "killed":
                report.ending, report.check, report.rule, report.text = ending, step.check, finding.rule, finding.text
            elif ending != "killed" and other is None:
                other = Report(ending, step.check, finding.rule, finding.text)
        if not job.everything and (report.ending == "killed" or (other is not None and not job.breaks)):
            break
    if report.ending == "survived" and other is not None:
        report.ending, report.check, report.rule, report.text = other.ending, other.check, other.rule, other.text
    return report


def _crowd(job: Job, checks: Sequence[Check], budget: Budget, tell: Callable[[Step], None]) -> Report:
    """All members together meet the checks that any of them is to meet."""
    report = Report("survived")
    left = [member.id for member in job.members]
    for step in job.steps:
        report.ran += 1
        for name in job.crowd.meet(step, checks, budget, tell, tuple(left)):
            report.parts.append((name, step.check))
            left.remove(name)
        if not left:
            break
    return report


def run_step(step: Step, checks: Sequence[Check], budget: Budget) -> list[Finding]:
    """Run one check within its step budget; whatever it raises is a finding."""
    budget.start(limit_for(step.steps))
    try:
        return checks[step.check].run()
    except BudgetSpent as error:
        return [Finding("", str(error), crash=True)]
    except BaseException as error:
        return [Finding("", one_line(error), crash=True)]


def _ending(finding: Finding, job: Job) -> str:
    if finding.crash:
        return "timeout" if "step budget spent" in finding.text else "crash"
    if job.breaks:
        return "killed" if finding.rule in job.breaks else "misattributed"
    return "killed"
