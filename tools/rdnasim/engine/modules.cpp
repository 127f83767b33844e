// SPDX-License-Identifier: Apache-2.0
#include "modules.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "settings.h"

extern char **environ;

namespace rdnasim {

namespace {

constexpr char kBundle[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr char kBeforeTarget[] = "-amdgcn-amd-amdhsa--";
// The files of the translator: a change of theirs makes older programs useless.
constexpr const char *kTranslator[] = {"translate.py", "operands.py", "program.py",
                                       "../rdna_code.py"};

u64 word_at(const char *p) {
    u64 x;
    memcpy(&x, p, sizeof x);
    return x;
}

// The entry of the bundle for this target, with or without features behind its name.
std::string code_object(const char *image, const std::string &target) {
    if (memcmp(image, kBundle, sizeof kBundle - 1) != 0) return "";
    const char *p = image + sizeof kBundle - 1;
    u64 entries = word_at(p);
    for (p += 8; entries > 0; entries--) {
        const u64 offset = word_at(p), size = word_at(p + 8), length = word_at(p + 16);
        std::string name(p + 24, length);
        p += 24 + length;
        const size_t at = name.find(kBeforeTarget);
        if (at == std::string::npos) continue;
        name = name.substr(at + sizeof kBeforeTarget - 1);
        if (name.substr(0, name.find(':')) == target) return std::string(image + offset, size);
    }
    return "";
}

// FNV-1a: names files of a cache, and defends nothing.
u64 hash(u64 seed, const std::string &text) {
    for (const char c : text) seed = (seed ^ u8(c)) * 0x100000001B3u;
    return seed;
}

std::string translator_folder() {
    const char *folder = getenv("RDNASIM_TRANSLATOR");
    return folder != nullptr && *folder != 0 ? folder : RDNASIM_FOLDER;
}

std::string name_of(const std::string &object) {
    u64 key = hash(0xCBF29CE484222325u, object);
    for (const char *file : kTranslator) {
        std::ifstream stream(translator_folder() + "/" + file, std::ios::binary);
        key = hash(key, std::string(std::istreambuf_iterator<char>(stream), {}));
    }
    char name[32];
    snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(key));
    return settings().cache + "/" + name;
}

bool run(std::initializer_list<std::string> words) {
    std::vector<char *> arguments;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t child;
    if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0)
        return false;
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The first process to come translates, others wait for it.
bool translate(const std::string &object, const std::string &file) {
    const int lock = open((file + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0 || flock(lock, LOCK_EX) != 0) return false;
    const std::string source = file + ".co", result = file + ".program";
    bool done = access(result.c_str(), R_OK) == 0;
    if (!done) {
        std::ofstream(source, std::ios::binary) << object;
        done = run({"python3", translator_folder() + "/translate.py", source, result});
        unlink(source.c_str());
    }
    close(lock);
    return done;
}

std::shared_ptr<Program> program_of(const std::string &object) {
    static std::mutex mutex;
    static auto *const loaded = new std::map<std::string, std::shared_ptr<Program>>;
    const std::lock_guard<std::mutex> lock(mutex);
    const std::string file = name_of(object);
    std::shared_ptr<Program> &program = (*loaded)[file];
    if (program != nullptr) return program;
    if (!translate(object, file)) {
        fprintf(stderr, "rdnasim: no program in %s\n", settings().cache.c_str());
        return nullptr;
    }
    std::string reason;
    program = load_program(file + ".program", reason);
    if (program == nullptr) fprintf(stderr, "rdnasim: %s\n", reason.c_str());
    return program;
}

}  // namespace

LoadResult load_module(const void *image, const std::string &target, Module &module) {
    const std::string object = code_object(static_cast<const char *>(image), target);
    if (object.empty()) return LoadResult::kNoCodeForDevice;
    module.program = program_of(object);
    return module.program != nullptr ? LoadResult::kLoaded : LoadResult::kFailed;
}

}  // namespace rdnasim
