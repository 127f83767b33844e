// SPDX-License-Identifier: Apache-2.0
// Finding the GPU runtime of this process.
//
// A process must have one: memory, streams and errors of two copies know nothing of each other.
// PyTorch wheels bring their own, so a runtime that is mapped already is the one to use; a second
// one is an error, and both are named.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace rdnaar::gpu {

struct RuntimeNames {
    const char *what;                     // "HIP runtime"
    const char *file;                     // "libamdhip64.so": its file names begin so
    const char *variable;                 // environment variable with a path; NULL: none
    std::vector<std::string> candidates;  // tried in order when none is mapped
};

// Handle of the runtime as dlopen() gives it; NULL with the reason when this machine has none.
// Throws E_NO_RUNTIME when it has one that cannot be used.
void *open_runtime(const RuntimeNames &names, std::string &reason);

// Throws E_NO_RUNTIME if files of two runtimes are mapped.
void require_one_runtime(const RuntimeNames &names);

// The address of a function; throws E_NO_RUNTIME naming it if the runtime lacks it.
void *runtime_symbol(void *runtime, const char *symbol, const RuntimeNames &names);

// The file that an address comes from.
std::string file_of(const void *address);

[[noreturn]] void fail_no_runtime(const RuntimeNames &names, const std::string &reason);

// A table of functions, filled when it is first asked for and then kept. A failure is not kept: the
// next call tries again.
template <class Table>
class LazyTable {
public:
    using Fill = void (*)(Table &table, void *runtime);
    LazyTable(const RuntimeNames &names, Fill fill) : names_(names), fill_(fill) {}

    const Table *find() {  // NULL: no runtime on this machine
        std::string reason;
        return find(reason);
    }
    const Table &get() {
        std::string reason;
        const Table *table = find(reason);
        if (table == nullptr) fail_no_runtime(names_, reason);
        return *table;
    }
    bool is_loaded() const { return __atomic_load_n(&table_, __ATOMIC_ACQUIRE) != nullptr; }

private:
    const Table *find(std::string &reason) {
        if (is_loaded()) return table_;
        const std::lock_guard<std::mutex> lock(mutex_);
        if (table_ != nullptr) return table_;
        void *runtime = open_runtime(names_, reason);
        if (runtime == nullptr) return nullptr;
        Table table;
        fill_(table, runtime);
        __atomic_store_n(&table_, new const Table(table), __ATOMIC_RELEASE);
        return table_;
    }

    const RuntimeNames &names_;
    const Fill fill_;
    std::mutex mutex_;
    const Table *table_ = nullptr;  // atomic; written under the mutex
};

}  // namespace rdnaar::gpu
