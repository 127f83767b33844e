// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "instructions.h"

namespace rdnasim {

namespace {

constexpr char kMagic[9] = "RDNASIM3";
constexpr u32 kNameBytes = 48;

struct Header {
    char magic[8], target[16];
    u32 kernels, arguments, names, operations;
};

struct KernelRecord {
    char name[64];
    u32 first, count, kernarg_bytes, group_bytes, private_bytes, vgprs, rsrc2, properties,
        first_argument, arguments;
};

// Which caches an access passes over: by the bits that its family has for it.
u8 level_of(const Operation &o, u32 family) {
    if (family == 10) return !(o.flags & kGlc) ? kL0 : o.flags & kDlc ? kL2 : kL1;
    if (family == 11) return o.flags & kGlc ? kL2 : kL0;
    return u8(o.flags / kScope & 3);
}

struct File {
    std::string content;
    const Header &header() const { return *reinterpret_cast<const Header *>(content.data()); }
    const KernelRecord *kernels() const {
        return reinterpret_cast<const KernelRecord *>(content.data() + sizeof(Header));
    }
    const Argument *arguments() const {
        return reinterpret_cast<const Argument *>(kernels() + header().kernels);
    }
    const char *names() const {
        return reinterpret_cast<const char *>(arguments() + header().arguments);
    }
    const char *operations() const { return names() + header().names * kNameBytes; }
    bool is_whole() const {
        return content.size() >= sizeof(Header) && memcmp(header().magic, kMagic, 8) == 0 &&
               operations() + header().operations * sizeof(Operation) ==
                   content.data() + content.size();
    }
};

std::unique_ptr<Kernel> make_kernel(const File &file, const KernelRecord &record, u32 family,
                                    const std::vector<const Instruction *> &meaning) {
    auto kernel = std::make_unique<Kernel>();
    kernel->name = record.name;
    kernel->kernarg_bytes = record.kernarg_bytes;
    kernel->group_bytes = record.group_bytes;
    kernel->private_bytes = record.private_bytes;
    kernel->vgprs = record.vgprs;
    kernel->rsrc2 = record.rsrc2;
    kernel->properties = record.properties;
    kernel->family = family;
    const Argument *arguments = file.arguments() + record.first_argument;
    kernel->arguments.assign(arguments, arguments + record.arguments);
    kernel->steps.resize(record.count);
    for (u32 i = 0; i < record.count; i++) {
        Step &step = kernel->steps[i];
        memcpy(static_cast<Operation *>(&step),
               file.operations() + (record.first + i) * sizeof(Operation), sizeof(Operation));
        step.target -= record.first;
        step.run = meaning[step.name]->run;
        step.parameter = meaning[step.name]->parameter;
        step.level = level_of(step, family);
    }
    return kernel;
}

}  // namespace

const Kernel *Program::find(const std::string &name) const {
    for (const auto &kernel : kernels)
        if (kernel->name == name) return kernel.get();
    return nullptr;
}

std::unique_ptr<Program> load_program(const std::string &path, std::string &reason) {
    std::ifstream stream(path, std::ios::binary);
    const File file{{std::istreambuf_iterator<char>(stream), {}}};
    if (!stream || !file.is_whole()) {
        reason = path + " is no program of this simulator";
        return nullptr;
    }
    std::vector<const Instruction *> meaning;
    for (u32 i = 0; i < file.header().names; i++) {
        const char *name = file.names() + i * kNameBytes;
        meaning.push_back(find_instruction(name));
        if (meaning.back() == nullptr) reason += std::string(reason.empty() ? "" : ", ") + name;
    }
    if (!reason.empty()) {
        reason = "instructions that the simulator does not have: " + reason;
        return nullptr;
    }
    auto program = std::make_unique<Program>();
    program->target = file.header().target;
    const u32 family = u32(atoi(program->target.c_str() + 3)) / 100;
    for (u32 i = 0; i < file.header().kernels; i++)
        program->kernels.push_back(make_kernel(file, file.kernels()[i], family, meaning));
    return program;
}

}  // namespace rdnasim
