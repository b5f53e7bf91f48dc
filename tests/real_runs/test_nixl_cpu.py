"""The reference client's streams over real NIXL, where it is installed."""

from __future__ import annotations

import sys

import pytest

from real_runs import nixl_cpu

real = pytest.mark.skipif(nixl_cpu.package() is None, reason="needs pip install --no-deps nixl-cu12 (or nixl-cu13)")


@real
@pytest.mark.timeout(400)
def test_two_refits_arrive_exactly_over_ucx(tmp_path):
    verdict = nixl_cpu.judge(tmp_path / "verdict.json")
    assert verdict.ok, verdict
    assert "2 refits of 2 engines" in verdict.told


@real
def test_without_a_network_transport_the_library_says_what_the_fake_says(tmp_path):
    verdict = nixl_cpu.judge(tmp_path / "verdict.json", {"UCX_TLS": "sm"})
    assert not verdict.ok
    assert "StreamFailed: connect: NIXL_ERR_BACKEND" in verdict.told


def script(tmp_path, monkeypatch, body):
    """A child that does `body` instead."""
    child = tmp_path / "child.py"
    child.write_text(f"import os, sys, pathlib\nout = pathlib.Path(sys.argv[-1])\n{body}\n")
    run = nixl_cpu.subprocess.run
    monkeypatch.setattr(nixl_cpu.subprocess, "run", lambda c, **k: run([sys.executable, str(child), c[-1]], **k))
    return nixl_cpu.judge(tmp_path / "verdict.json")


def test_a_crash_after_the_verdict_is_told_apart(tmp_path, monkeypatch):
    body = """out.write_text('{"ok": true, "told": "fine"}'); os.kill(os.getpid(), 11)"""
    assert script(tmp_path, monkeypatch, body) == nixl_cpu.Verdict(True, "fine", crashed_after=True)


def test_a_crash_before_it_is_no_verdict(tmp_path, monkeypatch):
    verdict = script(tmp_path, monkeypatch, "os.kill(os.getpid(), 11)")
    assert not verdict.ok
    assert "no verdict, exit code -11" in verdict.told


def test_without_a_crash_nothing_is_said_of_one(tmp_path, monkeypatch):
    verdict = script(tmp_path, monkeypatch, """out.write_text('{"ok": false, "told": "wrong"}')""")
    assert verdict == nixl_cpu.Verdict(False, "wrong")


def test_a_child_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(nixl_cpu, "TIMEOUT_S", 0.5)
    verdict = script(tmp_path, monkeypatch, "import time; time.sleep(60)")
    assert "not over after 0.5 s" in verdict.told
