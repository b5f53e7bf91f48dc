"""Launchers: a recipe as the script that runs it, on this machine, as a Ray job, or under Slurm."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal, get_args

from harness.errors import UsageError
from harness.words import quoted
from real_runs.launching.recipes import Recipe, Value, named, settled

Where = Literal["local", "ray", "slurm"]
MODE = 0o755
# Ray joins an entrypoint with subprocess.list2cmdline, which quotes for Windows, and gives it to a shell: no quoting
# of a single word outlives that, so only words that need none get into one.
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_./:=@%+,-]+")
_ONLY = "letters, digits and _ . / : = @ % + , -"


@dataclass(frozen=True)
class Launch:
    """One recipe with its overrides, where it runs, and the fresh folder that it writes. `address` is a Ray cluster's.

    UsageError for a key that the recipe does not declare, a value with control characters, a place that the recipe does
    not fit, or, on Ray, a folder or value that a shell would read as more than a word.
    """

    recipe: str
    where: Where
    run: str
    overrides: Mapping[str, str]
    address: str = ""

    def __post_init__(self) -> None:
        if self.where not in get_args(Where):
            raise UsageError(f"--on {quoted(self.where, 40)}: give {', '.join(get_args(Where))}")
        for text in (self.run, self.address, *self.overrides.values()):
            if not text.isprintable():
                raise UsageError(f"{quoted(text, 60)} has control characters")
        if self.run.startswith("-"):
            raise UsageError(f"--run {quoted(self.run, 60)} would be read as an option: begin it with another letter")
        if PurePath(self.run).name in ("", ".."):
            raise UsageError("a run needs a folder of its own: --run FOLDER")
        if self.where == "local" and self.spec.nodes > 1:
            raise UsageError(f"recipe {self.recipe} has {self.spec.nodes} nodes: --on ray or --on slurm")
        if (self.where == "ray") != bool(self.address):
            raise UsageError("--address is that of the Ray cluster of --on ray, and of nothing else")
        if self.where == "ray":
            self._needs_no_quotes()
        _ = self.commands()

    def _needs_no_quotes(self) -> None:
        given = [("--run", self.run)]
        for key, text in self.overrides.items():
            given += [(f"--set {key}", word) for word in (text.split() if key == "train" else [text])]
        for option, word in given:
            if word and not _NEEDS_NO_QUOTES.fullmatch(word):
                raise UsageError(
                    f"{option}: {quoted(word, 60)}: a shell of the cluster reads a Ray job's words again, whatever "
                    f"their quotes: with --on ray only {_ONLY}"
                )

    @property
    def spec(self) -> Recipe:
        """The recipe."""
        return named(self.recipe)

    @property
    def values(self) -> dict[str, Value]:
        """Every key with its value."""
        return settled(self.spec, self.overrides)

    @property
    def environment(self) -> dict[str, str]:
        """What steers NCCL, which bundles record as the servers had it; for a trainer also what is expected of it."""
        values, recipe = self.values, self.spec
        out = {
            "NCCL_NVLS_ENABLE": str(values["nvls"]),
            "NCCL_CUMEM_ENABLE": str(values["nccl_cumem"]),
            "NCCL_DEBUG": str(values["nccl_debug"]),
        }
        if recipe.runs == "trainer":
            told = {"run": self.run, "recipe": self.recipe, "gpus": recipe.gpus}
            told |= {key: getattr(recipe, key) for key in ("world_size", "engines", "tp", "transfer", "trainer_gpus")}
            told |= {key: values[key] for key in ("version", "seed", "steps", "gate_bound", "window", "cuda_graph")}
            told |= {key: values[key] for key in ("model", "image") if values[key]}
            out |= {f"REFITCHECK_{key.upper()}": str(value) for key, value in told.items()}
        return out

    def commands(self) -> list[list[str]]:
        """Everything that is run, in order: the run itself, then what keeps and judges its evidence."""
        return self._suites() if self.spec.runs == "suites" else self._trainer()

    def _suites(self) -> list[list[str]]:
        values, recipe, run = self.values, self.spec, self.run
        options = {"evidence": run, "cuda_graph": values["cuda_graph"]}
        options |= {key: values[key] for key in ("model", "python", "site") if values[key]}
        sut = "reference" if recipe.transfer == "tensor" else "reference-distributed"
        return [
            [
                *("refitcheck", "run", "--lane", "sglang-gpu", "--engine", f"sglang:{values['version']}"),
                *("--tp", str(recipe.tp), "--seed", str(values["seed"]), "--side", "refit", "--sut", sut),
                *(word for key, value in options.items() for word in ("--lane-option", f"{key}={value}")),
                *("--report", f"{run}/results.json", "--histories", f"{run}/histories"),
            ],
            ["refitcheck", "bundle", "make", run, "--out", f"{run}.tar.xz"],
            ["refitcheck", "bundle", "verify", f"{run}.tar.xz"],
        ]

    def _trainer(self) -> list[list[str]]:
        train = str(self.values["train"])
        if not train.strip():
            raise UsageError(f"recipe {self.recipe} runs a trainer of yours: --set train='bash my_run.sh'")
        return [
            train.split() if self.where == "ray" else ["bash", "-c", train],
            ["refitcheck", "evidence", "validate", self.run, "--output", f"{self.run}/verdict.json"],
        ]

    def script(self) -> str:
        """The launcher, for bash."""
        import jinja2

        loader = jinja2.PackageLoader("real_runs.launching", "templates")
        templates = jinja2.Environment(
            loader=loader, undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True
        )
        quoted_environment = {name: shlex.quote(value) for name, value in self.environment.items()}
        return templates.get_template(f"{self.where}.sh.jinja").render(
            name=self.recipe,
            recipe=self.spec,
            run=shlex.quote(self.run),
            environment=quoted_environment,
            commands=[shlex.join(command) for command in self.commands()],
            minutes=self.values["time_limit_minutes"],
            address=shlex.quote(self.address),
            runtime=shlex.quote(json.dumps({"env_vars": self.environment})),
        )

    def write(self, path: Path) -> None:
        """The launcher as a new file that can be executed. UsageError where there is one, OSError where none can be."""
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(self.script())
        except FileExistsError:
            raise UsageError(f"{path} is there already: give a new file with --write") from None
        path.chmod(MODE)
