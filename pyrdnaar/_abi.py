# SPDX-License-Identifier: Apache-2.0
"""The C ABI of rdnaar.h as ctypes: enums, structs and one table row per function.

This file is the only place that knows C types. It is checked against the compiled library when a
library is loaded (ABI version, size of every struct) and against the header by the tests (every
offset, every enumerator, every prototype).
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import Any, NamedTuple

from .errors import LibraryError

ABI_MAJOR = 1
ABI_MINOR = 1

MAX_WORLD = 8
MAX_BLOCKS = 128
BLOB_BYTES = 512
MAX_BYTES_LIMIT = 1 << 36
AUTO = 2**64 - 1


class Status(IntEnum):
    OK = 0
    E_INVALID_ARGUMENT = 1
    E_TOO_LARGE = 2
    E_UNSUPPORTED = 3
    E_NO_DEVICE = 4
    E_NO_RUNTIME = 5
    E_OUT_OF_MEMORY = 6
    E_ABI = 7
    E_MISMATCH = 8
    E_STATE = 9
    E_BUSY = 10
    E_ABORTED = 11
    E_TIMEOUT = 12
    E_PEER = 13
    E_RUNTIME = 14
    E_SYSTEM = 15
    E_SELF_TEST = 16


class Dtype(IntEnum):
    FP16 = 0
    BF16 = 1
    FP32 = 2


class Op(IntEnum):
    SUM = 0
    MAX = 1
    MIN = 2
    AVG = 3


class Algo(IntEnum):
    AUTO = 0
    LL = 1
    ONESHOT = 2
    TWOSHOT = 3
    COPY = 4
    REDUCE_SCATTER = 5
    ALL_GATHER = 6


class Transport(IntEnum):
    AUTO = 0
    P2P = 1
    HOST = 2


class Memory(IntEnum):
    AUTO = 0
    ORDINARY = 1


class Reason(IntEnum):
    NONE = 0
    TIMEOUT = 1
    MISMATCH = 2
    PEER_ABORTED = 3
    PEER_DEAD = 4
    USER = 5
    RUNTIME = 6


class SelfTestLevel(IntEnum):
    FULL = 0
    QUICK = 1


class Phase(IntEnum):
    NONE = 0
    OWN_BLOCKS = 1
    PEER_FLAG = 2
    GATHER_BARRIER = 3
    GATHER_FLAG = 4
    LL_WORD = 5


class ProbeKind(IntEnum):
    STORE = 0
    LOAD = 1
    LATENCY = 2
    ORDER = 3
    VISIBLE = 4


class StructId(IntEnum):
    BUILD_INFO = 0
    DEVICE_INFO = 1
    CONFIG = 2
    PLAN = 3
    SELF_TEST_CONFIG = 4
    SELF_TEST_REPORT = 5
    ABORT_RECORD = 6
    LATE_RECORD = 7
    PROBE_CONFIG = 8
    PROBE_RESULT = 9


class BuildInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("abi_version", c_uint32),
        ("version", c_char * 32),
        ("source_digest", c_char * 72),
        ("git_revision", c_char * 48),
        ("backend", c_char * 16),
        ("targets", c_char * 256),
        ("compiler", c_char * 128),
        ("runtime", c_char * 128),
    ]


class DeviceInfo(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("index", c_uint32),
        ("architecture", c_char * 32),
        ("name", c_char * 96),
        ("pci_bus_id", c_char * 24),
        ("memory_bytes", c_uint64),
        ("compute_units", c_uint32),
        ("integrated", c_uint32),
        ("uncached", c_uint32),
        ("reserved", c_uint32),
    ]


class Config(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("device", c_int32),
        ("transport", c_uint32),
        ("algo", c_uint32),
        ("blocks", c_uint32),
        ("pace", c_uint32),
        ("max_bytes", c_uint64),
        ("ll_max_bytes", c_uint64),
        ("oneshot_max_bytes", c_uint64),
        ("timeout_ms", c_uint32),
        ("warmup_timeout_ms", c_uint32),
        ("late_ms", c_uint32),
        ("debug", c_uint32),
        ("group_id", c_uint8 * 16),
        ("memory", c_uint32),
        ("reserved", c_uint32),
    ]


class Plan(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("status", c_int32),
        ("algo", c_uint32),
        ("blocks", c_uint32),
        ("threads", c_uint32),
        ("pieces", c_uint32),
        ("bytes_sent", c_uint64),
        ("limit_bytes", c_uint64),
        ("reason", c_char * 160),
    ]


class SelfTestConfig(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("seed", c_uint32),
        ("max_bytes", c_uint64),
        ("repeats", c_uint32),
        ("level", c_uint32),
        ("floor_mb_s", c_uint32),
        ("reserved", c_uint32),
    ]


class SelfTestReport(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("cases", c_uint32),
        ("wrong", c_uint64),
        ("algo", c_uint32),
        ("dtype", c_uint32),
        ("op", c_uint32),
        ("repeat", c_uint32),
        ("count", c_uint64),
        ("index", c_uint64),
        ("expected_bits", c_uint32),
        ("seen_bits", c_uint32),
        ("elapsed_us", c_uint64),
        ("text", c_char * 256),
        ("source", c_int32),
        ("slow", c_uint32),
        ("slowest_target", c_uint32),
        ("slowest_mb_s", c_uint32),
    ]


class ProbeConfig(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("source", c_uint32),
        ("target", c_uint32),
        ("width", c_uint32),
        ("iterations", c_uint32),
        ("nbytes", c_uint64),
        ("session", c_uint32),
        ("timeout_ms", c_uint32),
    ]


class ProbeResult(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("timed_out", c_uint32),
        ("nbytes", c_uint64),
        ("wrong", c_uint64),
        ("microseconds", c_double),
    ]


class AbortRecord(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("valid", c_uint32),
        ("reason", c_uint32),
        ("phase", c_uint32),
        ("peer", c_int32),
        ("rank", c_uint32),
        ("block", c_uint32),
        ("algo", c_uint32),
        ("epoch", c_uint64),
        ("waited_ms", c_uint64),
        ("expected", c_uint64),
        ("seen", c_uint64),
    ]


class LateRecord(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("count", c_uint32),
        ("peer", c_int32),
        ("phase", c_uint32),
        ("epoch", c_uint64),
        ("waited_ms", c_uint64),
    ]


# Each struct by the number that rdnaar_sizeof() knows it by, with its name in C.
STRUCTS: dict[StructId, tuple[str, type[Structure]]] = {
    StructId.BUILD_INFO: ("rdnaar_build_info_t", BuildInfo),
    StructId.DEVICE_INFO: ("rdnaar_device_info_t", DeviceInfo),
    StructId.CONFIG: ("rdnaar_config", Config),
    StructId.PLAN: ("rdnaar_plan_t", Plan),
    StructId.SELF_TEST_CONFIG: ("rdnaar_self_test_config", SelfTestConfig),
    StructId.SELF_TEST_REPORT: ("rdnaar_self_test_report", SelfTestReport),
    StructId.ABORT_RECORD: ("rdnaar_abort_record_t", AbortRecord),
    StructId.LATE_RECORD: ("rdnaar_late_record_t", LateRecord),
    StructId.PROBE_CONFIG: ("rdnaar_probe_config", ProbeConfig),
    StructId.PROBE_RESULT: ("rdnaar_probe_result", ProbeResult),
}


class Function(NamedTuple):
    name: str
    restype: Any
    argtypes: list[Any]


FUNCTIONS: tuple[Function, ...] = (
    # uint32_t rdnaar_abi_version(void);
    Function("rdnaar_abi_version", c_uint32, []),
    # const char *rdnaar_status_name(rdnaar_status code);
    Function("rdnaar_status_name", c_char_p, [c_int32]),
    # const char *rdnaar_status_string(rdnaar_status code);
    Function("rdnaar_status_string", c_char_p, [c_int32]),
    # const char *rdnaar_last_error(rdnaar_comm *comm);
    Function("rdnaar_last_error", c_char_p, [c_void_p]),
    # rdnaar_status rdnaar_build_info(rdnaar_build_info_t *info);
    Function("rdnaar_build_info", c_int32, [POINTER(BuildInfo)]),
    # rdnaar_status rdnaar_device_count(uint32_t *count);
    Function("rdnaar_device_count", c_int32, [POINTER(c_uint32)]),
    # rdnaar_status rdnaar_device_info(uint32_t index, rdnaar_device_info_t *info);
    Function("rdnaar_device_info", c_int32, [c_uint32, POINTER(DeviceInfo)]),
    # rdnaar_status rdnaar_peer_access(uint32_t from, uint32_t to, uint32_t *access);
    Function("rdnaar_peer_access", c_int32, [c_uint32, c_uint32, POINTER(c_uint32)]),
    # uint32_t rdnaar_sizeof(uint32_t which);
    Function("rdnaar_sizeof", c_uint32, [c_uint32]),
    # rdnaar_status rdnaar_config_init(rdnaar_config *config, uint32_t struct_size);
    Function("rdnaar_config_init", c_int32, [POINTER(Config), c_uint32]),
    # rdnaar_status rdnaar_init(const rdnaar_config *config, rdnaar_comm **comm);
    Function("rdnaar_init", c_int32, [POINTER(Config), POINTER(c_void_p)]),
    # rdnaar_status rdnaar_export_buffers(rdnaar_comm *comm, void *blob, uint64_t size);
    Function("rdnaar_export_buffers", c_int32, [c_void_p, c_void_p, c_uint64]),
    # rdnaar_status rdnaar_register_buffers(rdnaar_comm *comm, const void *blobs, uint32_t world);
    Function("rdnaar_register_buffers", c_int32, [c_void_p, c_void_p, c_uint32]),
    # rdnaar_status rdnaar_transport_used(rdnaar_comm *comm, uint32_t *transport);
    Function("rdnaar_transport_used", c_int32, [c_void_p, POINTER(c_uint32)]),
    # rdnaar_status rdnaar_plan(rdnaar_comm *comm, uint64_t count, uint32_t dtype, uint32_t op,
    #                           uint32_t algo, rdnaar_plan_t *plan);
    Function(
        "rdnaar_plan", c_int32, [c_void_p, c_uint64, c_uint32, c_uint32, c_uint32, POINTER(Plan)]
    ),
    # rdnaar_status rdnaar_all_reduce(rdnaar_comm *comm, const void *in, void *out,
    #                                 uint64_t count, uint32_t dtype, uint32_t op,
    #                                 uint32_t algo, void *stream);
    Function(
        "rdnaar_all_reduce",
        c_int32,
        [c_void_p, c_void_p, c_void_p, c_uint64, c_uint32, c_uint32, c_uint32, c_void_p],
    ),
    # rdnaar_status rdnaar_reduce_scatter(rdnaar_comm *comm, const void *in, void *out,
    #                                     uint64_t count, uint32_t dtype, uint32_t op,
    #                                     void *stream);
    Function(
        "rdnaar_reduce_scatter",
        c_int32,
        [c_void_p, c_void_p, c_void_p, c_uint64, c_uint32, c_uint32, c_void_p],
    ),
    # rdnaar_status rdnaar_all_gather(rdnaar_comm *comm, const void *in, void *out,
    #                                 uint64_t count, uint32_t dtype, void *stream);
    Function(
        "rdnaar_all_gather",
        c_int32,
        [c_void_p, c_void_p, c_void_p, c_uint64, c_uint32, c_void_p],
    ),
    # rdnaar_status rdnaar_self_test(rdnaar_comm *comm, const rdnaar_self_test_config *config,
    #                                rdnaar_self_test_report *report, void *stream);
    Function(
        "rdnaar_self_test",
        c_int32,
        [c_void_p, POINTER(SelfTestConfig), POINTER(SelfTestReport), c_void_p],
    ),
    # rdnaar_status rdnaar_probe(rdnaar_comm *comm, const rdnaar_probe_config *config,
    #                            rdnaar_probe_result *result, void *stream);
    Function(
        "rdnaar_probe", c_int32, [c_void_p, POINTER(ProbeConfig), POINTER(ProbeResult), c_void_p]
    ),
    # uint32_t rdnaar_is_aborted(rdnaar_comm *comm);
    Function("rdnaar_is_aborted", c_uint32, [c_void_p]),
    # rdnaar_status rdnaar_abort_record(rdnaar_comm *comm, rdnaar_abort_record_t *record);
    Function("rdnaar_abort_record", c_int32, [c_void_p, POINTER(AbortRecord)]),
    # rdnaar_status rdnaar_late_record(rdnaar_comm *comm, rdnaar_late_record_t *record);
    Function("rdnaar_late_record", c_int32, [c_void_p, POINTER(LateRecord)]),
    # rdnaar_status rdnaar_abort(rdnaar_comm *comm, const char *reason);
    Function("rdnaar_abort", c_int32, [c_void_p, c_char_p]),
    # rdnaar_status rdnaar_destroy(rdnaar_comm *comm);
    Function("rdnaar_destroy", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_destroy_now(rdnaar_comm *comm);
    Function("rdnaar_destroy_now", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_malloc(int32_t device, uint64_t nbytes, void **ptr);
    Function("rdnaar_malloc", c_int32, [c_int32, c_uint64, POINTER(c_void_p)]),
    # rdnaar_status rdnaar_free(void *ptr);
    Function("rdnaar_free", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_copy(void *dst, const void *src, uint64_t nbytes, void *stream);
    Function("rdnaar_copy", c_int32, [c_void_p, c_void_p, c_uint64, c_void_p]),
    # rdnaar_status rdnaar_stream_create(int32_t device, void **stream);
    Function("rdnaar_stream_create", c_int32, [c_int32, POINTER(c_void_p)]),
    # rdnaar_status rdnaar_stream_sync(void *stream);
    Function("rdnaar_stream_sync", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_stream_destroy(void *stream);
    Function("rdnaar_stream_destroy", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_event_create(int32_t device, void **event);
    Function("rdnaar_event_create", c_int32, [c_int32, POINTER(c_void_p)]),
    # rdnaar_status rdnaar_event_record(void *event, void *stream);
    Function("rdnaar_event_record", c_int32, [c_void_p, c_void_p]),
    # rdnaar_status rdnaar_event_sync(void *event);
    Function("rdnaar_event_sync", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_event_elapsed_us(void *start, void *stop, double *microseconds);
    Function("rdnaar_event_elapsed_us", c_int32, [c_void_p, c_void_p, POINTER(c_double)]),
    # rdnaar_status rdnaar_event_destroy(void *event);
    Function("rdnaar_event_destroy", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_graph_begin(void *stream);
    Function("rdnaar_graph_begin", c_int32, [c_void_p]),
    # rdnaar_status rdnaar_graph_end(void *stream, void **graph);
    Function("rdnaar_graph_end", c_int32, [c_void_p, POINTER(c_void_p)]),
    # rdnaar_status rdnaar_graph_launch(void *graph, void *stream);
    Function("rdnaar_graph_launch", c_int32, [c_void_p, c_void_p]),
    # rdnaar_status rdnaar_graph_destroy(void *graph);
    Function("rdnaar_graph_destroy", c_int32, [c_void_p]),
)


def missing(cdll: ctypes.CDLL) -> list[str]:
    """The functions of the table that `cdll` lacks."""
    return [function.name for function in FUNCTIONS if not hasattr(cdll, function.name)]


def bind(cdll: ctypes.CDLL) -> None:
    """Give every function of `cdll` its C types; LibraryError names those it lacks."""
    lacking = missing(cdll)
    if lacking:
        more = f" and {len(lacking) - 3} more functions" if len(lacking) > 3 else ""
        raise LibraryError(
            f"{cdll._name} lacks {', '.join(lacking[:3])}{more}: it is not a libhiprdnaar of ABI "
            f"{ABI_MAJOR}.{ABI_MINOR}. Rebuild it with `make host`, or point RDNAAR_LIBRARY to the "
            "library that belongs to this package."
        )
    bind_present(cdll)


def bind_present(cdll: ctypes.CDLL) -> None:
    """Give the functions that `cdll` has their C types."""
    for name, restype, argtypes in FUNCTIONS:
        function = getattr(cdll, name, None)
        if function is not None:
            function.restype = restype
            function.argtypes = argtypes


def text(raw: bytes | None) -> str:
    """A C string from the library as str; never fails on bytes that are not UTF-8."""
    return (raw or b"").decode("utf-8", "replace")
