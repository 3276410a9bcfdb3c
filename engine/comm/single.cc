#include "engine/comm/single.h"

#include "common/check.h"
#include "engine/comm/transport.h"
#include "engine/device/lanes.h"

namespace dsj::comm {
namespace {

/// Done when the issuing lane's work is done, as with other ranks.
struct LaneWork final : Work {
  explicit LaneWork(device::Streams& streams)
      : streams(streams), mark(streams.record(streams.current())) {}
  void wait() override { streams.hold(streams.current(), *mark); }
  bool done() override { return streams.reached(*mark); }
  device::Streams& streams;
  const device::MarkPtr mark;
};

struct FailedWork final : Work {
  explicit FailedWork(CollectiveError error) : error(std::move(error)) {}
  void wait() override { throw error; }
  bool done() override { return true; }
  const CollectiveError error;
};

class Single final : public Collectives {
 public:
  explicit Single(at::Device device)
      : Collectives(0, 1, device), streams_(device::streams(device)) {}
  std::string_view backend() const override { return "single"; }
  void shutdown() override {
    streams_.drain();
    closed_ = true;
  }
  void abort(const std::string& reason) override { aborted_ = reason; }

 protected:
  WorkPtr issue(Request request) override {
    DSJ_CHECK(!closed_, "%s was issued after shutdown", name_of(request.kind));
    operation_done();
    if (!aborted_.empty()) {
      return std::make_shared<FailedWork>(CollectiveError({.rank = world_rank(),
                                                           .kind = request.kind,
                                                           .sequence = request.sequence,
                                                           .unit = request.unit,
                                                           .group = group(),
                                                           .reason = aborted_}));
    }
    for (const ChunkPair& chunk : request.chunks) {
      if (chunk.out.numel() != 0 && chunk.out.const_data_ptr() != chunk.in.const_data_ptr()) {
        chunk.out.view(-1).copy_(chunk.in.view(-1));
      }
    }
    return std::make_shared<LaneWork>(streams_);
  }

 private:
  device::Streams& streams_;
  bool closed_ = false;
  std::string aborted_;
};

}  // namespace

std::unique_ptr<Collectives> make_single(at::Device device) {
  auto group = std::make_unique<Single>(device);
  // A split of a split is the same rank of the world.
  group->split_by(
      [device, self = group.get()](const Part& part) -> Result<std::unique_ptr<Collectives>> {
        if (part.colour < 0) return std::unique_ptr<Collectives>();
        auto alone = make_single(device);
        alone->is_part(part.name, {self->world_rank()});
        return alone;
      });
  return group;
}

}  // namespace dsj::comm
