# SPDX-License-Identifier: Apache-2.0
"""Communicator on numpy arrays: layouts, outputs, errors, and its life."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import (
    AbortError,
    Communicator,
    Config,
    DeviceBuffer,
    InvalidArgument,
    StateError,
    Stream,
    ThreadExchange,
    TooLarge,
    _abi,
    run_ranks,
    run_threads,
)
from pyrdnaar._abi import MAX_BLOCKS, MAX_BYTES_LIMIT
from pyrdnaar.dtypes import ALGOS, DTYPES, OPS
from pyrdnaar.reference import contribution, expected, wrong_elements

pytestmark = pytest.mark.usefixtures("lib")

QUICK = Config(timeout_ms=20_000, warmup_timeout_ms=20_000)


def _on_threads(work: Callable[[Communicator], Any], world_size: int = 2, **settings: Any) -> Any:
    """work(comm) on every rank, as threads of this process."""
    config = Config(**{"timeout_ms": 20_000, "warmup_timeout_ms": 20_000, **settings})

    def rank(exchange: ThreadExchange) -> Any:
        with Communicator(
            exchange.rank, exchange.world_size, exchange, "host", config=config
        ) as comm:
            return work(comm)

    return run_threads(rank, world_size, timeout=60)


def _inputs(comm: Communicator, count: int, dtype: str, seed: int = 0) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [contribution(rank, count, dtype, seed) for rank in range(comm.world_size)]


# ---- Results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_and_algorithm(dtype: str) -> None:
    def work(comm: Communicator) -> int:
        inputs = _inputs(comm, 1001, dtype)
        wrong = 0
        for op in OPS:
            for algo in ALGOS:
                y = comm.all_reduce(inputs[comm.rank], op=op, algo=algo)
                assert y.dtype == DTYPES[dtype].numpy
                wrong += wrong_elements(y, expected(inputs, op))
        return wrong

    assert _on_threads(work, 3) == [0, 0, 0]


def _ranks_as_processes(exchange: pyrdnaar.PipeExchange, backend: str) -> int:
    with Communicator(exchange.rank, exchange.world_size, exchange, backend, config=QUICK) as comm:
        inputs = _inputs(comm, 5000, "bf16")
        return wrong_elements(comm.all_reduce(inputs[comm.rank]), expected(inputs, "sum"))


def test_ranks_as_processes() -> None:
    assert run_ranks(_ranks_as_processes, 2, "host", timeout=60) == [0, 0]


def test_a_new_array_each_call_and_none_is_overwritten() -> None:
    def work(comm: Communicator) -> None:
        kept = []
        for seed in range(20):
            inputs = _inputs(comm, 300, "fp32", seed)
            x = inputs[comm.rank]
            before = x.copy()
            y = comm.all_reduce(x)
            assert not np.shares_memory(x, y)
            assert (x == before).all()
            kept.append((y, expected(inputs, "sum")))
        assert sum(wrong_elements(y, wanted) for y, wanted in kept) == 0

    _on_threads(work)


def test_the_given_output_is_returned() -> None:
    def work(comm: Communicator) -> None:
        inputs = _inputs(comm, 300, "fp16")
        wanted = expected(inputs, "sum")
        x = inputs[comm.rank]
        out = np.empty_like(x)
        assert comm.all_reduce(x, out) is out
        assert wrong_elements(out, wanted) == 0
        assert comm.all_reduce(x, out=x) is x
        assert wrong_elements(x, wanted) == 0

    _on_threads(work)


def _flat(comm: Communicator) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """24 elements of this rank, and their sum over the ranks."""
    inputs = _inputs(comm, 24, "fp32")
    return inputs[comm.rank], expected(inputs, "sum")


def test_dense_layouts_are_reduced_in_storage_order() -> None:
    views = (
        lambda a: a.reshape(2, 3, 4).transpose(2, 0, 1),
        lambda a: a.reshape(4, 6).T,
        lambda a: a.reshape(2, 3, 4)[:, None].transpose(3, 1, 0, 2),
        lambda a: a.reshape(4, 6).view(np.memmap),
        lambda a: a.reshape(24, 1, 1)[::1],
    )

    def work(comm: Communicator) -> None:
        for view in views:
            flat, total = _flat(comm)
            x, wanted = view(flat), view(total)
            y = comm.all_reduce(x)
            assert y.shape == wanted.shape
            strides = zip(y.shape, y.strides, wanted.strides, strict=True)
            assert all(mine == theirs for n, mine, theirs in strides if n > 1)
            assert (y == wanted).all()
            target = np.zeros_like(flat)
            out = view(target)
            assert comm.all_reduce(x, out) is out
            assert (target == total).all()
            assert comm.all_reduce(x, x) is x
            assert (flat == total).all()

    _on_threads(work)


def test_sizes_without_elements_and_with_one() -> None:
    def work(comm: Communicator) -> None:
        for shape in ((0,), (3, 0, 2)):
            assert comm.all_reduce(np.zeros(shape, np.float32)).shape == shape
        scalar = comm.all_reduce(np.array(comm.rank + 1, np.float32))
        assert scalar.shape == ()
        assert scalar == 3

    _on_threads(work)


def test_world_size_1_copies() -> None:
    def work(comm: Communicator) -> None:
        x = contribution(0, 77, "fp16", 0)
        y = comm.all_reduce(x)
        assert not np.shares_memory(x, y)
        assert (x == y).all()
        assert comm.plan(77, "fp16").algo == "copy"

    _on_threads(work, 1)


def test_a_prepared_call_reduces_what_is_there_now() -> None:
    def work(comm: Communicator) -> weakref.ref[Any]:
        x = np.zeros(65, np.float32)
        call = comm.prepare(x)
        in_place = np.zeros(65, np.float32)
        call_in_place = comm.prepare(in_place, in_place)
        for seed in range(3):
            inputs = _inputs(comm, 65, "fp32", seed)
            x[:] = inputs[comm.rank]
            y = call()
            assert wrong_elements(y, expected(inputs, "sum")) == 0
            assert call() is y
            in_place[:] = x
            assert call_in_place() is in_place
            assert (in_place == y).all()
        alive = weakref.ref(x)
        del x, inputs
        gc.collect()
        assert alive() is not None  # the call holds it
        call()
        return alive

    _on_threads(work)


def test_raw_pointers_streams_and_events() -> None:
    def work(comm: Communicator) -> None:
        library = comm.library
        with (
            DeviceBuffer(library, 400) as source,
            DeviceBuffer(library, 400) as target,
            comm.stream() as stream,
            pyrdnaar.Event(library) as start,
            pyrdnaar.Event(library) as stop,
        ):
            for seed in range(5):
                inputs = _inputs(comm, 100, "fp32", seed)
                source.write(inputs[comm.rank])
                start.record(stream)
                comm.all_reduce_ptr(source.ptr, target.ptr, 100, "fp32", stream=stream)
                stop.record(stream)
                stop.sync()
                assert stop.elapsed_us(start) >= 0
                seen = target.read(np.empty(100, np.float32))
                assert wrong_elements(seen, expected(inputs, "sum")) == 0

    _on_threads(work)


def test_arrays_on_a_stream_are_kept_alive() -> None:
    def work(comm: Communicator) -> None:
        with Stream(comm.library) as stream:
            results = []
            for seed in range(10):
                inputs = _inputs(comm, 1000, "fp32", seed)
                # The only other reference to the input is the stream's.
                y = comm.all_reduce(inputs[comm.rank].copy(), stream=stream)
                results.append((y, expected(inputs, "sum")))
            stream.sync()
            assert sum(wrong_elements(y, wanted) for y, wanted in results) == 0
            alive = weakref.ref(results[0][0])
            del y, results
            assert alive() is None  # and no longer
            x = contribution(0, 10, "fp32", 0)
            out = np.empty_like(x)
            comm.all_reduce(x, out, stream=stream.handle)
            stream.sync()
            assert wrong_elements(out, expected([x] * 2, "sum")) == 0

    _on_threads(work)


# ---- Errors ------------------------------------------------------------------------------------


def test_refused_calls_name_argument_value_and_limit() -> None:
    def work(comm: Communicator) -> None:
        x = np.ones(64, np.float32)
        frozen = np.ones(64, np.float32)
        frozen.flags.writeable = False
        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: comm.all_reduce(x.astype(np.float64)), "x has dtype float64"),
            (lambda: comm.all_reduce(x[::2]), "not dense"),
            (lambda: comm.all_reduce([1.0]), "x is a list"),  # type: ignore[arg-type]
            (lambda: comm.all_reduce(x, frozen), "out is read-only"),
            (lambda: comm.all_reduce(frozen, frozen), "out is read-only"),
            (lambda: comm.all_reduce(x, np.ones(63, np.float32)), "out has dtype"),
            (lambda: comm.all_reduce(x, op="prod"), "op 'prod' is not one of sum, max, min, avg"),
            (lambda: comm.all_reduce(x, algo="ring"), "algo 'ring' is not one of auto, ll"),
            (lambda: comm.all_reduce(x, op=["sum"]), "op .* is not one of"),  # type: ignore[arg-type]
            (lambda: comm.all_reduce_ptr(0, 0, -1, "fp32"), "count = -1 is negative"),
            (lambda: comm.all_reduce_ptr(0, 0, 1, "fp64"), "dtype 'fp64' is not one of fp16"),
            (lambda: comm.all_reduce_ptr(0, 0, 1, "fp32"), "in"),
            (lambda: comm.plan(-1, "fp32"), "count = -1"),
            (lambda: comm.prepare(x[::2]), "not dense"),
        ]
        for call, said in refused:
            with pytest.raises(InvalidArgument, match=said) as caught:
                call()
            assert caught.value.exit_code == 2
        # Nothing of that has disturbed the group.
        assert comm.all_reduce(frozen)[0] == 2

    _on_threads(work)


def test_overlap_is_refused_before_anything_is_touched() -> None:
    def work(comm: Communicator) -> None:
        memory = np.arange(100, dtype=np.float32)
        with pytest.raises(InvalidArgument, match="overlap"):
            comm.all_reduce(memory[:60], memory[40:])
        with pytest.raises(InvalidArgument, match="overlap"):
            comm.prepare(memory[:60], memory[1:61])()
        assert (memory == np.arange(100)).all()
        comm.all_reduce(memory[:50], memory[50:])  # neighbours are fine

    _on_threads(work)


def test_misaligned_elements_are_refused() -> None:
    def work(comm: Communicator) -> None:
        memory = bytearray(65)
        x = np.frombuffer(memory, np.float32, 16, offset=1)
        with pytest.raises(InvalidArgument, match="align"):
            comm.all_reduce(x)

    _on_threads(work)


def test_the_size_limit() -> None:
    def work(comm: Communicator) -> None:
        assert comm.all_reduce(np.ones(1024, np.float32))[0] == 2
        out = np.zeros(1025, np.float32)
        with pytest.raises(TooLarge, match=r"count is 1025 .*4096"):
            comm.all_reduce(np.ones(1025, np.float32), out)
        assert not out.any()
        plan = comm.plan(1025, "fp32")
        assert (plan.status, plan.limit_bytes) == ("e_too_large", 4096)
        assert comm.can_use(1024, "fp32") == (True, "")
        ok, reason = comm.can_use(1025, "fp32")
        assert (ok, "4096" in reason) == (False, True)

    _on_threads(work, max_bytes=4096)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_bytes": 64},
        {"max_bytes": MAX_BYTES_LIMIT},
        {"ll_max_bytes": 0, "oneshot_max_bytes": 0},
        {"ll_max_bytes": MAX_BYTES_LIMIT},
        {"oneshot_max_bytes": MAX_BYTES_LIMIT},
        {"blocks": 1},
        {"blocks": MAX_BLOCKS},
        {"pace": 1000},
        {"late_ms": 0},
        {"timeout_ms": 86_400_000, "warmup_timeout_ms": 86_400_000, "late_ms": 86_400_000},
        {"transport": "host", "algo": "twoshot", "debug": 2**32 - 1},
    ],
)
def test_the_library_accepts_what_config_accepts(settings: dict[str, Any]) -> None:
    x = np.ones(16, np.float32)
    assert _on_threads(lambda comm: comm.all_reduce(x)[0], **settings) == [2, 2]


def test_plans() -> None:
    def work(comm: Communicator) -> list[Any]:
        plans = [comm.plan(n, "bf16", algo=algo) for n in (1, 4096, 10**6) for algo in ALGOS]
        assert all(plan.status == "ok" and plan.reason == "" for plan in plans)
        one_way = comm.plan(1000, "bf16", algo="oneshot")
        assert (one_way.algo, one_way.bytes_sent) == ("oneshot", 2 * 2000)
        return plans

    first, *others = _on_threads(work, 3)
    assert all(plans == first for plans in others)


# ---- Abort -------------------------------------------------------------------------------------


def test_an_abort_reaches_every_rank() -> None:
    def work(comm: Communicator) -> None:
        x = np.ones(10, np.float32)
        comm.all_reduce(x)
        comm.check()
        assert comm.abort_record() is None
        assert comm.late_record() is None
        # An abort also ends what a slower rank has not finished yet: let both finish.
        comm._exchange.all_gather(b"")
        if comm.rank == 0:
            comm.abort("planted")
            reason, peer = "user", -1
        else:
            reason, peer = "peer_aborted", 0
        with pytest.raises(AbortError) as caught:
            comm.all_reduce(x)
        with pytest.raises(AbortError):
            comm.prepare(x)()
        with pytest.raises(AbortError):
            comm.check()
        record = comm.abort_record()
        assert record is not None
        assert caught.value.record == record
        assert (record.reason, record.peer, record.rank) == (reason, peer, comm.rank)
        assert record.reason in str(caught.value)

    _on_threads(work)


def test_an_exception_in_the_block_frees_the_peers() -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(10, np.float32))
        if comm.rank == 1:
            raise KeyError("planted")
        with pytest.raises(AbortError, match="peer_aborted on rank 0, peer 1"):
            comm.all_reduce(np.ones(10, np.float32))

    start = time.monotonic()
    with pytest.raises(KeyError, match="planted"):
        _on_threads(work)
    assert time.monotonic() - start < 10  # the bound of the wait is 20 s


def test_a_missing_peer_is_named_in_time() -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(10, np.float32))
        if comm.rank == 1:
            return
        with pytest.raises(AbortError) as caught:
            comm.all_reduce(np.ones(10, np.float32))
        record = caught.value.record
        assert record is not None
        assert record.peer == 1
        assert record.reason in ("timeout", "peer_aborted", "peer_dead")

    _on_threads(work, timeout_ms=300, prove="never")  # the proof would have no more time


def test_different_calls_are_a_mismatch() -> None:
    def work(comm: Communicator) -> None:
        with pytest.raises(AbortError) as caught:
            comm.all_reduce(np.ones(10 + comm.rank, np.float32))
        record = caught.value.record
        assert record is not None
        assert record.reason in ("mismatch", "peer_aborted", "timeout")
        if record.reason == "mismatch":
            assert f"this rank called {10 + comm.rank} x fp32 sum" in str(record)

    _on_threads(work, timeout_ms=2000, warmup_timeout_ms=2000, prove="never")


# ---- Life --------------------------------------------------------------------------------------


def test_after_close_every_method_says_so() -> None:
    def work(comm: Communicator) -> None:
        x = np.ones(4, np.float32)
        result = comm.all_reduce(x)
        call = comm.prepare(x)
        comm.close()
        comm.close()
        assert comm.closed
        assert "closed" in repr(comm)
        methods: list[Callable[[], object]] = [
            lambda: comm.all_reduce(x),
            lambda: comm.all_reduce(x.reshape(2, 2).T),
            lambda: comm.all_reduce_ptr(1, 1, 1, "fp32"),
            lambda: comm.prepare(x),
            lambda: comm.plan(1, "fp32"),
            lambda: comm.can_use(1, "fp32"),
            lambda: comm.self_test(),
            comm.check,
            comm.abort_record,
            comm.late_record,
            comm.abort,
            call,
        ]
        for method in methods:
            with pytest.raises(StateError, match="closed"):
                method()
        assert (result == 2).all()  # a result does not need its communicator

    _on_threads(work)


def test_closing_in_any_order_and_again_from_new() -> None:
    def work(exchange: ThreadExchange) -> None:
        comms = [
            Communicator(exchange.rank, exchange.world_size, exchange, "host", config=QUICK)
            for _ in range(3)
        ]
        for index, comm in enumerate(comms):
            assert comm.all_reduce(np.full(5, index, np.float32))[0] == 3 * index
        for comm in comms if exchange.rank else reversed(comms):
            comm.close()

    run_threads(work, 3, timeout=60)


def test_a_forgotten_communicator_warns_and_waits_for_nobody() -> None:
    def work(exchange: ThreadExchange) -> None:
        comm = Communicator(exchange.rank, exchange.world_size, exchange, "host", config=QUICK)
        comm.all_reduce(np.ones(4, np.float32))
        exchange.all_gather(b"")
        if exchange.rank == 0:
            with pytest.warns(ResourceWarning, match="rank 0: a communicator was not closed"):
                del comm
        else:
            comm.close()

    run_threads(work, 2, timeout=60)


def test_a_forked_child_does_not_close_its_parents_communicator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(comm: Communicator) -> None:
        handle = comm._comm
        with monkeypatch.context() as patched:
            # What a child of fork() has: a copy of the object, in a process with another id.
            patched.setattr(os, "getpid", lambda: -1)
            comm.close()
        assert comm.closed
        plan = _abi.Plan(struct_size=ctypes.sizeof(_abi.Plan))
        assert comm.library.c.rdnaar_plan(handle, 1, 0, 0, 0, ctypes.byref(plan)) == 0
        comm.library.check(comm.library.c.rdnaar_destroy(handle))

    _on_threads(work, 1)


def _resources() -> dict[str, int]:
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": Path("/proc/self/maps").read_text(errors="replace").count("\n"),
        "threads": threading.active_count(),
        "tasks": len(os.listdir("/proc/self/task")),
    }


def _many_lives(exchange: ThreadExchange, times: int) -> None:
    x = np.ones(100, np.float32)
    for _ in range(times):
        with Communicator(
            exchange.rank, exchange.world_size, exchange, "host", config=QUICK
        ) as comm:
            for _ in range(10):
                comm.all_reduce(x)


def _many_failures(exchange: ThreadExchange, times: int) -> None:
    for _ in range(times):
        # Rank 1 fails in the second step, when rank 0 has allocated.
        device = 1000 if exchange.rank == 1 else None
        with pytest.raises(pyrdnaar.Disabled):
            Communicator(exchange.rank, exchange.world_size, exchange, "host", device, QUICK)


@pytest.mark.parametrize("lives", [_many_lives, _many_failures])
def test_200_lives_leave_nothing_behind(lives: Callable[..., None]) -> None:
    run_threads(lives, 2, 5, timeout=60)
    before = _resources()
    run_threads(lives, 2, 200, timeout=120)
    after = _resources()
    # Allocators may keep a mapping or two; 200 lives would leave hundreds.
    assert after["mappings"] <= before["mappings"] + 10
    for kind in ("descriptors", "threads", "tasks"):
        assert after[kind] <= before[kind], kind


# ---- Reduce-scatter and all-gather -------------------------------------------------------------


def test_chunks_of_arrays() -> None:
    def work(comm: Communicator) -> None:
        x = np.arange(6 * 4, dtype=np.float32).reshape(6, 4) * (comm.rank + 1)
        whole = np.arange(6 * 4, dtype=np.float32).reshape(6, 4) * 6
        part = comm.reduce_scatter(x)
        assert part.shape == (2, 4)
        assert np.array_equal(part, whole[2 * comm.rank : 2 * comm.rank + 2])
        assert np.array_equal(comm.all_gather(part), whole)
        inside = x[2 * comm.rank : 2 * comm.rank + 2]
        assert comm.reduce_scatter(x, out=inside) is inside
        out = np.zeros((6, 4), np.float32)
        assert comm.all_gather(inside, out=out) is out
        assert np.array_equal(out, whole)
        with comm.stream() as stream:
            later = comm.all_gather(inside, stream=stream)
            stream.sync()
            assert np.array_equal(later, whole)
        bad: list[tuple[Callable[[], object], str]] = [
            (lambda: comm.reduce_scatter(np.zeros((4, 3), np.float32)), "multiple of world_size"),
            (lambda: comm.reduce_scatter(np.float32(1).reshape(())), "multiple of world_size"),
            (lambda: comm.all_gather(np.float32(1).reshape(())), "no dimension"),
            (lambda: comm.all_gather(x.T), "C-contiguous"),
            (lambda: comm.all_gather(x, out=x), "shape"),
            (lambda: comm.reduce_scatter(x, op="xor"), "op 'xor'"),
        ]
        for call, said in bad:
            with pytest.raises(InvalidArgument, match=said):
                call()

    _on_threads(work, 3)
