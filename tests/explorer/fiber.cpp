// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <cstdlib>

namespace explorer {

namespace {
jmp_buf main_stack;
Fiber *beginning;  // for entry(), which takes no pointer
}  // namespace

void Fiber::prepare(Body body, void *argument, uint32_t id) {
    stack_ = std::make_unique<char[]>(kStackBytes);
    body_ = body;
    argument_ = argument;
    id_ = id;
}

void Fiber::entry() {
    Fiber &self = *beginning;
    for (;;) self.body_(self.argument_, self.id_);  // the body hands over when it has ended
}

void Fiber::jump() {
    if (begun_) _longjmp(at_, 1);
    begun_ = true;
    beginning = this;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
    setcontext(&context);
    abort();
}

void Fiber::enter_from_main() {
    if (_setjmp(main_stack) == 0) jump();
}

void Fiber::hand_over(Fiber &from, Fiber &to) {
    if (_setjmp(from.at_) == 0) to.jump();
}

void Fiber::leave_to_main(Fiber &from) {
    if (_setjmp(from.at_) == 0) _longjmp(main_stack, 1);
}

}  // namespace explorer
