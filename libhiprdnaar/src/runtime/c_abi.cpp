// SPDX-License-Identifier: Apache-2.0
// The exported functions: they check what only the boundary can check, and let nothing out but a
// status.
#include <cinttypes>
#include <cstddef>
#include <cstring>
#include <new>

#include "build_info.h"
#include "communicator.h"
#include "probe.h"
#include "self_test.h"
#include "text.h"

using namespace rdnaar;

namespace {

thread_local std::string thread_error;
thread_local std::string returned_error;  // what rdnaar_last_error() gave to this thread

rdnaar_status note(rdnaar_comm *comm, rdnaar_status status, const std::string &text) noexcept {
    try {
        if (comm != nullptr) {
            comm->impl.note_error(text);
        } else {
            thread_error = text;
        }
    } catch (...) {  // no memory for a text: the status must do
    }
    return status;
}

template <class Body>
rdnaar_status guarded(rdnaar_comm *comm, Body body) noexcept {
    try {
        body();
        return RDNAAR_OK;
    } catch (const Error &e) {
        return note(comm, e.status, e.text);
    } catch (const std::bad_alloc &) {
        return note(comm, RDNAAR_E_OUT_OF_MEMORY, "out of host memory");
    } catch (const std::exception &e) {
        return note(comm, RDNAAR_E_SYSTEM, e.what());
    }
}

template <class T>
T &require(T *pointer, const char *name) {
    if (pointer == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "%s is NULL", name);
    return *pointer;
}

Communicator &require_comm(rdnaar_comm *comm) { return require(comm, "comm").impl; }

constexpr uint32_t kSmallestStruct = 8;

uint32_t checked_size(uint32_t struct_size, const char *name) {
    if (struct_size < kSmallestStruct)
        fail(RDNAAR_E_ABI, "%s.struct_size is %u, but must be set to the size of the struct", name,
             struct_size);
    return struct_size;
}

// The caller's struct, as far as it goes, over defaults for what it does not know.
template <class S>
S read_struct(const S *from, const char *name, const S &defaults) {
    require(from, name);
    uint32_t size;
    memcpy(&size, from, sizeof size);
    S s = defaults;
    memcpy(&s, from, min_of<size_t>(checked_size(size, name), sizeof s));
    s.struct_size = sizeof s;
    return s;
}

template <class S>
uint32_t struct_room(S *to, const char *name) {
    return checked_size(require(to, name).struct_size, name);
}

// Fills as much of the caller's struct as it has; its struct_size stays.
template <class S>
void write_struct(S *to, uint32_t room, S s) {
    s.struct_size = room;
    memcpy(to, &s, min_of<size_t>(room, sizeof s));
}

constexpr uint32_t kDestroyWaitMs = 2000;  // for each thing that there is to wait for

void destroy(rdnaar_comm *comm, uint32_t wait_ms) {
    if (comm == nullptr) return;
    std::string why;
    const Communicator::Kept kept = comm->impl.close(wait_ms, why);
    if (kept == Communicator::Kept::kSlab) comm->impl.keep_slab();
    if (kept != Communicator::Kept::kAll) delete comm;
    if (kept != Communicator::Kept::kNothing) fail(RDNAAR_E_BUSY, "%s", why.c_str());
}

rdnaar_config default_config() {
    rdnaar_config c{};
    c.struct_size = sizeof c;
    c.world = 1;
    c.device = -1;
    c.max_bytes = 20ull << 20;
    c.ll_max_bytes = RDNAAR_AUTO;
    c.oneshot_max_bytes = RDNAAR_AUTO;
    c.timeout_ms = 120000;
    c.warmup_timeout_ms = 300000;
    c.late_ms = 2000;
    return c;
}

#define RDNAAR_STATUS_ROW_(value, name, text) {value, #name, text},
const struct {
    int value;
    const char *name, *text;
} kStatusTable[] = {RDNAAR_STATUS_MAP(RDNAAR_STATUS_ROW_)};
#undef RDNAAR_STATUS_ROW_

}  // namespace

