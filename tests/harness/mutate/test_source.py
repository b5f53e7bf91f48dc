from __future__ import annotations

import ast
import traceback

import pytest

from harness.mutate import source
from harness.mutate.source import TargetError
from tests.harness.mutate.samples import live

MODULE = """
    import contextlib
    import functools

    def plain(x):
        return x + 1

    class Base:
        def who(self):
            return "base"

    class Child(Base):
        __secret = 7

        def who(self):
            return super().who() + " child"

        def hidden(self):
            return self.__secret

        @property
        def size(self):
            return 1

        @size.setter
        def size(self, value):
            self.kept = value

        @classmethod
        def make(cls):
            return cls()

        @staticmethod
        def still():
            return "still"

    @contextlib.contextmanager
    def held(out):
        out.append("enter")
        yield
        out.append("exit")

    def outer():
        def inner():
            return "inner"
        return inner

    def fails():
        x = 1

        raise ValueError("here")
"""


def swap(program, name, qualname, change):
    code = program.sources[name]
    function = code.function(qualname)
    node = ast.parse(ast.unparse(function.node)).body[0]
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            part.value = change(part.value)
    program.swap(code, function, node)


@pytest.mark.parametrize(
    ("qualname", "use", "before", "after"),
    [
        ("Child.who", lambda m: m.Child().who(), "base child", "base CHILD"),
        ("Child.still", lambda m: m.Child.still(), "still", "STILL"),
        ("outer", lambda m: m.outer()(), "inner", "INNER"),
    ],
)
def test_changed_code_is_what_runs_also_through_references_taken_before(
    tmp_path, monkeypatch, qualname, use, before, after
):
    module, program = live(tmp_path, MODULE, monkeypatch)
    assert use(module) == before
    swap(program, module.__name__, qualname, str.upper)
    assert use(module) == after


def test_a_decorated_function_is_found_behind_its_wrapper(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    swap(program, module.__name__, "held", str.upper)
    out: list[str] = []
    with module.held(out):
        pass
    assert out == ["ENTER", "EXIT"]


def test_private_names_and_super_survive_a_swap_that_changes_nothing(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    for function in program.sources[module.__name__].functions:
        program.swap(program.sources[module.__name__], function, function.node)
    child = module.Child.make()
    assert (child.who(), child.hidden(), child.size, module.plain(1)) == ("base child", 7, 1, 2)


def test_dropping_the_only_use_of_super_keeps_the_closure(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    code = program.sources[module.__name__]
    program.swap(code, code.function("Child.who"), ast.parse("def who(self):\n    return 'alone'").body[0])
    assert module.Child().who() == "alone"


def test_of_a_property_the_getter_and_the_setter_are_two_functions(tmp_path, monkeypatch):
    module, program = live(tmp_path, MODULE, monkeypatch)
    code = program.sources[module.__name__]
    setter = [f for f in code.functions if f.qualname == "Child.size"][1]
    program.swap(code, setter, ast.parse("def size(self, value):\n    self.kept = -value").body[0])
    child = module.Child()
    child.size = 5
    assert (child.size, child.kept) == (1, -5)


def test_lines_in_a_traceback_are_those_of_the_file(tmp_path, monkeypatch):
    module, _ = live(tmp_path, MODULE, monkeypatch)
    with pytest.raises(ValueError) as error:
        module.fails()
    frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert frame.line == 'raise ValueError("here")'


def test_a_target_that_does_not_import_is_one_clear_line():
    with pytest.raises(
        TargetError, match=r"^target no\.such does not import: ModuleNotFoundError: No module named 'no'$"
    ):
        source.read("no.such")


def test_a_target_without_python_source_is_refused():
    with pytest.raises(TargetError, match="target math has no Python source"):
        source.read("math")


def test_a_package_stands_for_all_its_modules():
    assert source.submodules("json") == ["json.decoder", "json.encoder", "json.scanner", "json.tool"]
    assert source.submodules("json.decoder") == ["json.decoder"]


def test_the_lines_of_a_decorated_function_stay_where_they_are(tmp_path, monkeypatch):
    module, program = live(
        tmp_path,
        """
        import functools

        class Box:
            @property
            @functools.cache
            def size(self):
                return 1 / self.none
        """,
        monkeypatch,
    )
    box = module.Box()
    for none in (0, 0):
        box.none = none
        with pytest.raises(ZeroDivisionError) as caught:
            _ = box.size
        assert caught.traceback[-1].lineno + 1 == 8
    assert not program.dead


def test_the_limit_of_an_import_ends_with_it(monkeypatch):
    """A module that a table's mutant names is read in mid-session: the session must not be ended two minutes later."""
    from harness.mutate import guard, source

    said = []
    monkeypatch.setattr(guard, "stage", lambda name, limit_s=0.0: said.append((name, limit_s)))
    source.read("json.decoder")
    assert said == [("target json.decoder: its import", guard.IMPORT_S), ("", 0.0)]
