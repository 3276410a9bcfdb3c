#include "tests/engine/kernels/emulated/block.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/kernels/emulated/fiber.h"
#include "tests/engine/kernels/emulated/watch.h"

namespace dsj::emulated {
namespace {

constexpr int kWarp = 32, kThreadsMax = 1024;

enum class At { Ready, Barrier, Warp, Done };

struct Thread {
  Fiber* fiber = nullptr;
  Index index;
  int id = 0;
  At at = At::Done;
  std::source_location where;
  // of the warp operation it waits at
  uint32_t mask = 0;
  uint64_t value = 0, got = 0;
  int from = -1;
  uint16_t warp_epoch = 0;
};

std::string site(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

/// The launch that runs. There is one at a time.
class Runner {
 public:
  void launch(Index grid, Index block, std::size_t shared_bytes, void (*kernel)(const void*),
              const void* arguments);
  void stop(const std::string& what) {
    throw Fault("block " + std::to_string(number_) + ": " + what);
  }
  void give_up(std::string what) {
    fault_ = std::move(what);
    Fiber::leave();
  }

  Thread* current = nullptr;
  Index block_index, block_dim, grid_dim;
  Options options;
  Watch watch;
  std::vector<std::pair<void*, std::size_t>> arrays;
  std::vector<unsigned char> dynamic;
  uint32_t epoch = 0;

 private:
  static void body();
  void prepare();
  void run_block();
  bool run_ready();
  void release_barrier();
  void release_warp(const Thread& came);
  void finish_warp(const Thread& came);
  uint64_t draw(uint64_t below);

  std::deque<Fiber> fibers_;
  std::vector<Thread> threads_;
  std::vector<int> order_;
  void (*kernel_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  uint64_t number_ = 0;
  std::string fault_;
};

Runner& runner() {
  static Runner one;
  return one;
}

void Runner::body() {
  Runner& self = runner();
  self.kernel_(self.arguments_);
  self.current->at = At::Done;
}

uint64_t Runner::draw(uint64_t below) {
  options.seed = options.seed * 6364136223846793005u + 1442695040888963407u;
  return (options.seed >> 33) % below;
}

void Runner::prepare() {
  watch.begin_block(++epoch);
  for (const auto& [at, bytes] : arrays) std::memset(at, 0xff, bytes);
  if (!dynamic.empty()) std::memset(dynamic.data(), 0xff, dynamic.size());
  for (size_t i = 0; i < threads_.size(); ++i) {
    const auto id = static_cast<unsigned>(i);
    threads_[i] = {
        .fiber = &fibers_[i],
        .index = {id % block_dim.x, id / block_dim.x % block_dim.y, id / block_dim.x / block_dim.y},
        .id = static_cast<int>(i),
        .at = At::Ready};
    fibers_[i].start(body);
  }
}

/// Runs each thread that can go on. False: none could.
bool Runner::run_ready() {
  if (options.drawn) {
    for (size_t i = order_.size() - 1; i > 0; --i) std::swap(order_[i], order_[draw(i + 1)]);
  }
  bool ran = false;
  for (const int i : order_) {
    Thread& thread = threads_[i];
    if (thread.at != At::Ready) continue;
    current = &thread;
    thread.fiber->resume();
    current = nullptr;
    if (!fault_.empty()) stop(fault_);
    ran = true;
    if (thread.at == At::Warp) release_warp(thread);
  }
  return ran;
}

void Runner::run_block() {
  while (true) {
    if (run_ready()) continue;
    bool waiting = false;
    for (const Thread& thread : threads_) {
      if (thread.at == At::Warp) release_warp(thread);  // tells which lane is gone
      waiting |= thread.at == At::Barrier;
    }
    if (waiting) {
      release_barrier();
      continue;
    }
    for (const Thread& thread : threads_) {
      if (thread.at == At::Warp)
        stop("warp operation at " + site(thread.where) + ": a lane of its mask never comes");
    }
    return;
  }
}

/// No thread can go on and some wait for the block: all let go, or it is told why they cannot.
void Runner::release_barrier() {
  const Thread* first = nullptr;
  for (const Thread& thread : threads_) {
    if (!first && thread.at == At::Barrier) first = &thread;
  }
  const std::string waits = thread_name(first->id) + " waits at " + site(first->where);
  for (const Thread& thread : threads_) {
    if (thread.at == At::Done)
      stop("divergent barrier: " + thread_name(thread.id) + " has ended, " + waits);
    if (thread.at == At::Warp)
      stop("divergent barrier: " + thread_name(thread.id) + " waits for its warp at " +
           site(thread.where) + ", " + waits);
    if (!same_place(thread.where, first->where))
      stop("divergent barrier: " + thread_name(thread.id) + " waits at " + site(thread.where) +
           ", " + waits);
  }
  for (Thread& thread : threads_) thread.at = At::Ready;
  ++epoch;
}

/// Lets the warp operation go once all lanes of the mask are there.
void Runner::release_warp(const Thread& came) {
  const int base = came.id / kWarp * kWarp, count = static_cast<int>(threads_.size());
  for (int lane = 0; lane < kWarp; ++lane) {
    if (!(came.mask >> lane & 1)) continue;
    if (base + lane >= count || threads_[base + lane].at == At::Done)
      stop("warp operation at " + site(came.where) + ": lane " + std::to_string(lane) +
           " of its mask does not run");
    const Thread& other = threads_[base + lane];
    if (other.at != At::Warp) return;
    if (!same_place(other.where, came.where) || other.mask != came.mask)
      stop("warp operations at " + site(came.where) + " and " + site(other.where) +
           " meet in one warp");
  }
  finish_warp(came);
}

void Runner::finish_warp(const Thread& came) {
  const int base = came.id / kWarp * kWarp;
  const uint32_t mask = came.mask;
  for (int lane = 0; lane < kWarp; ++lane) {
    if (!(mask >> lane & 1)) continue;
    Thread& thread = threads_[base + lane];
    thread.at = At::Ready;
    if (thread.from < 0) {
      ++thread.warp_epoch;  // a shuffle orders no memory
      continue;
    }
    const bool outside = thread.from >= kWarp;
    if (!outside && !(mask >> thread.from & 1))
      stop("shuffle at " + site(thread.where) + ": " + thread_name(thread.id) + " reads lane " +
           std::to_string(thread.from) + ", which is not in its mask");
    thread.got = outside ? thread.value : threads_[base + thread.from].value;
  }
}

void Runner::launch(Index grid, Index block, std::size_t shared_bytes, void (*kernel)(const void*),
                    const void* arguments) {
  const uint64_t count = uint64_t{block.x} * block.y * block.z,
                 blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (count < 1 || count > kThreadsMax)
    throw Fault("a block of " + std::to_string(count) + " threads: 1 to 1024");
  if (blocks < 1 || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
    throw Fault("a grid that CUDA refuses");
  if (shared_bytes > 48 * 1024)
    throw Fault(std::to_string(shared_bytes) + " bytes of dynamic shared memory: up to 48 KiB");
  while (fibers_.size() < count) fibers_.emplace_back();
  threads_.assign(count, {});
  order_.resize(count);
  for (size_t i = 0; i < count; ++i) order_[i] = static_cast<int>(i);
  arrays.clear();
  dynamic.assign(shared_bytes, 0);
  watch.clear_shared();
  if (shared_bytes > 0) watch.add_shared(dynamic.data(), shared_bytes);
  kernel_ = kernel;
  arguments_ = arguments;
  fault_.clear();
  block_dim = block;
  grid_dim = grid;
  watch.begin_launch(epoch + 1);
  struct Clear {
    Runner& runner;
    ~Clear() { runner.current = nullptr; }
  } const clear{*this};
  for (number_ = 0; number_ < blocks; ++number_) {
    const auto x = static_cast<unsigned>(number_ % grid.x);
    const uint64_t rest = number_ / grid.x;
    block_index = {x, static_cast<unsigned>(rest % grid.y), static_cast<unsigned>(rest / grid.y)};
    prepare();
    run_block();
  }
}

}  // namespace

void set_options(Options options) {
  runner().options = options;
}
Index thread_index() {
  return runner().current->index;
}
Index block_index() {
  return runner().block_index;
}
Index block_dim() {
  return runner().block_dim;
}
Index grid_dim() {
  return runner().grid_dim;
}
int lane() {
  return runner().current->id % kWarp;
}

void barrier(std::source_location at) {
  Thread& self = *runner().current;
  self.at = At::Barrier;
  self.where = at;
  Fiber::leave();
}

uint64_t warp_exchange(uint32_t mask, uint64_t mine, int from, std::source_location at) {
  Thread& self = *runner().current;
  if (!(mask >> lane() & 1))
    runner().give_up("warp operation at " + site(at) + ": its mask does not name its caller");
  self.at = At::Warp;
  self.where = at;
  self.mask = mask;
  self.value = mine;
  self.from = from;
  Fiber::leave();
  return self.got;
}

void shared_array(void* at, std::size_t bytes) {
  if (!runner().watch.add_shared(at, bytes)) return;
  runner().arrays.emplace_back(at, bytes);
  std::memset(at, 0xff, bytes);
}

void* dynamic_shared() {
  return runner().dynamic.data();
}

void touched(uintptr_t at, std::size_t bytes, bool write) {
  Runner& one = runner();
  if (!one.current || one.current->fiber->has(at)) return;
  const Moment now{one.epoch, one.current->warp_epoch, static_cast<uint16_t>(one.current->id)};
  if (auto wrong = one.watch.touch(at, bytes, write, now)) one.give_up(std::move(*wrong));
}

namespace {
std::atomic<uint64_t> launched{0};
}
uint64_t launches() {
  return launched;
}

void launch(Index grid, Index block, std::size_t shared_bytes,
            void (*kernel)(const void* arguments), const void* arguments) {
  static std::mutex one_at_a_time;
  ++launched;
  const std::lock_guard lock(one_at_a_time);
  runner().launch(grid, block, shared_bytes, kernel, arguments);
}

}  // namespace dsj::emulated
