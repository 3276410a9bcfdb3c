#include "tests/engine/kernels/emulated/fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/// Saves what a call must keep, leaves the old top of the stack in *save and goes on at `load`.
extern "C" void dsj_emulated_switch(void** save, void* load);
asm(R"(.text
.globl dsj_emulated_switch
.type dsj_emulated_switch,@function
dsj_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size dsj_emulated_switch,.-dsj_emulated_switch
)");

namespace dsj::emulated {
namespace {

constexpr std::size_t kGuard =
    4096;  // below the stack: an overflow ends in a fault, not in silence

/// Where resume() was called.
struct Outside {
  void* top = nullptr;
  void* fake = nullptr;
  const void* bottom = nullptr;
  std::size_t size = 0;
} outside;
Fiber* running = nullptr;

}  // namespace

Fiber::Fiber() {
  void* memory =
      mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuard, PROT_NONE);
  stack_ = static_cast<char*>(memory) + kGuard;
}

Fiber::~Fiber() {
  munmap(stack_ - kGuard, kGuard + kStack);
}

void Fiber::start(void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  if (!ended_) __asan_unpoison_memory_region(stack_, kStack);  // frames that were given up
#endif
  ended_ = false;
  entry_ = entry;
  fake_ = nullptr;
  // enter() finds the stack as a call leaves it: its return address, on 16 bytes less 8.
  void** top = reinterpret_cast<void**>(stack_ + kStack) - 2;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::enter);
  top_ = top - 6;
}

void Fiber::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &outside.bottom, &outside.size);
#endif
  running->entry_();
  leave(/*last=*/true);
  std::abort();
}

void Fiber::resume() {
  running = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&outside.fake, stack_, kStack);
#endif
  dsj_emulated_switch(&outside.top, top_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(outside.fake, nullptr, nullptr);
#endif
}

void Fiber::leave(bool last) {
  Fiber& self = *running;
  self.ended_ = last;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &self.fake_, outside.bottom, outside.size);
#endif
  dsj_emulated_switch(&self.top_, outside.top);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self.fake_, &outside.bottom, &outside.size);
#endif
}

}  // namespace dsj::emulated
