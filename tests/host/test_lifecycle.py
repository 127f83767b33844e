# SPDX-License-Identifier: Apache-2.0
"""Nothing is left behind: not after many communicators, failed ones, kills, or destroyed peers."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_void_p, create_string_buffer, sizeof
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyrdnaar
from pyrdnaar import _abi

BLOB = _abi.BLOB_BYTES
GROUP_ID = (ctypes.c_uint8 * 16)(*range(1, 17))


class Raw:
    """Communicators of one process through the C ABI alone."""

    def __init__(self, lib: pyrdnaar.Library, world: int, **fields: Any) -> None:
        self.lib, self.world = lib, world
        self.comms = []
        for rank in range(world):
            config = _abi.Config()
            lib.check(lib.c.rdnaar_config_init(byref(config), sizeof(config)))
            config.rank, config.world = rank, world
            for name, value in fields.items():
                setattr(config, name, value)
            comm = c_void_p()
            lib.check(lib.c.rdnaar_init(byref(config), byref(comm)))
            self.comms.append(comm)

    def blobs(self) -> bytes:
        parts = []
        for comm in self.comms:
            blob = create_string_buffer(BLOB)
            self.lib.check(self.lib.c.rdnaar_export_buffers(comm, blob, BLOB), comm.value)
            parts.append(blob.raw)
        return b"".join(parts)

    def register(self, blobs: bytes) -> None:
        for comm in self.comms:
            self.lib.check(self.lib.c.rdnaar_register_buffers(comm, blobs, self.world), comm.value)

    def destroy(self) -> None:
        for comm in self.comms:
            self.lib.check(self.lib.c.rdnaar_destroy(comm))
        self.comms = []


def slab_mappings() -> list[str]:
    maps = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    return [line for line in maps if "memfd:rdnaar-slab" in line]


def footprint() -> dict[str, int]:
    status = Path("/proc/self/status").read_text()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "slabs mapped": len(slab_mappings()),
        "MiB": int(status.split("VmRSS:")[1].split()[0]) // 1024,
    }


def assert_no_growth(before: dict[str, int], mib: int) -> None:
    before["MiB"] += mib
    # A thread that has been joined is in /proc for a moment longer.
    end = time.monotonic() + 5
    while any((after := footprint())[name] > before[name] for name in before):
        assert time.monotonic() < end, (before, after)
        time.sleep(0.01)


def _cycles(exchange: pyrdnaar.Exchange) -> None:
    for turn in range(200):
        with pyrdnaar.Communicator(
            exchange.rank, exchange.world_size, exchange, backend="host"
        ) as comm:
            for _ in range(10):
                x = np.full(turn + 1, comm.rank, np.float32)
                assert (comm.all_reduce(x) == 1).all()


def test_200_communicators_leave_nothing(lib: pyrdnaar.Library) -> None:
    pyrdnaar.run_threads(_cycles, 2, timeout=60)  # the first time may load things
    before = footprint()
    pyrdnaar.run_threads(_cycles, 2, timeout=60)
    assert_no_growth(before, mib=8)


def test_200_failed_registrations_leave_nothing(lib: pyrdnaar.Library) -> None:
    group = Raw(lib, 2)
    good = group.blobs()
    bad = good[:BLOB] + bytes(BLOB)
    before = footprint()
    for _ in range(200):
        for comm in group.comms:
            assert lib.c.rdnaar_register_buffers(comm, bad, 2) == _abi.Status.E_INVALID_ARGUMENT
        config = _abi.Config()
        lib.check(lib.c.rdnaar_config_init(byref(config), sizeof(config)))
        config.world, config.transport = 2, _abi.Transport.P2P
        comm = c_void_p(1)
        assert lib.c.rdnaar_init(byref(config), byref(comm)) == _abi.Status.E_UNSUPPORTED
        assert comm.value is None
    assert_no_growth(before, mib=8)
    group.register(good)  # a second try works
    group.destroy()


COUNTS_ALLOCATIONS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <rdnaar.h>

/* The library's operator new comes here too. */
static uint64_t allocations;
extern void *__libc_malloc(size_t);
void *malloc(size_t nbytes) {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(nbytes);
}

static rdnaar_comm *comms[2];
static pthread_barrier_t barrier;
static float x[2][70000];
static int failed;

static void calls(int rank, void *stream, int n) {
    for (int i = 0; i < n; i++)
        for (uint32_t algo = RDNAAR_ALGO_LL; algo <= RDNAAR_ALGO_TWOSHOT; algo++)
            failed |= rdnaar_all_reduce(comms[rank], x[rank], x[rank], i % 2 ? 70000 : 100,
                                        RDNAAR_FP32, RDNAAR_MAX, algo, i % 3 ? stream : NULL);
    failed |= rdnaar_stream_sync(stream);
}

static void *work(void *argument) {
    int rank = (int)(intptr_t)argument;
    void *stream;
    failed |= rdnaar_stream_create(0, &stream);
    calls(rank, stream, 10);
    pthread_barrier_wait(&barrier);
    uint64_t before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    pthread_barrier_wait(&barrier);
    calls(rank, stream, 300);
    pthread_barrier_wait(&barrier);
    uint64_t after = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    pthread_barrier_wait(&barrier);
    if (rank == 0) printf("%d %d\n", before > 0, (int)(after - before));
    failed |= rdnaar_stream_destroy(stream);
    return NULL;
}

int main(void) {
    unsigned char blobs[2 * RDNAAR_BLOB_BYTES];
    pthread_t threads[2];
    pthread_barrier_init(&barrier, NULL, 2);
    for (uint32_t r = 0; r < 2; r++) {
        rdnaar_config config;
        rdnaar_config_init(&config, sizeof config);
        config.rank = r;
        config.world = 2;
        failed |= rdnaar_init(&config, &comms[r]);
        failed |= rdnaar_export_buffers(comms[r], blobs + r * RDNAAR_BLOB_BYTES, RDNAAR_BLOB_BYTES);
    }
    for (int r = 0; r < 2; r++) failed |= rdnaar_register_buffers(comms[r], blobs, 2);
    for (intptr_t r = 0; r < 2; r++) pthread_create(&threads[r], NULL, work, (void *)r);
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) failed |= rdnaar_destroy(comms[r]);
    return failed;
}
"""


