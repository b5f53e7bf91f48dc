from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.mutate.command import Request, run
from harness.outputs import Outputs


def test_a_folder_of_histories_that_is_a_file_is_told_as_such(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file: is no folder$"):
        Outputs(histories=tmp_path / "file").check()


@pytest.mark.parametrize("text", [None, "1 / 0"])
def test_a_file_of_rules_is_loaded_before_its_rules_are_missed(tmp_path, text):
    path = tmp_path / "houserules.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as told:
        run(Request(rules=("HOUSE",), rule_files=(str(path),), only_list=True))
    assert "houserules.py" in str(told.value)
