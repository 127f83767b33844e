# SPDX-License-Identifier: Apache-2.0
"""Time of an all-reduce on GPUs, without the host: graphs of 20 calls, by algorithm and size.

    python tools/gpu_latency.py [BACKEND] [RANKS] [DTYPE]

Ranks are threads, one GPU each. Every figure is the median over launches of the slowest rank, and
every shape is checked against numpy in rank order. Prints a table in microseconds a call.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys

import numpy as np

import pyrdnaar
from pyrdnaar import reference

CALLS, LAUNCHES = 20, 9
SIZES = [1 << shift for shift in range(10, 27, 2)]
ALGOS = ("auto", "ll", "oneshot", "twoshot")


def work(exchange: pyrdnaar.Exchange, backend: str, dtype: str) -> dict[tuple[int, str], float]:
    config = dataclasses.replace(
        pyrdnaar.Config(), max_bytes=SIZES[-1], timeout_ms=5000, warmup_timeout_ms=5000
    )
    rank, world = exchange.rank, exchange.world_size
    times = {}
    with pyrdnaar.Communicator(rank, world, exchange, backend, config=config) as comm:
        library, device = comm.library, comm.device
        element = 4 if dtype == "fp32" else 2
        with (
            comm.stream() as stream,
            pyrdnaar.DeviceBuffer(library, SIZES[-1], device) as source,
            pyrdnaar.DeviceBuffer(library, SIZES[-1], device) as target,
            pyrdnaar.Event(library, device) as start,
            pyrdnaar.Event(library, device) as stop,
        ):
            for nbytes in SIZES:
                count = nbytes // element
                inputs = [reference.contribution(r, count, dtype, nbytes) for r in range(world)]
                wanted = reference.expected(inputs, "sum")
                source.write(inputs[rank], stream=stream)
                for algo in ALGOS:
                    if not comm.can_use(count, dtype, algo=algo)[0]:
                        continue
                    seen = np.empty_like(wanted)
                    reference.poison(seen)
                    target.write(seen, stream=stream)
                    with stream.capture() as graph:
                        for _ in range(CALLS):
                            comm.all_reduce_ptr(
                                source.ptr, target.ptr, count, dtype, algo=algo, stream=stream
                            )
                    samples = []
                    for _ in range(LAUNCHES + 1):
                        exchange.all_gather(b"")
                        graph.launch(stream)  # aligns the ranks
                        start.record(stream)
                        graph.launch(stream)
                        stop.record(stream)
                        stream.sync()
                        samples.append(stop.elapsed_us(start) / CALLS)
                    graph.close()
                    comm.check()
                    wrong = reference.wrong_elements(target.read(seen, stream=stream), wanted)
                    if wrong:
                        raise SystemExit(f"{nbytes} bytes, {algo}: {wrong} wrong elements")
                    raw = np.array(samples[1:]).tobytes()
                    ranks = [np.frombuffer(r) for r in exchange.all_gather(raw)]
                    times[nbytes, algo] = statistics.median(np.max(ranks, axis=0))
        exchange.all_gather(b"")
    return times


def main() -> None:
    backend, ranks, dtype = (*sys.argv[1:], *("cuda", "2", "bf16")[len(sys.argv) - 1 :])
    times = pyrdnaar.run_threads(work, int(ranks), backend, dtype)[0]
    print(f"{'bytes':>10} " + " ".join(f"{algo:>9}" for algo in ALGOS))
    for nbytes in SIZES:
        cells = [f"{times[nbytes, a]:9.2f}" if (nbytes, a) in times else f"{'-':>9}" for a in ALGOS]
        print(f"{nbytes:>10} " + " ".join(cells))


if __name__ == "__main__":
    main()
