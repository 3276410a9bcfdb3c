// The engine's CPU allocator: it counts live bytes by class and reuses freed pages.
//
// After install() every CPU tensor of the process is allocated here. Class and ledger are those of
// the allocating thread's innermost MemoryScope. Freeing, on any thread, subtracts the bytes from
// the ledger that counted them. Blocks of 1 MiB and more are in a heap that keeps their pages for
// the next step (engine/memory/page_heap.h). Kept pages of freed blocks are not live.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace dsj::memory {

enum class Class {
  Parameters,   ///< working copies: whole, gathered or 16-bit shards
  Gradients,    ///< whole or sharded
  Optimizer,    ///< fp32 masters and moments
  Buckets,      ///< communication and conversion scratch
  Activations,  ///< everything else; the default
  Host,         ///< state offloaded to host memory; staging for state in files
};
inline constexpr int kClassCount = 6;
const char* name_of(Class klass);

/// Live and peak bytes by class. Any thread.
class Ledger {
 public:
  int64_t live(Class klass) const { return live_[static_cast<int>(klass)]; }
  int64_t peak(Class klass) const { return peak_[static_cast<int>(klass)]; }
  int64_t live() const { return total_; }
  int64_t peak() const { return total_peak_; }
  /// Sets the peaks to the current live bytes.
  void reset_peaks();

  void add(Class klass, int64_t bytes);  ///< negative if freed

 private:
  std::array<std::atomic<int64_t>, kClassCount> live_{}, peak_{};
  std::atomic<int64_t> total_{0}, total_peak_{0};
};

/// The process's ledger. A scope may have another one.
Ledger& process_ledger();

/// While the scope lives, tensors that this thread allocates belong to `klass`.
class MemoryScope {
 public:
  explicit MemoryScope(Class klass);
  /// Also switches the ledger. In tests, ranks are threads with a ledger each.
  MemoryScope(Class klass, Ledger& ledger);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  Class class_;
  Ledger* ledger_;
};
/// The ledger and the class of the calling thread's innermost scope.
Ledger& current_ledger();
Class current_class();

/// Makes this the process's CPU allocator. Idempotent. Call it before the first tensor.
void install();
/// The maximum bytes of freed large blocks whose pages are kept. Default 1 GiB.
void set_kept_limit(int64_t bytes);

}  // namespace dsj::memory
