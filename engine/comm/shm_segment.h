// The memory that ranks on one host share, and how they wait on it. Internal to comm.
//
// It is a memfd of rank 0. It has no name in a file system, so kill -9 leaves nothing behind and
// the limit of /dev/shm does not apply. Ranks detect a peer's death by its pidfd.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.h"
#include "engine/comm/fd.h"
#include "engine/comm/frame.h"
#include "engine/comm/rendezvous.h"

namespace dsj::comm {

/// A number that only increases (modulo 2^32). Other processes can sleep on it.
struct alignas(64) Counter {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> sleepers;

  bool reached(std::uint32_t target) const {
    return static_cast<std::int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
  void publish(std::uint32_t now);  ///< also wakes the sleepers
  void wake();
  /// Sleeps until the value differs from `seen`, at most for `time`. May wake early.
  void sleep(std::uint32_t seen, std::chrono::milliseconds time);
};

/// One rank's state, as the others read it.
struct RankBlock {
  Counter produced;  ///< rounds for which this rank has filled its slot
  Counter consumed;  ///< rounds for which it has read all ranks' slots
  alignas(64) std::atomic<std::uint32_t> left;
  std::atomic<std::uint64_t> sequence;  ///< of its current or last operation
  char reason[232];                     ///< written before `left`
};

/// One rank's data in one round.
struct Slot {
  static constexpr std::size_t kBytes = 256 << 10;
  Frame frame;
  alignas(64) char data[kBytes];
};

/// Equal on two ranks if they share a kernel and see each other's process ids; "-" if unknown.
std::string host_identity();

class ShmSegment {
 public:
  static constexpr std::uint32_t kSlots = 4;  ///< rounds that a rank may be ahead of the slowest

  /// Collective. Errors: as make_shm.
  static Result<std::unique_ptr<ShmSegment>> open(Rendezvous& rendezvous);
  ~ShmSegment();

  RankBlock& block(int rank) const;
  Slot& slot(int rank, std::uint32_t round) const;
  /// Whether that rank's process is running.
  bool alive(int rank) const;

 private:
  ShmSegment(int world, char* memory) : world_(world), memory_(memory) {}
  static Result<std::unique_ptr<ShmSegment>> map(const Fd& fd, int world);

  const int world_;
  char* const memory_;
  std::vector<Fd> processes_;  ///< pidfds by rank
};

}  // namespace dsj::comm
