"""The command `refitcheck`: run, list, explain, judge, serve, doctor, and what other packages mount.

Exit codes: 0 held, 1 violated, 2 inconclusive, 3 harness error, 4 usage.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.commands import MountingGroup
from harness.errors import RefitcheckError, UsageError
from harness.interrupts import INTERRUPTED, came, end_at_once, raise_from_now_on
from harness.settings import DEFAULT_SEED, DEFAULT_VERSION, HANG_TIMEOUT_S
from harness.streams import complain, give_up, lost, prepare_streams
from harness.words import one_line, told

app = typer.Typer(
    cls=MountingGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Proves, without a GPU, that a trainer pushes new weights into SGLang engines correctly.",
)

_ClickError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
PASS_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _a_path(text: str) -> Path:
    if not text:  # an unset variable of a shell; as a Path it would be the working folder
        raise typer.BadParameter("it is empty; . is the working folder")
    return Path(text)


def named_path(metavar: str, words: str) -> Any:
    """An option that is a path and has a name."""
    return typer.Option(parser=_a_path, metavar=metavar, help=words)


@app.command()
def run(
    engine: Annotated[str, typer.Option(help="Engine versions, as fake:0.5.21,0.5.23, or all.")] = DEFAULT_VERSION,
    lane: Annotated[str, typer.Option(help="Where engines come from: fake, http, sglang-cpu, ...")] = "fake",
    sut: Annotated[str, typer.Option(help="Systems under test: reference, package.module:factory, ...")] = "reference",
    policy: Annotated[str, typer.Option(help="After a partial update: resume, quarantine or terminal.")] = "resume",
    tp: Annotated[int, typer.Option(min=0, help="Tensor parallel size of each engine; 0 is the lane's default.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = DEFAULT_SEED,
    rule: Annotated[list[str] | None, typer.Option(help="Only this rule or family; may be repeated.")] = None,
    scenario: Annotated[list[str] | None, typer.Option(help="Only this scenario; may be repeated.")] = None,
    fault: Annotated[str, typer.Option(help="Faults in the client's calls, as e0:flush_cache#1:before:drop.")] = "",
    side: Annotated[str, typer.Option(help="Scenarios of which side: engine, refit or both.")] = "",
    exploration: Annotated[
        str, typer.Option(help="Fault exploration: off, sample or full (off unless the clock is virtual).")
    ] = "",
    fatal_sample: Annotated[int | None, typer.Option(min=0, help="Keep only N scenarios that kill an engine.")] = None,
    allow_inconclusive: Annotated[
        list[str] | None, typer.Option(help="Rule or family that may stay inconclusive; may be repeated.")
    ] = None,
    plant: Annotated[str, typer.Option(help="Plant this defect first; see refitcheck list.")] = "",
    hang_timeout: Annotated[
        float, typer.Option(help="Real seconds after which a client that does not come back is hung; 0: never.")
    ] = HANG_TIMEOUT_S,
    death: Annotated[
        str, typer.Option(help="What an engine's death is to a client in its process: raise, or process (SIGKILL).")
    ] = "raise",
    lane_option: Annotated[list[str] | None, typer.Option(help="An option of the lane, as time_scale=0.02.")] = None,
    sut_option: Annotated[
        list[str] | None, typer.Option(help="An option of the system under test, as checkout=FOLDER.")
    ] = None,
    workers: Annotated[str, typer.Option("-n", "--workers", help="Worker processes, or auto.")] = "auto",
    junitxml: Annotated[Path | None, named_path("FILE", "Write JUnit XML here.")] = None,
    report: Annotated[Path | None, named_path("FILE", "Write results.json here.")] = None,
    summary: Annotated[Path | None, named_path("FILE", "Write a Markdown summary here.")] = None,
    histories: Annotated[Path | None, named_path("FOLDER", "Write every history into this folder.")] = None,
) -> int:
    """Run the conformance suites and judge every rule."""
    from harness import run as running
    from harness.outputs import Outputs

    settings, info = running.settings_from(
        engine=engine,
        lane=lane,
        sut=sut,
        policy=policy,
        tp=tp,
        seed=seed,
        rules=tuple(rule or ()),
        scenarios=tuple(scenario or ()),
        fault=fault,
        side=side,
        exploration=exploration,
        fatal_sample=fatal_sample,
        allow_inconclusive=tuple(allow_inconclusive or ()),
        plant=plant,
        hang_timeout=hang_timeout,
        death=death,
        lane_options=tuple(lane_option or ()),
        sut_options=tuple(sut_option or ()),
    )
    outputs = Outputs(junitxml=junitxml, report=report, summary=summary, histories=histories)
    raise_from_now_on()
    return running.run(settings, info, outputs, workers=running.workers_of(workers, info))


@app.command("list")
def list_(
    rules: Annotated[bool, typer.Option("--rules", help="The rules: this is what it lists without an option.")] = False,
    scenarios: Annotated[bool, typer.Option("--scenarios", help="The scenarios instead of the rules.")] = False,
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Which rules are validated on a real SGLang, fake only, or not yet.")
    ] = False,
    validated_before: Annotated[
        str, typer.Option(metavar="DAYS", help="Validations that are older than so many days, as 30d.")
    ] = "",
) -> int:
    """The rules, each with its scenarios, the mutants that it kills and the planted defects that it catches."""
    from harness import listing, validated

    if rules + scenarios + provenance + bool(validated_before) > 1:
        raise UsageError("list takes one of --rules, --scenarios, --provenance and --validated-before")
    if validated_before:
        validated.print_before(validated_before)
        return 0
    chosen = listing.print_scenarios if scenarios else listing.print_provenance if provenance else listing.print_rules
    chosen()
    return 0


@app.command()
def explain(rule: Annotated[str, typer.Argument(metavar="RULE", help="The id of a rule, as SESS-1.")]) -> int:
    """One rule: its text, sources, what it needs, its scenarios, and what it was proved to catch."""
    from harness import listing

    listing.print_rule(rule)
    return 0


@app.command()
def judge(
    files: Annotated[list[Path], typer.Argument(help="The files of one history, one per writer.")],
    rule: Annotated[list[str] | None, typer.Option(help="Only this rule or family; may be repeated.")] = None,
    without_core: Annotated[bool, typer.Option("--without-core", help="Judge as a black box.")] = False,
    beside: Annotated[
        Path | None, typer.Option(help="The fault-free history of the same scenario: EXPLORE is judged beside it.")
    ] = None,
) -> int:
    """Judge a stored history again, by the rules of its scenario."""
    from harness import rejudge

    return rejudge.judge_files(files, tuple(rule or ()), without_core=without_core, beside=beside)


@app.command(context_settings=PASS_ARGUMENTS, add_help_option=False)
def serve(ctx: typer.Context) -> int:
    """Start a fake engine over HTTP; takes the arguments of SGLang's launcher, and --profile VERSION."""
    from harness.serving import serve as start

    return start(list(ctx.args))


