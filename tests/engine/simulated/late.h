// The simulated device, late: what is queued on its streams runs only when the host waits for it, or
// by chance before, in an order drawn from a seed that the streams and events allow. Its memory is
// poisoned when it is made and used again as soon as a GPU's would be.
//
// Beside that it keeps who is ordered before whom, by vector clocks: each stream and each host
// thread counts what it knows of the others. A finding is
// - two operations on the same bytes, one of them a write, that nothing orders;
// - memory that is freed while an operation is pending that its own stream does not wait for, and an
//   operation on memory that is freed;
// - page-locked host memory that the host touches before the copy there, or from there, is done;
// - a thread that uses the device and has not made it its own.
// It names both places. Findings do not depend on the order that was drawn, nor on time.
//
// One per rank. A rank is a thread; its device is simulated::device() number `index`. Its port is the
// CPU's kernels and its attention the CPU's, so that numbers equal the CPU's bit for bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/collectives.h"
#include "engine/device/streams.h"

namespace dsj::simulated {

class LateQueues;

class Late {
 public:
  /// From now on the calling thread's device is this one. `index` below 8, one Late each.
  Late(int index, uint64_t seed);
  /// Waits for everything. No tensor of it may be left. On the thread that made it.
  ~Late();
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;

  at::Device device() const;
  /// The orders from now on.
  void reseed(uint64_t seed);
  /// From now on everything runs when it is queued, but for what waits for another rank.
  void run_at_once();
  /// Runs everything that is queued.
  void drain();

  // ---- counted, since forget_counts()
  /// How often the host waited for a stream because a copy, a value or a shape could not go on without it.
  int64_t stops() const;
  /// Copies to memory of the host.
  int64_t reads() const;
  /// How often the engine made the host wait for an event.
  int64_t host_waits() const;
  /// Of the times that the compute lane was made to wait for `lane`: the most operations of its own that
  /// may run beside what it waits for.
  int64_t beside(device::Lane lane) const;
  void forget_counts();

  /// So far, each place pair once.
  std::vector<std::string> findings() const;
  LateQueues& queues() { return *queues_; }

  // ---- planted faults, counted from here
  /// Leaves out the n-th time (from 0) that a stream is made to wait for an event, or the host is.
  void leave_out_wait(int64_t n);
  /// How many there were since.
  int64_t waits() const;
  /// What asked for the one that was left out.
  std::string left_out() const;

 private:
  std::unique_ptr<LateQueues> queues_;
};

/// Where ranks' collectives meet; outlives them.
class Meeting;
std::shared_ptr<Meeting> make_meeting(int world);
/// Operations with this sequence number and later ones find a peer that is gone: each rank's library reports
/// it, and they end when the library is aborted. Their memory then holds what was there before.
void lose_a_peer(Meeting& meeting, uint64_t from);
/// The engine's collectives of devices (comm/streamed.h) over `late`. World 1: comm/single.h's.
std::unique_ptr<comm::Collectives> join(std::shared_ptr<Meeting> meeting, Late& late, int rank,
                                        int world);

}  // namespace dsj::simulated
