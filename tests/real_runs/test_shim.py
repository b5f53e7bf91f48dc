"""The stand-ins for what has no CPU build, in a process of their own."""

import os
import subprocess
import sys

import pytest

PRELUDE = """
import sys
from real_runs import refitcheck_sglang_shim as shim
shim.ABSENT_ON_CPU = ("absent_pkg", "triton")
shim.install()
shim.install()
"""


def run(code, **extra):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, env={**os.environ, **extra}
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import absent_pkg.deep.deeper; from absent_pkg.deep import thing, Klass",
        "import absent_pkg\nclass Mine(absent_pkg.Base):\n    pass\nMine(1, 2)",
        "import absent_pkg\n@absent_pkg.jit\ndef f(): return 5\nassert f() == 5",
        "import absent_pkg\n@absent_pkg.autotune(configs=[1], key=['a'])\ndef f(): return 5\nassert f() == 5",
        "import absent_pkg as a\nassert not a.flag and list(a.items) == [] and a.x[3] is a.x",
        "import absent_pkg\ndef f(x: absent_pkg.tensor | None, y: 'int' = 0): pass",
        "import absent_pkg as a\nassert a.Enum.MEMBER == 'Enum.MEMBER' and not isinstance(5, a.Enum)",
        "import absent_pkg as a\nassert not hasattr(a, '__all__') and not hasattr(a.Base, '__dataclass_fields__')",
        "assert sum(type(f).__name__ == '_AbsentFinder' for f in sys.meta_path) == 1",
        "try:\n    import another_absent\nexcept ModuleNotFoundError:\n    pass\nelse:\n    raise SystemExit(1)",
    ],
)
def test_an_absent_package_has_whatever_is_asked_of_it(code):
    run(code)


def test_triton_has_the_two_functions_that_the_cpu_path_calls():
    run("from triton import cdiv, next_power_of_2 as power\nassert (cdiv(7, 2), power(5), power(0)) == (4, 8, 1)")


def test_a_package_that_is_there_wins(tmp_path):
    (tmp_path / "absent_pkg.py").write_text("value = 7\n")

    run("import absent_pkg\nassert absent_pkg.value == 7", PYTHONPATH=f"{tmp_path}:{os.getcwd()}")


@pytest.mark.parametrize(("switch", "same"), [("1", True), ("0", False)])
def test_tensor_cuda_is_the_identity_only_where_it_is_switched_on(tmp_path, switch, same):
    pytest.importorskip("torch", reason="this is about torch's own method")
    package = tmp_path / "sglang" / "srt" / "utils"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "weight_checker.py").touch()
    code = f"""
import torch
import sglang.srt.utils.weight_checker
tensor = torch.ones(1)
try:
    result = tensor.cuda() is tensor
except (RuntimeError, AssertionError):
    result = False
assert result is {same} or torch.cuda.is_available()
"""
    run(code, PYTHONPATH=f"{tmp_path}:{os.getcwd()}", REFITCHECK_SHIM_TENSOR_CUDA=switch)