def test_steady_state_allocates_nothing(
    lib: pyrdnaar.Library, compile_c: Callable[..., Path]
) -> None:
    """Calls of every algorithm by two ranks, on the null stream and on one of their own."""
    folder = Path(lib.path).parent
    program = compile_c("counts", COUNTS_ALLOCATIONS, lib.path, f"-Wl,-rpath,{folder}", "-pthread")
    seen = subprocess.run([program], check=True, capture_output=True, text=True, timeout=60).stdout
    assert seen == "1 0\n"  # allocations are counted; of the calls there is none


def test_peers_may_be_destroyed_in_any_order(lib: pyrdnaar.Library) -> None:
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        group = Raw(lib, 3)
        group.register(group.blobs())
        for rank in order:
            lib.check(lib.c.rdnaar_destroy(group.comms[rank]))
    before = footprint()
    assert before["slabs mapped"] == 0


def test_destroyed_peer_cannot_be_opened(lib: pyrdnaar.Library) -> None:
    group = Raw(lib, 2)
    blobs = group.blobs()
    lib.check(lib.c.rdnaar_destroy(group.comms.pop()))
    comm = group.comms[0]
    assert lib.c.rdnaar_register_buffers(comm, blobs, 2) == _abi.Status.E_PEER
    assert b"destroyed" in lib.c.rdnaar_last_error(comm)
    group.destroy()


