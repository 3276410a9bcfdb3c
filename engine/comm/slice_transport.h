// A transport that moves slices, which may be anywhere in memory. It translates operations on
// tensors into moves of slices, which ring, shm and hierarchical implement. Internal to comm.
// Tested by: tests/engine/comm/contract_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/comm/slices.h"
#include "engine/comm/transport.h"

namespace dsj::comm {

/// There is one slice per rank, in rank order, of whole elements. The first is the longest; others
/// may be shorter or empty, the same on all ranks. Each call is collective; throws as run().
class SliceTransport : public Transport {
 public:
  void run(const Request& request, Clock::time_point deadline) final;

  /// Called before an operation's moves. These may find that another rank runs another operation.
  virtual void begin(const Request& request, Clock::time_point deadline) = 0;
  /// Slice r = rank r's `in`, which may be its own slice.
  virtual void gather(const Slices& slices, std::span<const char> in) = 0;
  /// `out` = the sum (or maximum) over ranks of this rank's slice; it may be that slice. Overwrites
  /// all slices.
  virtual void reduce(const Slices& slices, char* out, at::ScalarType dtype, Op op) = 0;
  /// Every rank gets the same bits.
  virtual void all_reduce(std::span<char> data, at::ScalarType dtype, Op op) = 0;
  virtual void broadcast(std::span<char> data, int root) = 0;
  /// out[r] = rank r's slice for this rank. All slices have equal sizes.
  virtual void all_to_all(const Slices& out, const Slices& in) = 0;
  /// Returns when all ranks have called it.
  virtual void meet() = 0;

 protected:
  explicit SliceTransport(int world) : world_(world) {}
  int world() const { return world_; }

 private:
  void run_chunk(const Request& request, const ChunkPair& chunk);

  const int world_;
};

}  // namespace dsj::comm
