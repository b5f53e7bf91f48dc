"""Options of systems under test: every name is known to one of them, every value could work, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.errors import HarnessError, RefitcheckError, UsageError
from harness.sut.loader import load_sut
from harness.watchdog import Hung, watched
from harness.words import one_line, told


def declared(name: str, options: Mapping[str, str], limit_s: float) -> frozenset[str]:
    """The names of options that an adapter declares; it is shown its own of `options`, for their values.

    Its code runs for `limit_s` real seconds at most (0: no limit). UsageError for a value that it refuses.
    """
    who = f"system under test {name!r}"
    try:
        with watched(limit_s, f"{who}: its options"):
            sut = load_sut(name)()
            known = frozenset(str(option) for option in getattr(sut, "options", ()))
            mine = {option: value for option, value in options.items() if option in known}
            check = getattr(sut, "check_options", None)
            if check is not None and mine:
                check(mine)
            return known
    except RefitcheckError:
        raise
    except Hung as hung:
        raise UsageError(f"{who}: its options: {hung}") from hung
    except ValueError as error:
        raise UsageError(f"{who}: {one_line(error)}") from error
    except Exception as error:
        raise HarnessError(f"{who}: its options: {told(error)}") from error


def refuse_unknown(given: Iterable[str], known: Iterable[str], whose: str) -> None:
    """UsageError for names that nobody declares."""
    names = sorted(set(known))
    lost = sorted(set(given) - set(names))
    if lost:
        has = f"it has {', '.join(names)}" if names else "it names none (attribute `options` of an adapter)"
        raise UsageError(f"--sut-option {lost[0]}: {whose} has no such option; {has}")


def check_options(options: Mapping[str, Mapping[str, str]], limit_s: float) -> None:
    """UsageError, in one line, unless every option is known to one of these systems under test; their own, by name."""
    if not any(options.values()):
        return
    known = {option for name, mine in options.items() for option in declared(name, mine, limit_s)}
    refuse_unknown((option for mine in options.values() for option in mine), known, ", ".join(options))
