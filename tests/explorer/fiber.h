// SPDX-License-Identifier: Apache-2.0
// A fiber: a stack that runs one thread of one block, switched to and from in nanoseconds.
//
// ucontext makes the stack; _setjmp and _longjmp switch, since swapcontext() asks the kernel for the
// signal mask each time. A fiber that has ended waits on its stack for the next body, so that a
// schedule costs no set-up; one that is abandoned in the middle is begun anew.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <memory>

namespace explorer {

class Fiber {
public:
    using Body = void (*)(void *argument, uint32_t id);

    void prepare(Body body, void *argument, uint32_t id);
    void abandon() { begun_ = false; }  // its next turn begins the body anew

    // Switches to a fiber: from the main stack, and from one fiber to another.
    void enter_from_main();
    static void hand_over(Fiber &from, Fiber &to);
    // Switches back to enter_from_main().
    static void leave_to_main(Fiber &from);

private:
    static void entry();
    [[noreturn]] void jump();

    static constexpr size_t kStackBytes = 64 << 10;
    std::unique_ptr<char[]> stack_;
    Body body_ = nullptr;
    void *argument_ = nullptr;
    uint32_t id_ = 0;
    bool begun_ = false;
    jmp_buf at_;
};

}  // namespace explorer
