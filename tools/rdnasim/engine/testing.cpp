// SPDX-License-Identifier: Apache-2.0
// What tests of single instructions need: the table's names, and running a program on one wave whose
// registers the caller gives.
#include <cstdio>

#include "hip_api.h"
#include "instructions.h"

using namespace rdnasim;

namespace {

struct Registers {  // as tests/sim/one_wave.py has it
    u32 scalars[kScalarRegisters];
    u32 scc;
    u32 operations;
    u32 vectors[kVectorRegisters][kWave];
    u8 lds[1 << 12];
};

std::string joined(const std::vector<std::string> &names) {
    std::string text;
    for (const std::string &name : names) text += name + "\n";
    return text;
}

}  // namespace

// All names, one a line.
HIP_EXPORT const char *rdnasim_instruction_names() {
    static const std::string *const text = new std::string(joined(instruction_names()));
    return text->c_str();
}

// Runs the first kernel of a program file on one wave, in the strong model, until it ends. NULL, or
// why it cannot be run.
HIP_EXPORT const char *rdnasim_run_wave(const char *file, Registers *r) {
    static thread_local std::string reason;
    reason.clear();
    const std::unique_ptr<Program> program = load_program(file, reason);
    if (program == nullptr) return reason.c_str();
    Launch launch;
    launch.kernel = program->kernels.front().get();
    Block block;
    block.launch = &launch;
    block.live = 1;
    block.lds.assign(std::begin(r->lds), std::end(r->lds));
    auto w = std::make_unique<Wave>();
    memcpy(w->s, r->scalars, sizeof r->scalars);
    memcpy(w->v, r->vectors, sizeof r->vectors);
    w->scc = r->scc;
    w->block = &block;
    w->launch = &launch;
    r->operations = 0;
    for (const Step *step = launch.kernel->steps.data(); step != nullptr; r->operations++)
        step = step->run(*w, *step);
    memcpy(r->scalars, w->s, sizeof r->scalars);
    memcpy(r->vectors, w->v, sizeof r->vectors);
    r->scc = w->scc;
    std::copy(block.lds.begin(), block.lds.end(), r->lds);
    return nullptr;
}
