# SPDX-License-Identifier: Apache-2.0
"""The production library, unmodified, on simulated V620, 7900 XTX and R9700.

The tests of the collective that run on every backend, as they are (ranks are threads, dealt over
two devices), and the self test with ranks as processes.
"""

from __future__ import annotations

import pytest

from .conftest import LONG, MODELS, Tables, run, simulated

SEEDS = range(1, 11) if LONG else (1,)
WORLDS = range(1, 9)
# These hold real times against bounds, so they run with a clock that goes as fast as it should.
BOUNDED = "test_failure or test_chunks and (timeout or mismatch)"
# Injected faults need a library of their own; deaths of processes are about the host's side.
STRONG = f"not (test_faults or test_liveness or {BOUNDED})"
# What a machine of two cores does in a minute; the long run takes all.
STRONG_SHORT = f"{STRONG} and (not (counts or limits or test_order or test_graphs) or [2] or forty)"
RANDOM = "operations or edge_values or two_graphs or forty or overwritten or overlapping"
RANDOM_SHORT = "test_operations and (2 or 5 or 8) or test_edge_values and 3 or forty or overwritten"
# For bounds that a working call must keep on a busy machine. Tests of failures wait for them.
SLOW = {"RDNASIM_SLOW_CLOCK": "20"}
LARGEST = {"strong": "16K", "weak": "1K"}  # message of the self test, in a short run


def collective(model: str, memory: str, seed: int, choice: str, **more: str) -> str:
    environment = simulated(
        model, 2, memory, seed, PYRDNAAR_TEST_BACKEND="hip", PYTHONUNBUFFERED="1", **more
    )
    arguments = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/collective"]
    result = run([*arguments, "-k", choice], environment, timeout=3000)
    assert result.returncode == 0, f"{model} {memory} seed {seed}: {result.stdout[-6000:]}"
    return result.stdout.splitlines()[-1]


TITLE = "tests of the collective in simulation"


@pytest.mark.parametrize("target", MODELS)
def test_threads_strong(target: str, tables: Tables) -> None:
    choice = STRONG if LONG else STRONG_SHORT
    line = collective(MODELS[target], "strong", 0, choice, **SLOW)
    tables.add(TITLE, f"{target} strong: {line}")


@pytest.mark.parametrize("target", MODELS)
def test_failures(target: str, tables: Tables) -> None:
    """These hold real times against bounds, with room of some tenths of a second: a machine that
    did something else just then has another try."""
    try:
        line = collective(MODELS[target], "strong", 0, BOUNDED)
    except AssertionError:
        line = f"second try: {collective(MODELS[target], 'strong', 0, BOUNDED)}"
    tables.add(TITLE, f"{target} strong, failures: {line}")


@pytest.mark.parametrize("memory", ["strong", "weak"])
@pytest.mark.parametrize("target", MODELS)
def test_threads_in_random_turns(target: str, memory: str, tables: Tables) -> None:
    for seed in SEEDS:
        line = collective(MODELS[target], memory, seed, RANDOM if LONG else RANDOM_SHORT, **SLOW)
        tables.add(TITLE, f"{target} {memory}, seed {seed}: {line}")


def test_host_transport() -> None:
    more = {"PYRDNAAR_TEST_TRANSPORT": "host", "RDNASIM_PEER": "refused", **SLOW}
    collective("V620", "strong", 1, "test_operations and (2 or 3)", **more)


def test_few_blocks_are_resident() -> None:
    """A grid need not be resident: with room for two blocks on each device it still ends."""
    collective(
        "V620", "strong", 1, "sizes_around_limits and [2]", RDNASIM_RESIDENT_BLOCKS="2", **SLOW
    )


# Worlds of a short run. A process that waits for its peers simulates its polls, so with more of
# them than processors most of the time goes there: in the weak model larger worlds take minutes.
PROCESSES = {
    "gfx1030 strong": WORLDS, "gfx1100 strong": (2, 5), "gfx1201 strong": (3, 6),
    "gfx1030 weak": (2, 3), "gfx1100 weak": (2,), "gfx1201 weak": (2,),
}  # fmt: skip


@pytest.mark.parametrize("case", PROCESSES)
def test_processes(case: str, tables: Tables) -> None:
    """Each rank a process with a device of its own."""
    target, memory = case.split()
    worlds = WORLDS if LONG else PROCESSES[case]
    for world in worlds:
        # Turns are random in a long run alone; the threads above have them always.
        environment = simulated(MODELS[target], 8, memory, int(LONG), **SLOW)
        # No link here is as fast as one on a board.
        arguments = ["-m", "pyrdnaar", "selftest", "-n", str(world), "--backend", "hip"]
        arguments += ["--floor", "1"]
        if not LONG:
            arguments += ["--end", LARGEST[memory]]
        result = run(arguments, environment, timeout=1200)
        assert result.returncode == 0, (world, result.stdout[-2000:], result.stderr[-2000:])
    tables.add("self test, ranks as processes", f"{case}: W = {', '.join(map(str, worlds))}: right")
