// SPDX-License-Identifier: Apache-2.0
#include "runtime_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "../runtime/error.h"

namespace rdnaar::gpu {

namespace {

// Paths of the mapped files whose names begin with `file`, one for each file (device and inode).
std::vector<std::string> mapped_files(const char *file) {
    std::map<std::string, std::string> by_inode;
    std::string line;
    for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);) {
        // address permissions offset device inode path
        const size_t path = line.find('/');
        if (path == std::string::npos) continue;
        const size_t name = line.rfind('/') + 1;
        if (line.compare(name, strlen(file), file) != 0) continue;
        size_t field = 0;
        for (int i = 0; i < 3; i++) field = line.find(' ', field) + 1;
        const std::string inode =
            line.substr(field, line.find_last_not_of(' ', path - 1) + 1 - field);
        by_inode.emplace(inode, line.substr(path));
    }
    std::vector<std::string> paths;
    for (const auto &entry : by_inode) paths.push_back(entry.second);
    return paths;
}

std::string mapped_runtime(const RuntimeNames &names) {
    const std::vector<std::string> paths = mapped_files(names.file);
    if (paths.size() > 1)
        fail(RDNAAR_E_NO_RUNTIME,
             "this process has two copies of the %s, %s and %s: make all its libraries use one "
             "(PyTorch wheels bring their own; LD_LIBRARY_PATH may add another)",
             names.what, paths[0].c_str(), paths[1].c_str());
    return paths.empty() ? "" : paths[0];
}

std::string dlopen_error() {
    const char *text = dlerror();
    return text != nullptr ? text : "unknown error";
}

}  // namespace

void require_one_runtime(const RuntimeNames &names) { mapped_runtime(names); }

void *open_runtime(const RuntimeNames &names, std::string &reason) {
    const std::string mapped = mapped_runtime(names);
    if (!mapped.empty()) {
        void *runtime = dlopen(mapped.c_str(), RTLD_NOW | RTLD_NOLOAD);
        if (runtime == nullptr)
            fail(RDNAAR_E_NO_RUNTIME, "the %s %s is mapped, but cannot be used: %s", names.what,
                 mapped.c_str(), dlopen_error().c_str());
        return runtime;
    }
    const char *path = names.variable != nullptr ? getenv(names.variable) : nullptr;
    if (path != nullptr && *path != 0) {
        void *runtime = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (runtime == nullptr)
            fail(RDNAAR_E_NO_RUNTIME, "%s is %s, which cannot be loaded: %s", names.variable, path,
                 dlopen_error().c_str());
        return runtime;
    }
    for (const std::string &candidate : names.candidates) {
        void *runtime = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (runtime != nullptr) return runtime;
        const std::string error = dlopen_error();
        // An error about another file means that the candidate is there, but lacks what it needs.
        if (reason.empty() || error.compare(0, candidate.size(), candidate) != 0) reason = error;
    }
    return nullptr;
}

void fail_no_runtime(const RuntimeNames &names, const std::string &reason) {
    fail(RDNAAR_E_NO_RUNTIME, "no %s on this machine (%s)%s%s", names.what, reason.c_str(),
         names.variable != nullptr ? "; install one, or set its path in " : "",
         names.variable != nullptr ? names.variable : "");
}

void *runtime_symbol(void *runtime, const char *symbol, const RuntimeNames &names) {
    void *address = dlsym(runtime, symbol);
    if (address == nullptr)
        fail(RDNAAR_E_NO_RUNTIME, "the %s has no function %s: it is too old, or damaged (%s)",
             names.what, symbol, dlopen_error().c_str());
    return address;
}

std::string file_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace rdnaar::gpu
