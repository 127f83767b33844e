// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "faults.h"

namespace rdnasim {

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "rdnasim: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

namespace {

constexpr u64 kGib = 1ull << 30;
constexpr Model kModels[] = {
    {"V620", "AMD Radeon PRO V620 (simulated)", "gfx1030", 72, 32 * kGib},
    {"7900XTX", "AMD Radeon RX 7900 XTX (simulated)", "gfx1100", 96, 24 * kGib},
    {"R9700", "AMD Radeon AI PRO R9700 (simulated)", "gfx1201", 64, 32 * kGib},
};

std::string variable(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text != nullptr && *text != 0 ? text : otherwise;
}

u64 number(const char *name, u64 otherwise) {
    const std::string text = variable(name, "");
    if (text.empty()) return otherwise;
    char *end;
    const u64 value = strtoull(text.c_str(), &end, 0);
    if (*end != 0) die("%s is %s, but must be a number", name, text.c_str());
    return value;
}

// Which of the words it is.
u32 choice(const char *name, std::initializer_list<const char *> words) {
    const std::string text = variable(name, *words.begin());
    u32 index = 0;
    for (const char *word : words) {
        if (text == word) return index;
        index++;
    }
    die("%s is %s, which is none of its values (%s, ...)", name, text.c_str(), *words.begin());
}

const Model *model(const std::string &name) {
    for (const Model &m : kModels)
        if (name == m.name) return &m;
    die("RDNASIM_DEVICES names a %s; known are V620, 7900XTX and R9700", name.c_str());
}

std::vector<const Model *> models() {
    std::vector<const Model *> all, visible;
    std::istringstream names(variable("RDNASIM_DEVICES", "V620"));
    for (std::string name; std::getline(names, name, ',');) all.push_back(model(name));
    if (getenv("HIP_VISIBLE_DEVICES") == nullptr) return all;
    std::istringstream indices(getenv("HIP_VISIBLE_DEVICES"));
    for (std::string index; std::getline(indices, index, ',');) {
        const u64 i = strtoull(index.c_str(), nullptr, 10);
        if (i >= all.size()) break;  // as HIP: those before it count
        visible.push_back(all[i]);
    }
    return visible;
}

void read_fault(Settings &s) {
    const std::string text = variable("RDNASIM_PEER_FAULT", "");
    if (text.empty()) return;
    char kind[16];
    if (sscanf(text.c_str(), "%15[a-z]:%u:%u", kind, &s.fault_from, &s.fault_to) != 3)
        die("RDNASIM_PEER_FAULT is %s, but must be like corrupt:0:1", text.c_str());
    const std::string word = kind;
    s.fault = word == "corrupt" ? PeerFault::kCorrupt
              : word == "drop"  ? PeerFault::kDrop
              : word == "stall" ? PeerFault::kStall
                                : PeerFault::kNone;
    if (s.fault == PeerFault::kNone) die("RDNASIM_PEER_FAULT: corrupt, drop or stall");
    if (!s.weak) die("RDNASIM_PEER_FAULT needs RDNASIM_MEMORY=weak, which has links");
}

std::string cache_folder() {
    const std::string home =
        variable("XDG_CACHE_HOME", (variable("HOME", "/tmp") + "/.cache").c_str());
    const std::string folder = variable("RDNASIM_CACHE", (home + "/rdnasim").c_str());
    for (size_t at = folder.find('/', 1); at != std::string::npos; at = folder.find('/', at + 1))
        mkdir(folder.substr(0, at).c_str(), 0777);
    mkdir(folder.c_str(), 0777);
    return folder;
}

Settings *read_settings() {
    auto *s = new Settings;
    s->devices = models();
    s->weak = choice("RDNASIM_MEMORY", {"strong", "weak"}) == 1;
    s->seed = number("RDNASIM_SEED", s->weak ? 1 : 0);
    s->resident_blocks = u32(number("RDNASIM_RESIDENT_BLOCKS", ~0u));
    s->peer_access = choice("RDNASIM_PEER", {"yes", "refused"}) == 0;
    s->uncached = choice("RDNASIM_UNCACHED", {"yes", "no"}) == 0;
    s->slow_clock = number("RDNASIM_SLOW_CLOCK", 1);
    if (s->slow_clock == 0) die("RDNASIM_SLOW_CLOCK is 0, but must be at least 1");
    s->statistics = number("RDNASIM_STATISTICS", 0) != 0;
    s->cache = cache_folder();
    read_fault(*s);
    return s;
}

}  // namespace

const Settings &settings() {
    static const Settings *const s = read_settings();
    return *s;
}

bool peer_faults_exist() { return settings().fault != PeerFault::kNone; }

bool pass_faulty_link(u32 from, u32 to, Store &store) {
    const Settings &s = settings();
    if (from != s.fault_from || to != s.fault_to) return true;
    if (s.fault == PeerFault::kStall) return false;
    // One in so many, by its address: the same word is hit again and again.
    if (store.address / 4 % 61 != 17) return true;
    store.data ^= 0x40;
    return s.fault == PeerFault::kCorrupt;
}

}  // namespace rdnasim
