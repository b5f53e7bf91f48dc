"""/health, /health_generate, /ready and /ping.

The probe generates one token and looks every second, for 20 s at most, whether *anything* came from the scheduler
since it
began: a reply to another call counts, and a paused or blocked engine is 503 only after the whole 20 s
(entrypoints/http_server.py:721-795@0.5.23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakes.engine.generate_batch import GenerateRequest, Item
from fakes.engine.generation import HEALTH_PREFIX, Generator, State

if TYPE_CHECKING:
    from fakes.engine.tokenizer_manager import TokenizerManager

POLL_S = 1.0
TIMEOUT_S = 20.0


async def probe(tm: TokenizerManager, generator: Generator) -> int:
    """The status of a health check that generates."""
    tic = tm.loop.now
    sampling = {"max_new_tokens": 1, "temperature": 0.0}
    rid = f"{HEALTH_PREFIX}_{generator.new_rid()}"
    item = Item(rid, [0], None, sampling, None, None)
    states: dict[str, State] = {}
    task = tm.loop.spawn(generator.run(GenerateRequest([item], True, False, 1), None, states), "health")
    status = 503
    while tm.loop.now < tic + TIMEOUT_S - POLL_S / 2:
        await tm.loop.sleep(POLL_S)
        if tm.last_receive > tic:
            status = 200
            break
    task.cancel()
    tm.states.pop(rid, None)
    tm.healthy = status == 200
    return status


def ready(tm: TokenizerManager) -> int:
    """200 unless paused or unhealthy."""
    return 200 if tm.healthy and not tm.is_pause else 503


def ping(tm: TokenizerManager) -> int:
    """Always 200 up to 0.5.22, then the health flag."""
    return 200 if tm.healthy or not tm.profile.ping_follows_health else 503
