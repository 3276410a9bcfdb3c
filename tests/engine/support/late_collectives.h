// Collectives whose operations end only when they are waited for, however fast the ranks were: what
// is under way is then a matter of the program, not of time.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"

namespace dsj::testing_support {

/// `inner` outlives it. Chunked operations only (no broadcast, no barrier).
class LateCollectives final : public comm::Collectives {
 public:
  explicit LateCollectives(comm::Collectives& inner)
      : Collectives(inner.rank(), inner.world(), at::kCPU), inner_(inner) {}

  std::string_view backend() const override { return inner_.backend(); }
  void shutdown() override {}
  void abort(const std::string& reason) override { inner_.abort(reason); }

 protected:
  comm::WorkPtr issue(comm::Request request) override {
    const comm::Label label{comm::Traffic::Control, request.unit};
    comm::WorkPtr begun;
    if (request.kind == comm::Kind::AllGather) {
      begun = inner_.all_gather(std::span<const comm::ChunkPair>(request.chunks), label);
    } else if (request.kind == comm::Kind::ReduceScatter) {
      begun = inner_.reduce_scatter(std::span<const comm::ChunkPair>(request.chunks), request.op,
                                    label);
    } else {
      DSJ_CHECK(request.kind == comm::Kind::AllReduce, "%s is not made late",
                name_of(request.kind));
      begun = inner_.all_reduce(request.chunks[0].in, request.op, label);
    }
    operation_done();
    return std::make_shared<LateWork>(std::move(request), std::move(begun));
  }

 private:
  class LateWork final : public comm::Work {
   public:
    LateWork(comm::Request request, comm::WorkPtr begun)
        : request_(std::move(request)), begun_(std::move(begun)) {}
    void wait() override {
      begun_->wait();
      request_.chunks.clear();
    }
    bool done() override { return request_.chunks.empty(); }

   private:
    comm::Request request_;  ///< holds the tensors
    comm::WorkPtr begun_;
  };

  comm::Collectives& inner_;
};

}  // namespace dsj::testing_support