extern "C" {

uint32_t rdnaar_abi_version(void) { return RDNAAR_ABI_VERSION; }

const char *rdnaar_status_name(rdnaar_status code) {
    for (const auto &row : kStatusTable)
        if (row.value == code) return row.name;
    return "E_UNKNOWN";
}

const char *rdnaar_status_string(rdnaar_status code) {
    for (const auto &row : kStatusTable)
        if (row.value == code) return row.text;
    return "unknown status";
}

const char *rdnaar_last_error(rdnaar_comm *comm) {
    try {
        returned_error = comm != nullptr ? comm->impl.last_error() : thread_error;
        return returned_error.c_str();
    } catch (...) {
        return "out of host memory";
    }
}

uint32_t rdnaar_sizeof(uint32_t which) {
    switch (which) {
        case RDNAAR_STRUCT_BUILD_INFO: return sizeof(rdnaar_build_info_t);
        case RDNAAR_STRUCT_DEVICE_INFO: return sizeof(rdnaar_device_info_t);
        case RDNAAR_STRUCT_CONFIG: return sizeof(rdnaar_config);
        case RDNAAR_STRUCT_PLAN: return sizeof(rdnaar_plan_t);
        case RDNAAR_STRUCT_SELF_TEST_CONFIG: return sizeof(rdnaar_self_test_config);
        case RDNAAR_STRUCT_SELF_TEST_REPORT: return sizeof(rdnaar_self_test_report);
        case RDNAAR_STRUCT_ABORT_RECORD: return sizeof(rdnaar_abort_record_t);
        case RDNAAR_STRUCT_LATE_RECORD: return sizeof(rdnaar_late_record_t);
        case RDNAAR_STRUCT_PROBE_CONFIG: return sizeof(rdnaar_probe_config);
        case RDNAAR_STRUCT_PROBE_RESULT: return sizeof(rdnaar_probe_result);
        default: return 0;
    }
}

rdnaar_status rdnaar_build_info(rdnaar_build_info_t *info) {
    return guarded(nullptr, [&] {
        const uint32_t room = struct_room(info, "info");
        rdnaar_build_info_t b{};
        b.abi_version = RDNAAR_ABI_VERSION;
        put_text(b.version, RDNAAR_VERSION_STRING);
        put_text(b.source_digest, source_digest());
        put_text(b.git_revision, git_revision());
        put_text(b.backend, backend::name());
        put_text(b.targets, backend::targets());
        put_text(b.compiler, compiler());
        put_text(b.runtime, backend::runtime_description());
        write_struct(info, room, b);
    });
}

rdnaar_status rdnaar_device_count(uint32_t *count) {
    return guarded(nullptr, [&] { require(count, "count") = backend::device_count(); });
}

rdnaar_status rdnaar_device_info(uint32_t index, rdnaar_device_info_t *info) {
    return guarded(nullptr, [&] {
        const uint32_t room = struct_room(info, "info");
        const uint32_t count = backend::device_count();
        if (index >= count)  // -1, the current device, would be an index of its own here
            fail(RDNAAR_E_INVALID_ARGUMENT, "index is %u, but the number of devices is %u", index,
                 count);
        rdnaar_device_info_t d{};
        backend::device_info(index, d);
        d.index = index;
        write_struct(info, room, d);
    });
}

rdnaar_status rdnaar_peer_access(uint32_t from, uint32_t to, uint32_t *access) {
    return guarded(nullptr, [&] {
        const uint32_t count = backend::device_count();
        if (from >= count || to >= count)
            fail(RDNAAR_E_INVALID_ARGUMENT, "device %u or %u, but there are %u devices", from, to,
                 count);
        require(access, "access") = backend::peer_access(from, to);
    });
}

rdnaar_status rdnaar_config_init(rdnaar_config *config, uint32_t struct_size) {
    return guarded(nullptr, [&] {
        require(config, "config");
        write_struct(config, checked_size(struct_size, "config"), default_config());
    });
}

rdnaar_status rdnaar_init(const rdnaar_config *config, rdnaar_comm **comm) {
    return guarded(nullptr, [&] {
        require(comm, "comm") = nullptr;
        *comm = new rdnaar_comm{Communicator(read_struct(config, "config", default_config()))};
    });
}

rdnaar_status rdnaar_export_buffers(rdnaar_comm *comm, void *blob, uint64_t size) {
    return guarded(comm, [&] { require_comm(comm).export_buffers(blob, size); });
}

rdnaar_status rdnaar_register_buffers(rdnaar_comm *comm, const void *blobs, uint32_t world) {
    return guarded(comm, [&] { require_comm(comm).register_buffers(blobs, world); });
}

rdnaar_status rdnaar_plan(rdnaar_comm *comm, uint64_t count, uint32_t dtype, uint32_t op,
                          uint32_t algo, rdnaar_plan_t *plan) {
    return guarded(comm, [&] {
        const Communicator &c = require_comm(comm);
        const uint32_t room = struct_room(plan, "plan");
        const Plan p = c.plan(count, dtype, op, algo);
        rdnaar_plan_t out{};
        out.status = p.status;
        out.algo = p.algo;
        out.blocks = p.grid.blocks;
        out.threads = p.grid.threads;
        out.pieces = p.pieces;
        out.bytes_sent = p.bytes_sent;
        out.limit_bytes = c.settings().config.max_bytes;
        put_text(out.reason, p.reason);
        write_struct(plan, room, out);
        if (p.status != RDNAAR_OK) fail(p.status, "%s", p.reason.c_str());
    });
}

rdnaar_status rdnaar_all_reduce(rdnaar_comm *comm, const void *in, void *out, uint64_t count,
                                uint32_t dtype, uint32_t op, uint32_t algo, void *stream) {
    return guarded(comm,
                   [&] { require_comm(comm).all_reduce(in, out, count, dtype, op, algo, stream); });
}

rdnaar_status rdnaar_reduce_scatter(rdnaar_comm *comm, const void *in, void *out, uint64_t count,
                                    uint32_t dtype, uint32_t op, void *stream) {
    return guarded(comm,
                   [&] { require_comm(comm).reduce_scatter(in, out, count, dtype, op, stream); });
}

rdnaar_status rdnaar_all_gather(rdnaar_comm *comm, const void *in, void *out, uint64_t count,
                                uint32_t dtype, void *stream) {
    return guarded(comm, [&] { require_comm(comm).all_gather(in, out, count, dtype, stream); });
}

rdnaar_status rdnaar_self_test(rdnaar_comm *comm, const rdnaar_self_test_config *config,
                               rdnaar_self_test_report *report, void *stream) {
    return guarded(comm, [&] {
        Communicator &c = require_comm(comm);
        const uint32_t room = struct_room(report, "report");
        const rdnaar_self_test_config defaults{sizeof defaults, 1, 0, 0, 0, 0, 0};
        const rdnaar_self_test_report r = run_self_test(
            c, config == nullptr ? defaults : read_struct(config, "config", defaults), stream);
        write_struct(report, room, r);
        if (r.wrong != 0 || r.slow != 0) fail(RDNAAR_E_SELF_TEST, "%s", r.text);
    });
}

rdnaar_status rdnaar_probe(rdnaar_comm *comm, const rdnaar_probe_config *config,
                           rdnaar_probe_result *result, void *stream) {
    return guarded(comm, [&] {
        Communicator &c = require_comm(comm);
        const uint32_t room = struct_room(result, "result");
        const rdnaar_probe_config p = read_struct(config, "config", rdnaar_probe_config{});
        write_struct(result, room, run_probe(c, p, stream));
    });
}

rdnaar_status rdnaar_abort_record(rdnaar_comm *comm, rdnaar_abort_record_t *record) {
    return guarded(comm, [&] {
        const Communicator &c = require_comm(comm);
        write_struct(record, struct_room(record, "record"), c.abort_record());
    });
}

rdnaar_status rdnaar_late_record(rdnaar_comm *comm, rdnaar_late_record_t *record) {
    return guarded(comm, [&] {
        const Communicator &c = require_comm(comm);
        write_struct(record, struct_room(record, "record"), c.late_record());
    });
}

uint32_t rdnaar_is_aborted(rdnaar_comm *comm) { return comm != nullptr && comm->impl.aborted(); }

rdnaar_status rdnaar_transport_used(rdnaar_comm *comm, uint32_t *transport) {
    return guarded(comm, [&] {
        const Communicator &c = require_comm(comm);
        require(transport, "transport") = c.transport();
    });
}

rdnaar_status rdnaar_abort(rdnaar_comm *comm, const char *reason) {
    return guarded(comm, [&] { require_comm(comm).abort(reason); });
}

rdnaar_status rdnaar_destroy(rdnaar_comm *comm) {
    return guarded(nullptr, [&] { destroy(comm, kDestroyWaitMs); });
}

rdnaar_status rdnaar_destroy_now(rdnaar_comm *comm) {
    return guarded(nullptr, [&] { destroy(comm, 0); });
}

rdnaar_status rdnaar_malloc(int32_t device, uint64_t nbytes, void **ptr) {
    return guarded(nullptr, [&] {
        require(ptr, "ptr") = nullptr;
        if (nbytes == 0) fail(RDNAAR_E_INVALID_ARGUMENT, "nbytes is 0, but must be at least 1");
        *ptr = backend::allocate(backend::resolve_device(device), nbytes);
    });
}

rdnaar_status rdnaar_free(void *ptr) {
    return guarded(nullptr, [&] {
        if (ptr != nullptr) backend::release(ptr);
    });
}

rdnaar_status rdnaar_copy(void *dst, const void *src, uint64_t nbytes, void *stream) {
    return guarded(nullptr, [&] {
        if (nbytes == 0) return;
        require(static_cast<unsigned char *>(dst), "dst");
        require(static_cast<const unsigned char *>(src), "src");
        const uintptr_t a = reinterpret_cast<uintptr_t>(src), b = reinterpret_cast<uintptr_t>(dst);
        if (a < b + nbytes && b < a + nbytes)
            fail(RDNAAR_E_INVALID_ARGUMENT, "src %p and dst %p overlap", src, dst);
        backend::copy(dst, src, nbytes, stream);
    });
}

rdnaar_status rdnaar_stream_create(int32_t device, void **stream) {
    return guarded(nullptr, [&] {
        require(stream, "stream") = nullptr;
        *stream = backend::create_stream(backend::resolve_device(device));
    });
}

rdnaar_status rdnaar_stream_sync(void *stream) {
    return guarded(nullptr, [&] { backend::sync_stream(stream); });
}

rdnaar_status rdnaar_stream_destroy(void *stream) {
    return guarded(nullptr, [&] {
        if (stream != nullptr) backend::destroy_stream(stream);
    });
}

rdnaar_status rdnaar_event_create(int32_t device, void **event) {
    return guarded(nullptr, [&] {
        require(event, "event") = nullptr;
        *event = backend::create_event(backend::resolve_device(device));
    });
}

rdnaar_status rdnaar_event_record(void *event, void *stream) {
    return guarded(nullptr, [&] {
        if (event == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "event is NULL");
        backend::record_event(event, stream);
    });
}

rdnaar_status rdnaar_event_sync(void *event) {
    return guarded(nullptr, [&] {
        if (event == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "event is NULL");
        backend::sync_event(event);
    });
}

rdnaar_status rdnaar_event_elapsed_us(void *start, void *stop, double *microseconds) {
    return guarded(nullptr, [&] {
        if (start == nullptr || stop == nullptr)
            fail(RDNAAR_E_INVALID_ARGUMENT, "%s is NULL", start == nullptr ? "start" : "stop");
        require(microseconds, "microseconds") = backend::elapsed_us(start, stop);
    });
}

rdnaar_status rdnaar_event_destroy(void *event) {
    return guarded(nullptr, [&] {
        if (event != nullptr) backend::destroy_event(event);
    });
}

rdnaar_status rdnaar_graph_begin(void *stream) {
    return guarded(nullptr, [&] {
        if (stream == nullptr)
            fail(RDNAAR_E_INVALID_ARGUMENT, "stream is NULL, which cannot be recorded");
        backend::begin_graph(stream);
    });
}

rdnaar_status rdnaar_graph_end(void *stream, void **graph) {
    return guarded(nullptr, [&] {
        require(graph, "graph") = nullptr;
        if (stream == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "stream is NULL");
        *graph = backend::end_graph(stream);
    });
}

rdnaar_status rdnaar_graph_launch(void *graph, void *stream) {
    return guarded(nullptr, [&] {
        if (graph == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "graph is NULL");
        backend::launch_graph(graph, stream);
    });
}

rdnaar_status rdnaar_graph_destroy(void *graph) {
    return guarded(nullptr, [&] {
        if (graph != nullptr) backend::destroy_graph(graph);
    });
}

}  // extern "C"