@app.command()
def model(
    folder: Annotated[
        Path, typer.Argument(parser=_a_path, metavar="FOLDER", help="Where to write config.json and model.safetensors.")
    ],
    shape: Annotated[str, typer.Option(help="llama, qwen2 or qwen3.")] = "llama",
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
) -> int:
    """Write a tiny random Hugging Face model, as fake and real engines serve it."""
    from harness.serving import write_tiny_model

    write_tiny_model(folder, shape, seed)
    return 0


@app.command()
def doctor() -> int:
    """Look for what would make a run fail: shadowed packages, broken entry points, rules that do not fit together."""
    from harness.doctor import diagnose

    return diagnose()


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: never a traceback for what the caller can mend."""
    from harness.leaving import leave

    end_at_once()
    prepare_streams()
    leave(invoke(argv))


def invoke(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    code = _invoked(argv)
    if came() and code != INTERRUPTED:
        code = _told("interrupted", INTERRUPTED)
    try:
        sys.stdout.flush()
    except OSError as error:
        give_up(error)
    why = lost()
    if why:
        complain(f"standard output: {why}")
    return code or (4 if why else 0)


def _invoked(argv: Sequence[str] | None) -> int:
    command = typer.main.get_command(app)
    arguments = None if argv is None else list(argv)
    try:
        code = int(command.main(args=arguments, prog_name="refitcheck", standalone_mode=False) or 0)
        return _told("interrupted", code) if code == INTERRUPTED else code
    except _ClickError as error:
        return _told(one_line(getattr(error, "format_message", error.__str__)()), 4)
    except RefitcheckError as error:
        return _told(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _told("interrupted", INTERRUPTED)
    except typer.Exit as done:
        return done.exit_code
    except (OSError, SystemExit) as error:
        if not {"--help", "-h"} & set(sys.argv if arguments is None else arguments):
            return _broken(error)
        give_up(error if isinstance(error, OSError) else BrokenPipeError())  # rich's printing of help exits with 1
        return 0
    except Exception as error:
        return _told("interrupted", INTERRUPTED) if came() else _broken(error)


def _broken(error: BaseException) -> int:
    if os.environ.get("REFITCHECK_TRACEBACK") or isinstance(error, SystemExit):
        raise error
    if isinstance(error, OSError) and error.errno in _NO_ROOM:  # of a command that writes where it was told to
        return _told(f"{error.filename or 'what it writes'}: {error.strerror}", 4)
    return _told(f"harness error: {told(error)} (REFITCHECK_TRACEBACK=1 shows where)", 3)


def _told(text: str, code: int) -> int:
    complain(text)
    return code


if __name__ == "__main__":
    main()
