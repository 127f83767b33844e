# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is: wave operations a second of one core, and a call of 1 MiB."""

from __future__ import annotations

import re

from .conftest import Tables, run, simulated

AT_LEAST_MILLION = 50.0
AT_MOST_SECONDS = 2.0

PROGRAM = """
import time
import numpy as np
import pyrdnaar

def work(exchange):
    config = pyrdnaar.Config(warmup_timeout_ms=60000, timeout_ms=60000)
    with pyrdnaar.Communicator(
        exchange.rank, 2, exchange, "hip", device=exchange.rank, config=config
    ) as comm:
        stream, count, times = comm.stream(), {count}, []
        x = np.full(count, exchange.rank + 1, np.float32)
        a = pyrdnaar.DeviceBuffer(comm.library, x.nbytes, comm.device)
        a.write(x, stream=stream)
        for _ in range({calls}):
            exchange.all_gather(b"")
            start = time.perf_counter()
            comm.all_reduce_ptr(a.ptr, a.ptr, count, "fp32", "max", algo="ll", stream=stream)
            stream.sync()
            times.append(time.perf_counter() - start)
        seen = a.read(np.empty_like(x), stream=stream)
        assert (seen == 2).all()
        exchange.all_gather(b"")
        stream.close()
        a.close()
        return min(times)

print("took", max(pyrdnaar.run_threads(work, 2)))
"""


def measure(count: int, calls: int) -> tuple[float, float]:
    """Seconds of the fastest call, and million operations a second."""
    environment = simulated("V620", 2, RDNASIM_STATISTICS="1")
    result = run(["-c", PROGRAM.format(count=count, calls=calls)], environment)
    assert result.returncode == 0, result.stderr
    took = re.search(r"took ([\d.e-]+)", result.stdout)
    rate = re.search(r"([\d.]+) million a second", result.stderr)
    assert took is not None
    assert rate is not None, result.stderr
    return float(took[1]), float(rate[1])


def test_rate(tables: Tables) -> None:
    rate = max(measure(40000, 300)[1] for _ in range(3))
    tables.add("speed", f"{rate:.0f} million wave operations a second of one core, strong")
    assert rate >= AT_LEAST_MILLION


def test_one_mebibyte(tables: Tables) -> None:
    took, _ = measure(1 << 18, 3)
    tables.add("speed", f"all-reduce of 1 MiB, W = 2: {took * 1000:.0f} ms")
    assert took < AT_MOST_SECONDS