EXPORTER = """
import fcntl, os, sys, time
from ctypes import *
from pyrdnaar import _abi, load
lib = load("host")
config = _abi.Config()
lib.check(lib.c.rdnaar_config_init(byref(config), sizeof(config)))
config.rank, config.world = 1, 2
comm = c_void_p()
lib.check(lib.c.rdnaar_init(byref(config), byref(comm)))
blob = create_string_buffer(512)
lib.check(lib.c.rdnaar_export_buffers(comm, blob, 512), comm.value)
if sys.argv[1:]:  # the blob names other memory of the same size
    other = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    os.ftruncate(other, int.from_bytes(blob.raw[120:128], "little"))
    if sys.argv[1] == "sealed":
        fcntl.fcntl(other, fcntl.F_ADD_SEALS, 7)
    raw = blob.raw[:156] + other.to_bytes(4, "little") + blob.raw[160:504]
    checksum = 0xCBF29CE484222325
    for byte in raw:
        checksum = (checksum ^ byte) * 0x100000001B3 & (1 << 64) - 1
    blob.raw = raw + checksum.to_bytes(8, "little")
sys.stdout.write(blob.raw.hex() + "\\n")
sys.stdout.flush()
time.sleep(60)
"""


def files_of_ours() -> list[Path]:
    """Where shared memory with a name would be; other programs use these folders too."""
    return [p for folder in ("/dev/shm", "/tmp") for p in Path(folder).glob("*rdnaar*")]


