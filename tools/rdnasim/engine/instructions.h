// SPDX-License-Identifier: Apache-2.0
// The table of instructions: every name that the simulator executes. What is not in it is refused.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace rdnasim {

struct Instruction {
    const char *name;
    Handler run;
    u32 parameter = 0;
};

using InstructionTable = std::vector<Instruction>;

const InstructionTable &scalar_instructions();
const InstructionTable &vector_instructions();
const InstructionTable &compare_instructions();
const InstructionTable &memory_instructions();
const InstructionTable &control_instructions();

const Instruction *find_instruction(const std::string &name);
std::vector<std::string> instruction_names();

}  // namespace rdnasim
