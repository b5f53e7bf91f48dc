"""API and admin keys: which requests SGLang lets through to its routes (utils/auth.py:53-117@0.5.23).

It is the outermost middleware there: a refused request reaches neither route nor body.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Literal

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.protocol import EngineConfig
from fakes.engine.routes import Route

Decision = Literal["allowed", "unauthorised", "broken"]
"""broken: SGLang compares the key as text and fails with a 500 when it is not ASCII."""

_EXEMPT = ("/health", "/metrics")


def decide(
    profile: EngineProfile,
    config: EngineConfig,
    routes: Mapping[str, Route],
    method: str,
    path: str,
    bearer: str | None,
) -> Decision:
    """`bearer` is what follows "Bearer " in the Authorization header; None when there is no such header.

    The admin key alone opens control routes once it is set; the API key guards all others, unknown paths too.
    """
    exempt = (*_EXEMPT, "/ready") if profile.ready_route else _EXEMPT
    if method == "OPTIONS" or path.startswith(exempt):
        return "allowed"
    route = routes.get(path)
    expected = config.api_key
    if route is not None and method in route.methods and route.auth == "admin" and config.admin_api_key:
        expected = config.admin_api_key
    if not expected:
        return "allowed"
    if not bearer:
        return "unauthorised"
    if not (bearer.isascii() and expected.isascii()):
        return "broken"
    return "allowed" if secrets.compare_digest(bearer, expected) else "unauthorised"
