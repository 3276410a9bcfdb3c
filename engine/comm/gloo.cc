#include <atomic>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "engine/comm/backends.h"
#include "engine/comm/gathered_store.h"

namespace dsj::comm {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

/// Disables torch's recorder of collectives. It is global, and libtorch 2.11 writes its maps
/// without a lock: groups that start in parallel could crash a rank. The flight log (flight_log.h)
/// has the same facts. Set before any thread runs; the user's own value is kept.
[[maybe_unused]] const int kRecorderOff = setenv("TORCH_FR_BUFFER_SIZE", "0", 0);

c10d::ReduceOp reduce_op(Op op) {
  return op == Op::Sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
}

class Gloo final : public Transport {
 public:
  explicit Gloo(Group group) : group_(std::move(group)) {}

  std::string_view name() const override { return "gloo"; }

  void run(const Request& request, Clock::time_point deadline) override {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (const ChunkPair& chunk : request.chunks) works.push_back(launch(request, chunk));
    if (request.kind == Kind::Barrier) works.push_back(group_->barrier());
    for (const auto& work : works) finish(work, deadline);
  }

  void interrupt() override { interrupted_ = true; }

  // Gloo has no such message: peers see connections close, or time out.
  void leave(const std::string&) override {}

 private:
  c10::intrusive_ptr<c10d::Work> launch(const Request& request, const ChunkPair& chunk) {
    at::Tensor out = chunk.out.view(-1);
    at::Tensor in = chunk.in.view(-1);
    std::vector<at::Tensor> both{out};
    switch (request.kind) {
      case Kind::AllGather:
        return group_->_allgather_base(out, in);
      case Kind::ReduceScatter: {
        c10d::ReduceScatterOptions options;
        options.reduceOp = reduce_op(request.op);
        return group_->_reduce_scatter_base(out, in, options);
      }
      case Kind::AllReduce: {
        c10d::AllreduceOptions options;
        options.reduceOp = reduce_op(request.op);
        return group_->allreduce(both, options);
      }
      case Kind::Broadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = request.root;
        return group_->broadcast(both, options);
      }
      case Kind::AllToAll: {
        std::vector<int64_t> equal;  // empty: equal slices
        return group_->alltoall_base(out, in, equal, equal);
      }
      case Kind::Barrier:
        break;
    }
    throw TransportError("no chunk belongs to a barrier");
  }

  void finish(const c10::intrusive_ptr<c10d::Work>& work, Clock::time_point deadline) {
    try {
      work->wait();
    } catch (const std::exception& error) {
      const std::string line = brief(error);
      if (Clock::now() >= deadline || line.find("imed out") != std::string::npos) {
        throw TransportTimeout("in gloo: " + line);
      }
      throw TransportError("in gloo: " + line);
    }
    if (interrupted_) throw TransportError("interrupted");
  }

  std::atomic<bool> interrupted_ = false;
  const Group group_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_gloo(Rendezvous& rendezvous) {
  const Options& options = rendezvous.options();
  try {
    auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
    settings->devices = {
        c10d::ProcessGroupGloo::createDeviceForHostname(rendezvous.local_address())};
    // Gloo connects each pair of ranks and asks for every rank's address one by one.
    auto store = c10::make_intrusive<GatheredStore>("gloo", rendezvous);
    auto group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.world, settings);
    return std::make_unique<Gloo>(std::move(group));
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return fail(ErrorKind::Transient,
                "rank " + std::to_string(options.rank) +
                    ": gloo did not connect the ranks: " + text.substr(0, text.find('\n')));
  }
}

}  // namespace dsj::comm
