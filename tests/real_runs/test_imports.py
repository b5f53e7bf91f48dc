"""Everything under real_runs can be imported where there is neither SGLang nor torch."""

import subprocess
import sys

CODE = """
import pkgutil, sys, importlib, real_runs
scripts = ("real_runs.minder", "real_runs.megatron_bridge.bridge_host", "real_runs.fuzz.oracle.")  # of others
for found in pkgutil.walk_packages(real_runs.__path__, "real_runs."):
    if not found.name.startswith(scripts):
        importlib.import_module(found.name)
assert len([m for m in sys.modules if m.startswith("real_runs.")]) > 25
heavy = {"torch", "sglang", "fastapi", "ray", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""


def test_no_module_imports_torch_or_sglang():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_importing_the_shim_changes_nothing():
    code = "import sys; b = list(sys.meta_path); import real_runs.refitcheck_sglang_shim; assert sys.meta_path == b"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
