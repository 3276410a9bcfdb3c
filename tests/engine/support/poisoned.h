// Collectives that put an infinity into a gradient on its way: an overflow where a test wants one,
// with nothing in the engine that knows.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"

namespace dsj::testing_support {

/// Hands everything on to `inner`. While armed, the next gradient of `unit` that is reduced carries
/// an infinity, at element `element` of its flat, on this rank.
class Poisoned final : public comm::Collectives {
 public:
  explicit Poisoned(comm::Collectives& inner)
      : Collectives(inner.rank(), inner.world(), at::kCPU), inner_(inner) {}

  void arm(std::string unit, int64_t element) {
    unit_ = std::move(unit);
    element_ = element;
  }

  std::string_view backend() const override { return inner_.backend(); }
  void shutdown() override { inner_.shutdown(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 protected:
  comm::WorkPtr issue(comm::Request request) override {
    operation_done();
    const comm::Label label{comm::Traffic::Gradients, request.unit};
    const auto& chunks = request.chunks;
    switch (request.kind) {
      case comm::Kind::AllGather:
        return inner_.all_gather(chunks, label);
      case comm::Kind::ReduceScatter:
        if (!unit_.empty() && request.unit == unit_) {
          poison(chunks);
          unit_.clear();
        }
        return inner_.reduce_scatter(chunks, request.op, label);
      case comm::Kind::AllReduce:
        return inner_.all_reduce(chunks[0].out, request.op, label);
      case comm::Kind::Broadcast:
        return inner_.broadcast(chunks[0].out, request.root, label);
      case comm::Kind::AllToAll:
        return inner_.all_to_all(chunks[0].out, chunks[0].in, label);
      case comm::Kind::Barrier:
        break;
    }
    return inner_.barrier(label);
  }

 private:
  void poison(const std::vector<comm::ChunkPair>& chunks) {
    int64_t left = element_;
    for (const auto& chunk : chunks) {
      if (left < chunk.in.numel()) {
        at::Tensor(chunk.in).view(-1)[left].fill_(INFINITY);
        return;
      }
      left -= chunk.in.numel();
    }
  }

  comm::Collectives& inner_;
  std::string unit_;
  int64_t element_ = 0;
};

}  // namespace dsj::testing_support