def exporter(*prefix: str, other: str = "") -> tuple[subprocess.Popen[str], bytes]:
    command = [*prefix, sys.executable, "-c", EXPORTER, *other.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, bytes.fromhex(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()


def test_killed_process_leaves_nothing_and_is_named(lib: pyrdnaar.Library) -> None:
    before = files_of_ours()
    process, blob = exporter()
    group = Raw(lib, 2)
    mine = group.blobs()[:BLOB]
    lib.check(lib.c.rdnaar_register_buffers(group.comms[0], mine + blob, 2), group.comms[0].value)
    end(process)
    assert process.returncode == -signal.SIGKILL
    assert files_of_ours() == before
    late = Raw(lib, 2)
    mine = late.blobs()[:BLOB]
    comm = late.comms[0]
    assert lib.c.rdnaar_register_buffers(comm, mine + blob, 2) == _abi.Status.E_PEER
    assert b"has ended" in lib.c.rdnaar_last_error(comm)
    late.destroy()
    group.destroy()


def test_other_pid_namespace_is_an_error_that_says_so(lib: pyrdnaar.Library) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, timeout=30).returncode:
        pytest.skip("making a pid namespace is not allowed here")
    process, blob = exporter(*unshare)
    group = Raw(lib, 2)
    mine = group.blobs()[:BLOB]
    start = time.monotonic()
    comm = group.comms[0]
    assert lib.c.rdnaar_register_buffers(comm, mine + blob, 2) == _abi.Status.E_PEER
    assert b"another pid namespace" in lib.c.rdnaar_last_error(comm)
    assert time.monotonic() - start < 1
    end(process)
    group.destroy()


@pytest.mark.parametrize(
    ("other", "said"), [("unsealed", b"is not memory of"), ("sealed", b"does not hold the slab")]
)
def test_other_memory_of_the_right_size_is_refused(
    lib: pyrdnaar.Library, other: str, said: bytes
) -> None:
    process, blob = exporter(other=other)
    group = Raw(lib, 2)
    mine = group.blobs()[:BLOB]
    comm = group.comms[0]
    status = lib.c.rdnaar_register_buffers(comm, mine + blob, 2)
    end(process)
    assert status == _abi.Status.E_PEER
    assert said in lib.c.rdnaar_last_error(comm)
    group.destroy()


def test_other_user_cannot_attach(lib: pyrdnaar.Library) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    process, blob = exporter()
    # The slab lies behind this name; another user may not open it.
    pid = process.pid
    slabs = [
        fd
        for fd in os.listdir(f"/proc/{pid}/fd")
        if "memfd:rdnaar-slab" in os.readlink(f"/proc/{pid}/fd/{fd}")
    ]
    assert len(slabs) == 1
    assert blob
    path = f"/proc/{pid}/fd/{slabs[0]}"
    assert os.stat(path).st_mode & 0o777 == 0o600
    attempt = subprocess.run(
        [sys.executable, "-c", f"import os; os.setuid(65534); open({path!r}, 'r+b')"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    end(process)
    assert attempt.returncode != 0
    assert "PermissionError" in attempt.stderr


def test_handle_blobs_are_not_trusted(lib: pyrdnaar.Library) -> None:
    """Any changed byte is refused, also one behind a right checksum; the error names the rank."""
    group = Raw(lib, 2, group_id=GROUP_ID)
    good = bytearray(group.blobs())
    comm = group.comms[0]
    for at in range(BLOB, 2 * BLOB):
        bad = bytearray(good)
        bad[at] ^= 0x40
        assert lib.c.rdnaar_register_buffers(comm, bytes(bad), 2) in (
            _abi.Status.E_INVALID_ARGUMENT,
            _abi.Status.E_MISMATCH,
        ), at
    for at in range(BLOB, 2 * BLOB - 8):
        bad = bytearray(good)
        bad[at] ^= 0x40
        bad[2 * BLOB - 8 :] = fnv1a(bytes(bad[BLOB : 2 * BLOB - 8])).to_bytes(8, "little")
        assert lib.c.rdnaar_register_buffers(comm, bytes(bad), 2) != 0, at
    swapped = bytes(good[BLOB:] + good[:BLOB])
    assert lib.c.rdnaar_register_buffers(comm, swapped, 2) == _abi.Status.E_MISMATCH
    assert b"rank order" in lib.c.rdnaar_last_error(comm)
    group.destroy()


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def test_another_configuration_or_group_is_refused(lib: pyrdnaar.Library) -> None:
    one, other = Raw(lib, 2), Raw(lib, 2, timeout_ms=5)
    mixed = one.blobs()[:BLOB] + other.blobs()[BLOB:]
    assert lib.c.rdnaar_register_buffers(one.comms[0], mixed, 2) == _abi.Status.E_MISMATCH
    assert b"configuration" in lib.c.rdnaar_last_error(one.comms[0])
    one.destroy()
    other.destroy()
    other_id = (ctypes.c_uint8 * 16)(*range(16))
    one, other = Raw(lib, 2, group_id=GROUP_ID), Raw(lib, 2, group_id=other_id)
    mixed = one.blobs()[:BLOB] + other.blobs()[BLOB:]
    assert lib.c.rdnaar_register_buffers(one.comms[0], mixed, 2) == _abi.Status.E_MISMATCH
    assert b"another group" in lib.c.rdnaar_last_error(one.comms[0])
    one.destroy()
    other.destroy()


def test_slab_size_is_the_formula_of_the_header(lib: pyrdnaar.Library) -> None:
    def line(n: int) -> int:
        return -(-n // 64) * 64

    for world, max_bytes in ((2, 1 << 10), (3, 100 << 10), (8, 20 << 20)):
        staged = [min(max_bytes, cap << 10) for cap in (64, 128, 128)]
        control = 4096 + 3 * 2 * 8 * 128 * 64
        wanted = (
            control
            + 2 * world * line(staged[0])
            + 2 * world * line(staged[1])
            + 4 * world * line(-(-staged[2] // world))
        )
        before = len(slab_mappings())
        group = Raw(lib, world, max_bytes=max_bytes)
        sizes = [
            int(m.split()[0].split("-")[1], 16) - int(m.split()[0].split("-")[0], 16)
            for m in slab_mappings()
        ]
        group.destroy()
        granule = 2 << 20
        # Neighbouring mappings of different files are not merged.
        assert len(sizes) == before + world
        assert set(sizes) == {-(-wanted // granule) * granule}
