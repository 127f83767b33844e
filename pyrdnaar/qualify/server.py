# SPDX-License-Identifier: Apache-2.0
"""Is there a server, and is it ready?"""

from __future__ import annotations

import time
from typing import Any

from ..errors import RdnaarError
from .transport import Client, RequestError, StatusError
from .work import Bar

POLL_SECONDS = 0.5
# For one look. A server that computes may take a while even for that.
LOOK_SECONDS = 30.0
MAX_MODELS = 20


class Unreachable(RdnaarError):
    """There is no server at the address, or none that is ready."""

    exit_code = 3


def await_ready(client: Client, wait_s: float, bar: Bar) -> list[str]:
    """The models that the server says it has. Waits for one that is being started."""
    start = time.monotonic()
    try:
        while True:
            passed = time.monotonic() - start
            bar.show(min(int(passed), int(wait_s)))
            try:
                return _models(client)
            except RequestError as error:
                if passed >= wait_s:
                    raise Unreachable(f"{error}; --wait SECONDS waits for a server") from None
            client.pause(POLL_SECONDS)
    finally:
        bar.clear()


def _models(client: Client) -> list[str]:
    """Empty for a server that does not list any; not every one does. Any other error than that of a
    server that is being started (5xx) is the checks' to tell."""
    seconds = min(LOOK_SECONDS, client.timeout_s)
    try:
        with client.request("GET", "/models", timeout_s=seconds) as reply:
            data = reply.json()
    except StatusError as error:
        if error.http_status >= 500:
            raise
        return []
    models: Any = data.get("data") if isinstance(data, dict) else None
    if not isinstance(models, list):
        return []
    names = [model.get("id") for model in models[:MAX_MODELS] if isinstance(model, dict)]
    return [client.redact(name)[:200] for name in names if isinstance(name, str)]
