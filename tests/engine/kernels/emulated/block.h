// A grid of CUDA threads on a CPU. Blocks run one after another; the threads of a block are fibers
// that take turns. Barriers, warp operations and shared memory behave as CUDA defines them, and
// what CUDA leaves undefined is a Fault:
//   - threads of a block at different barriers, or one that ends while others wait;
//   - a warp operation whose mask names a lane that does not come, or that does not name its caller;
//   - with the memory watch (watch.h): races, accesses outside of every buffer, shared memory that is
//     read before it is written.
// Out of reach: the memory model's reordering, the order of blocks, fast-math's rounding, speed.
// Shared memory holds NaN until it is written. Kernels reach this through emulated_gpu.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <stdexcept>

namespace dsj::emulated {

struct Index {
  unsigned x = 1, y = 1, z = 1;
};

/// What is wrong with a kernel, with threads, block and source line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Which thread goes next. A result that differs between orders is a race that nothing else found.
struct Options {
  bool drawn = false;  ///< false: threads in turn; true: by a draw from `seed`
  uint64_t seed = 1;
};
void set_options(Options options);

/// Of the running thread and its launch. By value: the memory watch sees what a kernel reads.
Index thread_index();
Index block_index();
Index block_dim();
Index grid_dim();
int lane();

/// Waits for all threads of the block.
void barrier(std::source_location at);
/// Waits for the lanes of `mask`. `from` >= 0: a shuffle, which returns that lane's `mine`, or the
/// caller's own where `from` is outside of the warp.
uint64_t warp_exchange(uint32_t mask, uint64_t mine, int from, std::source_location at);

/// A static array of the kernel is shared memory. Called by each thread that reaches it.
void shared_array(void* at, std::size_t bytes);
void* dynamic_shared();

/// Runs kernel(arguments) for every thread of the grid. Throws Fault. One launch at a time: others
/// wait.
void launch(Index grid, Index block, std::size_t shared_bytes,
            void (*kernel)(const void* arguments), const void* arguments);
/// How many launches there have been.
uint64_t launches();

}  // namespace dsj::emulated
