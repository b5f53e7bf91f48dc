"""One mutation session in the warm process: baseline, controls, mutants, survivors again, results."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from harness.mutate import cache, controls, reach, scout, screening, together
from harness.mutate.baseline import Baseline
from harness.mutate.cache import Cache
from harness.mutate.checks import Check
from harness.mutate.edits import Edits
from harness.mutate.jobs import Job, Report, Step, Undo
from harness.mutate.kept import dump, readable, restore
from harness.mutate.locate import locate
from harness.mutate.mutant import Mutant, Result
from harness.mutate.plan import CheckHost, Outcome, Plan, Screen
from harness.mutate.pool import Pool
from harness.mutate.program import Program
from harness.mutate.pursuit import Killers, variety
from harness.mutate.screening import Screened
from harness.mutate.sites import Site
from harness.mutate.source import TargetError

WARM_CHECKS = 3  # of each file
WARM_CPU_S = 2.0


class Session:
    """Runs a plan against a program and its checks."""

    def __init__(self, program: Program, host: CheckHost, plan: Plan, screen: Screen) -> None:
        self._program, self._host, self._plan, self._screen = program, host, plan, screen
        self._notes: list[str] = []
        self._killers = Killers()
        self._deadline: float | None = None

    def run(self) -> Outcome:
        """Everything. KeyboardInterrupt is kept: the outcome then holds what was finished."""
        started = time.monotonic()
        plan = self._plan
        if plan.budget_s:
            self._deadline = (started if plan.began is None else plan.began) + plan.budget_s
        self._program.prepare()
        checks = self._host.checks
        store = self._cache()
        baseline = self._baseline(store)
        for i, measured in enumerate(baseline.measured):
            if measured.findings:
                self._note(f"not used, it fails unmutated: {checks[i].id}: {measured.findings[0].text}")
        if not any(baseline.usable(i) for i in range(len(checks))):
            raise TargetError(f"target without tests: none of {len(checks)} checks holds on unmutated code")
        if self._program.sources and not any(baseline.lines):
            raise TargetError(f"target without tests: no check runs a line of {', '.join(self._program.sources)}")
        outcome = Outcome([], baseline, checks, [], 0.0, workers=self._plan.workers, notes=self._notes)
        outcome.left = len(self._plan.mutants)
        try:
            self._warm(baseline)
            self._controls(outcome)
            if not any(c.wrong for c in outcome.controls):
                self._mutants(outcome, store)
                self._again(outcome, store)
        except KeyboardInterrupt:
            outcome.interrupted = True
        finally:
            store.close()
        outcome.seconds = time.monotonic() - started
        return outcome

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._screen.line(text)

    def _cache(self) -> Cache:
        sources = self._program.sources
        paths = {*(c.path for c in self._host.checks), *(str(s.path) for s in sources.values())}
        roots = {name.partition(".")[0] for name in sources} | {"fakes", "harness", "conformance"}
        extra = [*self._plan.extra, *(c.id for c in self._host.checks)]
        print_ = cache.fingerprint(paths, roots, extra) if self._plan.use_cache else ""
        return Cache(print_, self._note, enabled=self._plan.use_cache)

    def _baseline(self, store: Cache) -> Baseline:
        key = cache.key("baseline", sorted(self._program.sources), [c.id for c in self._host.checks])
        known = store.get(key, lambda data: Baseline.load(data, len(self._host.checks)))
        if known is not None:
            baseline = known
            scout.warm_up(baseline)
            return baseline
        self._screen.phase("baseline", len(self._host.checks))
        baseline = scout.baseline(
            self._host.checks,
            self._program,
            self._host.enter,
            self._host.close,
            self._measuring,
            self._plan.workers,
        )
        store.put(key, baseline.dump())
        return baseline

    def _measuring(self, done: int, at: list[int]) -> None:
        self._screen.reached(done)
        self._screen.running([self._host.checks[check].id for check in at])

    def _warm(self, baseline: Baseline) -> None:
        """Run a few quick checks of every file here: what they cache and import is then there for every child."""
        by_file: dict[str, list[int]] = {}
        for i in sorted(range(len(self._host.checks)), key=baseline.speed):
            if baseline.usable(i) and not baseline.measured[i].heavy:
                by_file.setdefault(self._host.checks[i].path, []).append(i)
        self._program.budget.start()
        until = time.process_time() + WARM_CPU_S
        for n in range(WARM_CHECKS):
            for found in by_file.values():
                if n < len(found) and time.process_time() < until:
                    self._host.checks[found[n]].run()
        self._host.close()
        self._program.forget()
        gc.collect()  # what is garbage now is not carried into every child

    def _pool(self) -> Pool:
        host = self._host
        budget, workers = self._program.budget, self._plan.workers
        return Pool(host.checks, budget, workers, host.enter, host.close, self._killers)

    def _controls(self, outcome: Outcome) -> None:
        """Identity mutants must survive, a forced failure must be noticed; else nothing here is worth anything."""
        planned = controls.plan(self._program, outcome.baseline, self._plan.failing)
        self._screen.phase("controls", len(planned))
        jobs = {c.id: Job(c.id, c.apply, self._steps(c.checks, outcome.baseline)) for c in planned}
        by_id = {c.id: c for c in planned}
        for job, report in self._pool().run(list(jobs.values()), self._screen.running):
            control = by_id[job.id]
            control.report = report
            outcome.controls.append(control)
            self._screen.done()

    def _steps(self, checks: Iterable[int], baseline: Baseline) -> tuple[Step, ...]:
        found = ((i, baseline.measured[i]) for i in checks)
        known = self._host.checks
        steps = [Step(i, m.steps, m.cpu, m.seconds, m.heavy, getattr(known[i], "same", "")) for i, m in found]
        return tuple(variety(steps))

    def select(self, mutant: Mutant, baseline: Baseline) -> tuple[list[int], int]:
        """The checks for a mutant, declared rules first, then fastest first; and how many are declared."""
        op: Any = mutant.op
        if isinstance(op, Site):
            able = baseline.covering(str(op.source.path), op.lines)
        else:
            able = self._through(mutant, baseline)
        declared = [i for i in able if self._host.checks[i].rules & mutant.breaks]
        taken = set(declared)
        return [*declared, *(i for i in able if i not in taken)], len(declared)

    def _through(self, mutant: Mutant, baseline: Baseline) -> list[int]:
        """The checks that run a function which a catalogue mutant edits, fastest first; all where that is not known."""
        op: Any = mutant.op
        found: set[int] = set()
        places = self._plan.places.get(mutant.id)
        met = [reach.lines(mutant, place, self._program) for place in places or ()]
        if met and None not in met:
            for path, lines in filter(None, met):
                found.update(baseline.covering(path, lines))
            return sorted(found, key=baseline.speed)
        for place in op.by_target(mutant.target) if isinstance(op, Edits) else ():
            module, _, qualname = place.partition(":")
            source = self._program.sources.get(module)
            if source is None:
                continue
            for function in [f for f in source.functions if f.qualname == qualname][-1:]:
                body: Any = function.node.body[0]
                found.update(baseline.covering(str(source.path), range(body.lineno, function.end_line + 1)))
        usable = (i for i in range(len(self._host.checks)) if baseline.usable(i))
        return sorted(found or usable, key=baseline.speed)

    def _mutants(self, outcome: Outcome, store: Cache) -> None:
        baseline, plan = outcome.baseline, self._plan
        jobs: list[Job] = []
        results: dict[str, Result] = {}
        keys: dict[str, str] = {}
        for mutant in plan.mutants:
            order, declared = self.select(mutant, baseline)
            if plan.touched is not None and not plan.touched(mutant, [self._host.checks[i] for i in order]):
                outcome.skipped += 1
                continue
            result = describe(mutant, self._program, [self._host.checks[i].id for i in order])
            results[mutant.id] = result
            reason = plan.equivalents.reason(mutant)
            keys[mutant.id] = self._key(mutant, result)
            known = store.get(keys[mutant.id], readable)
            if reason:
                result.verdict, result.detail = "equivalent", reason
            elif mutant.id in plan.elsewhere:
                result.verdict, result.detail = "elsewhere", plan.elsewhere[mutant.id]
            elif not order:
                result.verdict = "not covered"
            elif known is not None:
                restore(result, known)
            else:
                steps = self._steps(order, baseline)
                apply = _applier(mutant, self._program)
                job = Job(mutant.id, apply, steps, mutant.breaks, declared, plan.everything, _group(mutant))
                jobs.append(replace(job, site=mutant.op if isinstance(mutant.op, Site) else None))
        order_of = {mutant.id: n for n, mutant in enumerate(plan.mutants)}
        started = time.monotonic()
        deadline = self._deadline
        if jobs and self._late():
            took = time.monotonic() - (self._deadline or 0.0) + plan.budget_s
            kept = "; the baseline is kept, the next run begins behind it" if plan.use_cache else ""
            self._note(f"what comes before the first mutant took {took:.0f} s of {plan.budget_s:g}: none was run{kept}")
        screened = self._screened(jobs)
        split = [screened.split(job) for job in jobs]
        self._screen.phase("mutants", len(jobs))

        ended: dict[str, Report] = {}

        def end(job: Job, report: Report) -> None:
            result = results[job.id]
            fill(result, report, self._host.checks)
            ended[job.id] = report
            store.put(keys[job.id], dump(result))
            self._screen.done(result)

        try:
            for job, _ in split:
                if not job.steps:
                    end(job, Report("survived", text=screening.SAID))
            running = [job for job, _ in split if job.steps]
            tick = self._screen.running
            if plan.screen:
                found = together.run(self._pool, running, self._program, tick, deadline)
            else:
                found = self._pool().run(running, tick, deadline)
            for job, report in found:
                end(job, report)
        finally:
            outcome.mutating_s = time.monotonic() - started
            unfinished = {job.id for job in jobs} - set(ended)
            outcome.left = len(unfinished)
            outcome.results = sorted(
                (r for r in results.values() if r.id not in unfinished), key=lambda r: order_of[r.id]
            )
        if ended:
            self._extra(outcome, controls.alone(running, ended) + screening.controls(split))

    def _screened(self, jobs: Sequence[Job]) -> Screened:
        if not self._plan.screen or self._late():
            return Screened()
        return screening.screened(
            jobs,
            self._host,
            self._program,
            self._plan.workers,
            begin=lambda checks: self._screen.phase("screening", checks),
            tick=self._measuring,
            note=self._note,
        )

    def _extra(self, outcome: Outcome, planned: Sequence[tuple[controls.Control, Job]]) -> None:
        """The last controls: mutants that shared children, alone; mutants in checks that were left out."""
        self._screen.phase("controls", len(planned))
        by_id = {job.id: control for control, job in planned}
        for job, report in self._pool().run([job for _, job in planned], self._screen.running):
            by_id[job.id].report = report
            outcome.controls.append(by_id[job.id])
            self._screen.done()

    def _again(self, outcome: Outcome, store: Cache) -> None:
        """Survivors run again in a fresh interpreter, with the full Hypothesis profile, before they are called that."""
        if self._plan.rerun is None:
            return
        by_id = {m.id: m for m in self._plan.mutants}
        todo = [r for r in outcome.results if r.verdict == "survived" and not r.rerun]
        if not todo:
            return
        self._screen.phase("survivors again", len(todo))
        waiting = {r.id: r for r in todo}
        index = {c.id: i for i, c in enumerate(self._host.checks)}
        for name, report in self._plan.rerun([(by_id[r.id], r.checks) for r in todo]):
            result = waiting.pop(name)
            if report.ending == "crash" and report.text.startswith("\n"):
                result.verdict, result.detail = "error", report.text.strip()
                continue  # not a word about the mutant: nothing to keep
            if report.ending != "survived":
                report.check = index.get(report.text.partition("\n")[0], -1)
                report.text = report.text.partition("\n")[2]
                fill(result, report, self._host.checks)
            result.rerun = True
            store.put(self._key(by_id[result.id], result), dump(result))
            self._screen.done(result)
            if waiting and self._late():
                self._note(f"{len(waiting)} survivors were not run again: the time is over")
                return

    def _key(self, mutant: Mutant, result: Result) -> str:
        parts = (mutant.id, result.original, result.replacement, sorted(mutant.breaks), self._plan.everything)
        return cache.key(*parts)


def _applier(mutant: Mutant, program: Program) -> Callable[[], Undo | None]:
    return lambda: mutant.op.apply(mutant.target, program)


def _group(mutant: Mutant) -> str:
    """Mutants that can be undone share children, module by module."""
    return mutant.module if isinstance(mutant.op, Site) else ""


def describe(mutant: Mutant, program: Program, checks: list[str]) -> Result:
    """A result that says what the mutant is and nothing yet of what became of it."""
    op: Any = mutant.op
    result = Result(mutant.id, "survived", op=getattr(op, "op", op.kind), target=mutant.target, checks=checks)
    result.breaks, result.origin = sorted(mutant.breaks), mutant.origin
    if isinstance(op, Site):
        result.place, result.original, result.replacement = op.place, op.change.original, op.change.replacement
    else:
        result.place, result.original, result.replacement = locate(mutant, program)
        result.description = mutant.note or op.describe()
    return result


def fill(result: Result, report: Report, checks: Sequence[Check]) -> None:
    """Put what the child said into the result."""
    names: dict[str, Any] = {"survived": "survived", "killed": "killed", "misattributed": "misattributed"}
    result.verdict = names.get(report.ending, report.ending)
    result.by = checks[report.check].id if report.check >= 0 else ""
    result.rule, result.detail = report.rule, report.text
    result.ran, result.seconds, result.cpu = report.ran, report.seconds, report.cpu
    result.killers = sorted({rule for _, rule in report.found if rule})
