// SPDX-License-Identifier: Apache-2.0
#include "communicator.h"

#include <cinttypes>
#include <cstring>

#include "../protocol/abort.h"

namespace rdnaar {

namespace {
constexpr uint32_t kDestroyWaitMs = 2000;  // for calls still queued, and again once aborted
}

Communicator::Communicator(const rdnaar_config &config)
    : settings_(make_settings(config)),
      device_(backend::resolve_device(config.device)),
      ticks_per_ms_(backend::ticks_per_ms(device_)) {
    const rdnaar_config &c = settings_.config;
    if (c.world > 1) {
        slab_ = backend::create_slab(device_, settings_.layout, c.transport, c.memory);
        call_.slab[0] = slab_->base();
        call_.poll_pause = slab_->poll_pause();
    }
    state_ = backend::create_private_state(device_);
    sequencer_ = backend::create_sequencer(device_);
    call_.counters = state_->counters;
    call_.abort_line = state_->abort_line;
    call_.late_line = state_->late_line;
    call_.layout = settings_.layout;
    call_.timeout_ticks = c.timeout_ms * ticks_per_ms_;
    call_.warmup_timeout_ticks = c.warmup_timeout_ms * ticks_per_ms_;
    call_.late_ticks = c.late_ms * ticks_per_ms_;
    call_.rank = c.rank;
    call_.world = c.world;
    call_.pace = c.pace;
}

bool Communicator::close() {
    if (sequencer_->drain(kDestroyWaitMs)) return true;
    abort("destroyed during a call");
    return sequencer_->drain(kDestroyWaitMs);
}

void Communicator::export_buffers(void *blob, uint64_t size) {
    if (blob == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "blob is NULL");
    if (size < RDNAAR_BLOB_BYTES)
        fail(RDNAAR_E_INVALID_ARGUMENT, "size is %" PRIu64 " bytes, but a blob needs %u", size,
             RDNAAR_BLOB_BYTES);
    const Blob b = make_blob(settings_, slab_ ? slab_->handle() : backend::Handle{});
    memcpy(blob, &b, sizeof b);
}

void Communicator::register_buffers(const void *blobs, uint32_t world) {
    const rdnaar_config &c = settings_.config;
    if (registered_) fail(RDNAAR_E_STATE, "buffers are registered already");
    if (blobs == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "blobs is NULL");
    if (world != c.world)
        fail(RDNAAR_E_INVALID_ARGUMENT, "world is %u, but the communicator has %u ranks", world,
             c.world);
    std::shared_ptr<backend::Mapping> opened[kMaxWorld];  // closed again if one of them fails
    for (uint32_t r = 0; r < world; r++) {
        Blob blob;
        memcpy(&blob, static_cast<const unsigned char *>(blobs) + r * sizeof blob, sizeof blob);
        check_blob(blob, settings_, r);
        if (r != c.rank) opened[r] = backend::open_slab(device_, settings_.layout, blob.handle, r);
    }
    for (uint32_t r = 0; r < world; r++) {
        if (r == c.rank) continue;
        peers_[r] = opened[r];
        call_.slab[(r + world - c.rank) % world] = opened[r]->base();
    }
    registered_ = true;
}

void Communicator::check_ready() const {
    if (!registered_ && settings_.config.world > 1)
        fail(RDNAAR_E_STATE, "peers are not registered: call rdnaar_register_buffers() first");
}

Plan Communicator::plan(uint64_t count, uint32_t dtype, uint32_t op, uint32_t algo) const {
    return make_plan(settings_, count, dtype, op, algo);
}

bool Communicator::aborted() const {
    return __atomic_load_n(&state_->host_abort_line->valid, __ATOMIC_ACQUIRE) != 0 ||
           __atomic_load_n(&user_abort_, __ATOMIC_ACQUIRE) != 0;
}

void Communicator::all_reduce(const void *in, void *out, uint64_t count, uint32_t dtype,
                              uint32_t op, uint32_t algo, void *stream) {
    const Plan p = plan(count, dtype, op, algo);
    if (p.status != RDNAAR_OK) fail(p.status, "%s", p.reason.c_str());
    check_ready();
    if (aborted())
        fail(RDNAAR_E_ABORTED, "the communicator was aborted; destroy it and make a new one");
    if (count == 0) return;
    if (in == nullptr || out == nullptr)
        fail(RDNAAR_E_INVALID_ARGUMENT, "%s is NULL, but count is %" PRIu64,
             in == nullptr ? "in" : "out", count);
    const uint32_t element = element_bytes(dtype);
    const uintptr_t a = reinterpret_cast<uintptr_t>(in), b = reinterpret_cast<uintptr_t>(out);
    if (a % element != 0 || b % element != 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "%s is %p, but must be aligned to its element of %u bytes",
             a % element != 0 ? "in" : "out", a % element != 0 ? in : out, element);
    const uint64_t nbytes = count * element;
    if (a != b && a < b + nbytes && b < a + nbytes)
        fail(RDNAAR_E_INVALID_ARGUMENT,
             "in %p and out %p overlap in part of their %" PRIu64
             " bytes: use in == out or memory of its own",
             in, out, nbytes);
    if (p.algo == RDNAAR_ALGO_COPY) {
        if (a != b) backend::copy(out, in, nbytes, stream);
        return;
    }
    backend::Launch launch{call_, dtype, p.grid, device_};
    Call &call = launch.call;
    call.in = in;
    call.out = out;
    call.count = count;
    call.signature = make_signature(count, dtype, op, p.algo);
    call.piece_bytes = p.piece_bytes;
    call.pieces = p.pieces;
    call.algo = p.algo;
    call.op = op;
    sequencer_->submit(launch, stream);
    if (stream == nullptr && aborted())
        fail(RDNAAR_E_ABORTED, "the call was aborted; rdnaar_abort_record() tells why");
}

void Communicator::abort(const char *reason) {
    if (aborted()) return;
    const rdnaar_config &c = settings_.config;
    __atomic_store_n(&user_abort_, 1u, __ATOMIC_RELEASE);
    note_error(reason != nullptr ? reason : "rdnaar_abort() was called");
    const uint64_t word = make_abort_word(kUser, c.rank);
    if (slab_ != nullptr) slab_->post_abort_word(word);
    for (const std::shared_ptr<backend::Mapping> &peer : peers_)
        if (peer != nullptr) peer->post_abort_word(word);
}

rdnaar_abort_record_t Communicator::abort_record() const {
    rdnaar_abort_record_t record{};
    if (!aborted()) return record;
    record.valid = 1;
    record.rank = settings_.config.rank;
    if (__atomic_load_n(&user_abort_, __ATOMIC_ACQUIRE) != 0) {
        record.reason = kUser;
        record.peer = -1;
        return record;
    }
    const AbortLine &line = *state_->host_abort_line;
    record.reason = line.reason;
    record.phase = line.phase;
    record.peer = line.peer;
    record.block = line.block;
    record.algo = line.algo;
    record.epoch = line.call;
    record.waited_ms = line.waited_ticks / ticks_per_ms_;
    record.expected = line.expected;
    record.seen = line.seen;
    return record;
}

rdnaar_late_record_t Communicator::late_record() const {
    rdnaar_late_record_t record{};
    const LateLine &line = *state_->host_late_line;
    record.count = __atomic_load_n(&line.count, __ATOMIC_ACQUIRE);
    if (record.count == 0) return record;
    record.peer = __atomic_load_n(&line.peer, __ATOMIC_RELAXED);
    record.phase = __atomic_load_n(&line.phase, __ATOMIC_RELAXED);
    record.epoch = __atomic_load_n(&line.call, __ATOMIC_RELAXED);
    record.waited_ms = __atomic_load_n(&line.waited_ticks, __ATOMIC_RELAXED) / ticks_per_ms_;
    return record;
}

void Communicator::note_error(const std::string &text) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    last_error_ = text;
}

std::string Communicator::last_error() const {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    return last_error_;
}

}  // namespace rdnaar
