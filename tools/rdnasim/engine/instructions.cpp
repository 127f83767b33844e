// SPDX-License-Identifier: Apache-2.0
#include "instructions.h"

#include <map>

namespace rdnasim {

namespace {

using ByName = std::map<std::string, const Instruction *>;

const ByName &by_name() {
    static const ByName *const all = [] {
        auto *map = new ByName;
        for (const InstructionTable *table :
             {&scalar_instructions(), &vector_instructions(), &compare_instructions(),
              &memory_instructions(), &control_instructions()})
            for (const Instruction &instruction : *table)
                if (!map->emplace(instruction.name, &instruction).second)
                    die("instruction %s is in the tables twice", instruction.name);
        return map;
    }();
    return *all;
}

}  // namespace

const Instruction *find_instruction(const std::string &name) {
    const auto at = by_name().find(name);
    return at == by_name().end() ? nullptr : at->second;
}

std::vector<std::string> instruction_names() {
    std::vector<std::string> names;
    for (const auto &entry : by_name()) names.push_back(entry.first);
    return names;
}

}  // namespace rdnasim
