"""Jobs of the stub: the real host, beside a model that needs nothing."""

import shutil
import sys
from pathlib import Path

from real_runs.megatron_bridge import jobs


def host(folder):
    script = Path(folder) / "bridge_host.py"
    shutil.copy(Path(jobs.__file__).with_name("bridge_host.py"), script)
    shutil.copy(Path(__file__).with_name("stub_model.py"), script.with_name("bridge_model.py"))
    return jobs.Host(Path(sys.executable), script)


if __name__ == "__main__":  # what is left of this when it is killed
    made = jobs.Job(host(sys.argv[1]), 2, 2, 1)
    for rank in (0, 1):
        made.begin(rank)
    made.ask(0)  # it waits for rank 1, in a collective
    print(made.host._process.pid, *made._pids, made.host.folder, flush=True)
    sys.stdin.read()
