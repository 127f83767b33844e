// SPDX-License-Identifier: Apache-2.0
#include "communicator.h"

#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstring>
#include <thread>
#include <vector>

#include "../protocol/abort.h"

#if RDNAAR_FAULTS
#define RDNAAR_FAULT_POINT(point) faults_.at(point)
#else
#define RDNAAR_FAULT_POINT(point) static_cast<void>(0)
#endif

namespace rdnaar {

namespace {

constexpr uint32_t kNobody = 0xFF;  // in an abort word

// The answer that an error leads to is that of a stream which is not.
bool is_recording_quietly(void *stream) {
    try {
        return backend::is_recording(stream);
    } catch (const Error &) {
        return false;
    }
}

}  // namespace

// The board tells the owner that its slab is open before it is, and that it is not when it is not any
// more; this order is what the owner's memory depends on.
struct Communicator::Peer {
    Peer(const Settings &settings, uint32_t device, const Blob &blob, uint32_t rank)
        : own_rank(settings.config.rank) {
        if (blob.board.address.pid == getpid()) {
            // Ranks of one process share the slab: it stays until the last of them lets go.
            slab = backend::open_slab(device, settings.layout, blob.handle, rank);
            PeerBoard(blob.board, rank);  // checks the rest of what the blob says
            return;
        }
        board = std::make_unique<PeerBoard>(blob.board, rank);
        board->write(own_rank, Mark::kOpen);
        try {
            slab = backend::open_slab(device, settings.layout, blob.handle, rank);
        } catch (...) {
            close();
            throw;
        }
    }
    ~Peer() { close(); }
    void close() {
        slab.reset();
        if (board != nullptr) board->write(own_rank, Mark::kClosed);
    }

