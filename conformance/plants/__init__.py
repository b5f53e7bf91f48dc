"""Planted defects: for every rule a broken client or a lenient engine that it, alone among the declared, must catch."""

from __future__ import annotations

from harness.suites import Plant


def catalogue() -> tuple[Plant, ...]:
    """Every plant."""
    from conformance.plants import (
        client_calls,
        client_content,
        client_explore,
        client_gate,
        client_group,
        client_guard,
        client_ipc,
        client_nixl,
        client_quantised,
        disk,
        draft,
        engine_answers,
        engine_control,
        engine_data,
        engine_derived,
        engine_group,
        engine_ipc,
        engine_saver,
        lora,
    )

    return (
        *engine_control.PLANTS,
        *engine_answers.PLANTS,
        *engine_data.PLANTS,
        *engine_derived.PLANTS,
        *engine_saver.PLANTS,
        *engine_group.PLANTS,
        *engine_ipc.PLANTS,
        *client_calls.PLANTS,
        *client_content.PLANTS,
        *client_explore.PLANTS,
        *client_gate.PLANTS,
        *client_group.PLANTS,
        *client_guard.PLANTS,
        *client_ipc.PLANTS,
        *client_quantised.PLANTS,
        *client_nixl.PLANTS,
        *disk.PLANTS,
        *lora.PLANTS,
        *draft.PLANTS,
    )
