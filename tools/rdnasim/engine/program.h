// SPDX-License-Identifier: Apache-2.0
// A translated code object. The structs in the file are those of program.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base.h"

namespace rdnasim {

struct Wave;
struct Step;

// Does an operation, and gives the next one; NULL when the wave's turn is over.
using Handler = const Step *(*)(Wave &wave, const Step &step);

enum OperandKind : u8 { kNone = 0, kVector = 1, kScalar = 2, kConstant = 3 };
enum Modifier : u8 { kNegate = 1, kAbsolute = 2, kHighHalf = 4, kLowByte = 8 };
enum Flag : u16 {
    kGlc = 1,
    kDlc = 2,
    kSlc = 4,
    kReturns = 8,
    kOffen = 16,
    kScope = 32,  // times 0 to 3
    kShortAddress = 128,
};

struct Operand {
    u8 kind, modifiers;
    u16 number;  // of the first register; of a constant: 1 if negative
    u32 value;   // of a constant; of registers: how many
};

struct Operation {
    u16 name, flags;
    i32 offset;
    u32 target, address;
    Operand destination, second, source[4];
};
static_assert(sizeof(Operation) == 64);

// Caches that a load does not look into: all below this level.
enum Level : u8 { kL0 = 0, kL1 = 1, kL2 = 2, kSystem = 3 };

// An operation whose meaning has been found.
struct Step : Operation {
    Handler run;
    u32 parameter;  // of the handler
    u8 level;       // of an access
};

enum ArgumentKind : u32 {
    kByValue = 0,
    kIgnored = 1,
    kBlockCount = 2,  // + dimension
    kGroupSize = 8,   // + dimension
    kGridDimensions = 16,
};

struct Argument {
    u32 offset, size, kind;
};

struct Kernel {
    std::string name;
    std::vector<Step> steps;
    std::vector<Argument> arguments;
    u32 kernarg_bytes, group_bytes, private_bytes, vgprs, rsrc2, properties;
    u32 family;  // 10, 11, 12
};

struct Program {
    std::string target;
    std::vector<std::unique_ptr<Kernel>> kernels;
    const Kernel *find(const std::string &name) const;
};

// NULL, with the reason, if the file is damaged or names instructions that nothing here executes.
std::unique_ptr<Program> load_program(const std::string &path, std::string &reason);

}  // namespace rdnasim
