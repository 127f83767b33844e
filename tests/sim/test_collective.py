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
# A call that is under way when its rank gives up may still end well where a peer's data comes
# before the kernel has looked at its abort word: it looks once in 64 polls.
RACES = "not (test_no_call_completes_after_an_abort and ll)"
# What a machine of two cores does in a minute: all of it is run in the long run.
STRONG = RACES if LONG else f"{RACES} and not (counts or limits or order or graphs) or [2] or forty"
# Bounds of tests that wait for a timeout are in real milliseconds, weak runs are slow.
WEAK = "operations or edge_values or nothing or two_graphs or forty or overwritten or overlapping"
WEAK_SHORT = "test_operations and (2 or 5 or 8) or test_edge_values and 3 or forty or overwritten"
LARGEST = {"strong": "64K", "weak": "4K"}  # message of the self test, in a short run


def collective(model: str, memory: str, seed: int, choice: str, **more: str) -> str:
    environment = simulated(
        model, 2, memory, seed, PYRDNAAR_TEST_BACKEND="hip", PYTHONUNBUFFERED="1", **more
    )
    arguments = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/collective"]
    result = run([*arguments, "-k", choice], environment, timeout=3000)
    assert result.returncode == 0, f"{model} {memory} seed {seed}: {result.stdout[-6000:]}"
    return result.stdout.splitlines()[-1]


@pytest.mark.parametrize("target", MODELS)
def test_threads_strong(target: str, tables: Tables) -> None:
    line = collective(MODELS[target], "strong", 0, STRONG)
    tables.add("tests of the collective in simulation", f"{target} strong: {line}")


@pytest.mark.parametrize("target", MODELS)
def test_threads_strong_in_random_turns(target: str, tables: Tables) -> None:
    for seed in SEEDS:
        line = collective(MODELS[target], "strong", seed, WEAK if LONG else WEAK_SHORT)
        title = "tests of the collective in simulation"
        tables.add(title, f"{target} strong, seed {seed}: {line}")


@pytest.mark.parametrize("target", MODELS)
def test_threads_weak(target: str, tables: Tables) -> None:
    for seed in SEEDS:
        choice = WEAK if LONG else WEAK_SHORT
        line = collective(MODELS[target], "weak", seed, choice, RDNASIM_SLOW_CLOCK="20")
        title = "tests of the collective in simulation"
        tables.add(title, f"{target} weak, seed {seed}: {line}")


def test_host_transport() -> None:
    more = {"PYRDNAAR_TEST_TRANSPORT": "host", "RDNASIM_PEER": "refused"}
    collective("V620", "strong", 1, "test_operations and (2 or 3)", **more)


def test_few_blocks_are_resident() -> None:
    """A grid need not be resident: with room for one block of each device it still ends."""
    collective("V620", "strong", 1, "sizes_around_limits and 2", RDNASIM_RESIDENT_BLOCKS="2")


@pytest.mark.parametrize("memory", ["strong", "weak"])
@pytest.mark.parametrize("target", MODELS)
def test_processes(target: str, memory: str, tables: Tables) -> None:
    """Each rank a process with a device of its own."""
    worlds = WORLDS if LONG or memory == "strong" else (2, 5, 8)
    for world in worlds:
        environment = simulated(MODELS[target], 8, memory, 1, RDNASIM_SLOW_CLOCK="20")
        arguments = ["-m", "pyrdnaar", "selftest", "-n", str(world), "--backend", "hip"]
        if not LONG:
            arguments += ["--end", LARGEST[memory]]
        result = run(arguments, environment, timeout=1200)
        assert result.returncode == 0, (world, result.stdout[-2000:], result.stderr[-2000:])
    tables.add(
        "self test, ranks as processes",
        f"{target} {memory}: W = {', '.join(map(str, worlds))}: right",
    )
