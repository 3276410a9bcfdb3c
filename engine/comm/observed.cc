#include "engine/comm/observed.h"

#include <utility>

#include "engine/comm/transport.h"
#include "engine/device/lanes.h"

namespace dsj::comm {
namespace {

/// The work of an operation for which issue() has already waited.
class DoneWork final : public Work {
 public:
  void wait() override {}
  bool done() override { return true; }
};

std::int64_t message_bytes(const Request& request) {
  std::int64_t bytes = 0;
  for (const ChunkPair& chunk : request.chunks) {
    bytes += static_cast<std::int64_t>(chunk.in.nbytes());
  }
  return bytes;
}

class Observed final : public Collectives {
 public:
  Observed(std::unique_ptr<Collectives> inner, CallObserver observer, at::Device device)
      : Collectives(inner->rank(), inner->world(), device),
        inner_(std::move(inner)),
        observer_(std::move(observer)),
        device_(device) {
    is_part(inner_->group(), inner_->world_ranks());
    split_by([this](const Part& part) -> Result<std::unique_ptr<Collectives>> {
      DSJ_TRY(auto group, inner_->split(part));
      return group ? observed(std::move(group), observer_, device_) : nullptr;
    });
  }

  std::string_view backend() const override { return inner_->backend(); }
  std::int64_t socket_bytes() const override { return inner_->socket_bytes(); }
  void shutdown() override { inner_->shutdown(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 protected:
  WorkPtr issue(Request request) override {
    Call call{.kind = request.kind, .unit = request.unit, .bytes = message_bytes(request)};
    const auto start = Clock::now();
    const WorkPtr work = hand_on(request);
    work->wait();
    device::streams(device_).drain();  // on a device wait() blocks only the lane
    work->wait();
    call.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    operation_done();
    observer_(call);
    return std::make_shared<DoneWork>();
  }

 private:
  WorkPtr hand_on(const Request& request) {
    const Label label{Traffic::Control, request.unit};  // the outer object counts traffic
    switch (request.kind) {
      case Kind::AllGather:
        return inner_->all_gather(std::span<const ChunkPair>(request.chunks), label);
      case Kind::ReduceScatter:
        return inner_->reduce_scatter(std::span<const ChunkPair>(request.chunks), request.op,
                                      label);
      case Kind::AllReduce:
        return inner_->all_reduce(request.chunks[0].in, request.op, label);
      case Kind::Broadcast:
        return inner_->broadcast(request.chunks[0].in, request.root, label);
      case Kind::AllToAll:
        return inner_->all_to_all(request.chunks[0].out, request.chunks[0].in, label);
      case Kind::Barrier:
        break;
    }
    return inner_->barrier(label);
  }

  std::unique_ptr<Collectives> inner_;
  CallObserver observer_;
  const at::Device device_;
};

}  // namespace

std::unique_ptr<Collectives> observed(std::unique_ptr<Collectives> inner, CallObserver observer,
                                      at::Device device) {
  return std::make_unique<Observed>(std::move(inner), std::move(observer), device);
}

}  // namespace dsj::comm