    const uint32_t own_rank;
    std::unique_ptr<PeerBoard> board;
    std::shared_ptr<backend::Mapping> slab;
};

Communicator::Communicator(const rdnaar_config &config)
    : settings_(make_settings(config)),
      device_(backend::resolve_device(config.device)),
      ticks_per_ms_(backend::ticks_per_ms(device_)) {
    const rdnaar_config &c = settings_.config;
    RDNAAR_FAULT_POINT("init");
    if (c.world > 1) {
        board_ = std::make_shared<Board>();
        slab_ = backend::create_slab(device_, settings_.layout, c.transport, c.memory);
        call_.slab[0] = slab_->base();
        call_.poll_pause = slab_->poll_pause();
#if RDNAAR_FAULTS
        faults_.set_transport(slab_->transport());
#endif
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

Communicator::Kept Communicator::close(uint32_t wait_ms, std::string &why) {
    bool ended = sequencer_->drain(wait_ms);
    if (!ended && wait_ms != 0) {
        abort_quietly(kUser, kNobody, "destroyed during a call");
        ended = sequencer_->drain(wait_ms);
    }
    if (!ended) {
        why =
            "calls of the communicator are still on their way through a stream; its memory is kept "
            "until the process ends";
        return Kept::kAll;  // with the watch: a peer's death ends them
    }
    if (watch_ != nullptr) watch_->stop();
    {
        const std::lock_guard<std::mutex> lock(peers_mutex_);
        for (std::shared_ptr<Peer> &peer : peers_) peer.reset();
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    for (;;) {
        why = who_keeps_slab_open();
        if (why.empty()) return Kept::kNothing;
        if (std::chrono::steady_clock::now() >= end) return Kept::kSlab;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

// Memory that is gone with its owner must outlast all who have it open. A process that has ended has
// nothing open.
std::string Communicator::who_keeps_slab_open() const {
    if (slab_ == nullptr || !slab_->peers_must_close_first()) return "";
    for (uint32_t r = 0; r < settings_.config.world; r++)
        if (board_->mark_of(r) == Mark::kOpen && !(watch_ != nullptr && watch_->ended(r)))
            return "rank " + std::to_string(r) +
                   " still has this rank's memory open; it is kept until the process ends";
    return "";
}

void Communicator::keep_slab() {
    static std::mutex mutex;
    static auto *const kept = new std::vector<std::shared_ptr<void>>;  // never destroyed
    const std::lock_guard<std::mutex> lock(mutex);
    kept->push_back(slab_);
    kept->push_back(board_);
}

void Communicator::export_buffers(void *blob, uint64_t size) {
    RDNAAR_FAULT_POINT("export");
    if (blob == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "blob is NULL");
    if (size < RDNAAR_BLOB_BYTES)
        fail(RDNAAR_E_INVALID_ARGUMENT, "size is %" PRIu64 " bytes, but a blob needs %u", size,
             RDNAAR_BLOB_BYTES);
    const Blob b = make_blob(settings_, slab_ ? slab_->handle() : backend::Handle{},
                             board_ ? board_->handle() : BoardHandle{});
    memcpy(blob, &b, sizeof b);
}

void Communicator::register_buffers(const void *blobs, uint32_t world) {
    RDNAAR_FAULT_POINT("register");
    const rdnaar_config &c = settings_.config;
    if (registered_) fail(RDNAAR_E_STATE, "buffers are registered already");
    if (blobs == nullptr) fail(RDNAAR_E_INVALID_ARGUMENT, "blobs is NULL");
    if (world != c.world)
        fail(RDNAAR_E_INVALID_ARGUMENT, "world is %u, but the communicator has %u ranks", world,
             c.world);
    std::shared_ptr<Peer> opened[kMaxWorld];  // closed again if one of them fails
    PeerWatch::Processes processes;
    for (uint32_t r = 0; r < world; r++) {
        Blob blob;
        memcpy(&blob, static_cast<const unsigned char *>(blobs) + r * sizeof blob, sizeof blob);
        check_blob(blob, settings_, r);
        if (r == c.rank) continue;
        const int32_t pid = blob.board.address.pid;
        // Before its memory is opened: what holds that afterwards is then known to be this process.
        if (pid != getpid()) processes[r] = open_process(pid);
        opened[r] = std::make_shared<Peer>(settings_, device_, blob, r);
    }
    watch_ =
        std::make_unique<PeerWatch>(std::move(processes), [this](uint32_t r) { peer_died(r); });
    const std::lock_guard<std::mutex> lock(peers_mutex_);
    for (uint32_t r = 0; r < world; r++) {
        if (r == c.rank) continue;
        peers_[r] = opened[r];
        call_.slab[(r + world - c.rank) % world] = opened[r]->slab->base();
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
           __atomic_load_n(&host_abort_, __ATOMIC_ACQUIRE) != 0;
}

uint32_t Communicator::transport() const {
    return slab_ == nullptr ? uint32_t(RDNAAR_TRANSPORT_AUTO) : slab_->transport();
}

void Communicator::all_reduce(const void *in, void *out, uint64_t count, uint32_t dtype,
                              uint32_t op, uint32_t algo, void *stream) {
    const uint64_t nbytes = count * element_bytes(dtype);
    run(make_plan(settings_, count, dtype, op, algo), Buffers{in, out, nbytes, nbytes, 0}, count,
        dtype, op, stream);
}

void Communicator::reduce_scatter(const void *in, void *out, uint64_t count, uint32_t dtype,
                                  uint32_t op, void *stream) {
    const uint64_t nbytes = count * element_bytes(dtype);
    run(make_chunk_plan(settings_, count, dtype, op, RDNAAR_ALGO_REDUCE_SCATTER),
        Buffers{in, out, settings_.config.world * nbytes, nbytes,
                int64_t(settings_.config.rank * nbytes)},
        count, dtype, op, stream);
}

void Communicator::all_gather(const void *in, void *out, uint64_t count, uint32_t dtype,
                              void *stream) {
    const uint64_t nbytes = count * element_bytes(dtype);
    run(make_chunk_plan(settings_, count, dtype, RDNAAR_SUM, RDNAAR_ALGO_ALL_GATHER),
        Buffers{in, out, nbytes, settings_.config.world * nbytes,
                -int64_t(settings_.config.rank * nbytes)},
        count, dtype, RDNAAR_SUM, stream);
}

// The two buffers of a call: valid, aligned, and either apart or in place.
void Communicator::check_buffers(const Buffers &b, uint64_t count, uint32_t dtype) {
    if (b.in == nullptr || b.out == nullptr)
        fail(RDNAAR_E_INVALID_ARGUMENT, "%s is NULL, but count is %" PRIu64,
             b.in == nullptr ? "in" : "out", count);
    const uint32_t element = element_bytes(dtype);
    const uintptr_t in = reinterpret_cast<uintptr_t>(b.in),
                    out = reinterpret_cast<uintptr_t>(b.out);
    if (in % element != 0 || out % element != 0)
        fail(RDNAAR_E_INVALID_ARGUMENT, "%s is %p, but must be aligned to its element of %u bytes",
             in % element != 0 ? "in" : "out", in % element != 0 ? b.in : b.out, element);
    if (!b.in_place() && in < out + b.out_bytes && out < in + b.in_bytes)
        fail(RDNAAR_E_INVALID_ARGUMENT,
             "in %p and out %p overlap in part of their bytes: use the buffers of an in-place call "
             "or memory of its own",
             b.in, b.out);
}

void Communicator::run(const Plan &p, const Buffers &buffers, uint64_t count, uint32_t dtype,
                       uint32_t op, void *stream) {
    if (p.status != RDNAAR_OK) fail(p.status, "%s", p.reason.c_str());
    check_ready();
    if (aborted())
        fail(RDNAAR_E_ABORTED, "the communicator was aborted; destroy it and make a new one");
    if (count == 0) return;
    check_buffers(buffers, count, dtype);
    if (p.algo == RDNAAR_ALGO_COPY) {
        if (!buffers.in_place()) backend::copy(buffers.out, buffers.in, buffers.in_bytes, stream);
        return;
    }
    backend::Launch launch{call_, dtype, p.grid, device_};
    Call &call = launch.call;
    call.in = buffers.in;
    call.out = buffers.out;
    call.count = count;
    call.signature = make_signature(count, dtype, op, p.algo);
    call.piece_bytes = p.piece_bytes;
    call.pieces = p.pieces;
    call.algo = p.algo;
    call.op = op;
    submit(launch, stream);
    if (stream == nullptr && aborted())
        fail(RDNAAR_E_ABORTED, "the call was aborted; rdnaar_abort_record() tells why");
}

void Communicator::submit(backend::Launch &launch, void *stream) {
    try {
#if RDNAAR_FAULTS
        launch.call.fault = faults_.next_call();
#endif
        sequencer_->submit(launch, stream);
    } catch (const Error &e) {
        // The peers make this call, and would take this rank's next one for it. A call that was only
        // to be recorded is missing in a graph that will not come about.
        const bool lost = e.status == RDNAAR_E_RUNTIME || e.status == RDNAAR_E_OUT_OF_MEMORY ||
                          e.status == RDNAAR_E_SYSTEM;
        if (lost && !is_recording_quietly(stream)) abort_quietly(kRuntime, kNobody, e.text);
        throw;
    }
}

void Communicator::abort(const char *reason) {
    abort(kUser, kNobody, reason != nullptr ? reason : "rdnaar_abort() was called");
}

void Communicator::abort(uint32_t reason, uint32_t because_of, const std::string &text) {
    if (aborted()) return;
    const uint64_t word = make_abort_word(reason, because_of);
    uint64_t none = 0;
    if (!__atomic_compare_exchange_n(&host_abort_, &none, word, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED))
        return;
    note_error(text);
    if (slab_ != nullptr) slab_->post_abort_word(word);
    if (reason == kPeerDead) return;  // the others see for themselves
    const std::lock_guard<std::mutex> lock(peers_mutex_);
    for (const std::shared_ptr<Peer> &peer : peers_)
        if (peer != nullptr)
            peer->slab->post_abort_word(make_abort_word(kPeerAborted, settings_.config.rank));
}

void Communicator::peer_died(uint32_t rank) {
    if (board_->mark_of(rank) == Mark::kClosed) return;  // it had finished
    abort_quietly(kPeerDead, rank,
                  "the process of rank " + std::to_string(rank) +
                      " has ended without destroying its communicator");
}

// Where a runtime may take no more orders: this rank is aborted all the same, and waits are bounded.
void Communicator::abort_quietly(uint32_t reason, uint32_t because_of, const std::string &text) {
    try {
        abort(reason, because_of, text);
    } catch (...) {
    }
}

// Both the host and a call may have found a reason, at the same time. Whoever asks first settles which
// of the two it is; details come from the call, if they are of that reason.
rdnaar_abort_record_t Communicator::abort_record() const {
    rdnaar_abort_record_t record{};
    if (!aborted()) return record;
    const AbortLine &line = *state_->host_abort_line;
    const bool line_valid = __atomic_load_n(&line.valid, __ATOMIC_ACQUIRE) != 0;
    uint64_t word = __atomic_load_n(&host_abort_, __ATOMIC_ACQUIRE);
    if (word == 0) word = make_abort_word(line.reason, uint32_t(line.peer) & 0xFF);
    uint64_t settled = 0;
    if (!__atomic_compare_exchange_n(&settled_abort_, &settled, word, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        word = settled;
    record.valid = 1;
    record.rank = settings_.config.rank;
    record.reason = abort_word_reason(word);
    record.peer = abort_word_rank(word) == int32_t(kNobody) ? -1 : abort_word_rank(word);
    if (!line_valid || line.reason != record.reason) return record;
    record.phase = line.phase;
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
