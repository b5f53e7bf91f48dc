from fakes.engine.profiles import PROFILES
from real_runs.fuzz.deriving import CANDIDATES, UNSEEN, derive, told
from tests.real_runs.fuzz.scripted_oracle import ScriptedOracle


def derived(base, version, count=160):
    return derive(PROFILES[base], ScriptedOracle(version), size=count)


def test_what_changed_between_two_versions_is_found():
    found = derived("0.5.21", "0.5.22")
    assert found.unlike == 0
    assert found.changed == {"flush_failure": ("die", "refuse")}
    assert found.undecided["version_before_flush"] == [True]  # an order that no answer shows: it has to be read


def test_a_version_derived_from_itself_has_not_changed():
    found = derived("0.5.23", "0.5.23")
    assert (found.changed, found.unlike) == ({}, 0)
    assert "nothing that these answers show has changed" in told(found, "0.5.23", "0.5.23")


def test_the_text_names_what_remains_to_be_read():
    text = told(derived("0.5.21", "0.5.22"), "0.5.21", "0.5.22")
    assert "flush_failure = 'refuse'   (was 'die')" in text
    assert "to be read: " in text
    for name in UNSEEN:
        assert name in text
    assert not set(UNSEEN) & set(CANDIDATES)
