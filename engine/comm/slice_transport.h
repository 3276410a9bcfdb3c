// A transport that moves slices, which may lie anywhere. What an operation does with its tensors is
// told here once; ring, shm and hierarchical move the slices. Internal to comm.
// Tested by: tests/engine/comm/contract_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/comm/slices.h"
#include "engine/comm/transport.h"

namespace dsj::comm {

/// Slices have whole elements, one per rank and in rank order. The first is the longest; others may
/// be shorter or empty, the same on all ranks. Each call is a collective, and throws as run() does.
class SliceTransport : public Transport {
 public:
  void run(const Request& request, Clock::time_point deadline) final;

  /// Before the moves of an operation. They may find that another rank is in another operation.
  virtual void begin(const Request& request, Clock::time_point deadline) = 0;
  /// Slice r becomes rank r's `in`, which may be its own slice.
  virtual void gather(const Slices& slices, std::span<const char> in) = 0;
  /// `out` = the sum (or maximum) over ranks of this rank's slice; it may be that slice. Overwrites
  /// all slices.
  virtual void reduce(const Slices& slices, char* out, at::ScalarType dtype, Op op) = 0;
  /// Every rank gets the same bits.
  virtual void all_reduce(std::span<char> data, at::ScalarType dtype, Op op) = 0;
  virtual void broadcast(std::span<char> data, int root) = 0;
  /// out[r] = the slice that rank r has for this rank. All slices are equal in size.
  virtual void all_to_all(const Slices& out, const Slices& in) = 0;
  /// Returns when all ranks are here.
  virtual void meet() = 0;

 protected:
  explicit SliceTransport(int world) : world_(world) {}
  int world() const { return world_; }

 private:
  void run_chunk(const Request& request, const ChunkPair& chunk);

  const int world_;
};

}  // namespace dsj::comm
