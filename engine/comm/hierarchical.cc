// Collectives in two levels, for hosts with several ranks each: shared memory within a host, and a
// TCP ring between the ranks of one place on each host, which is called a rail here. Rank = host *
// each + place. A number crosses between two hosts once, along one rail.
//
// all_gather: a rail gathers the slices of its place; then each host shares what its rails brought,
// host by host. reduce_scatter: the same backwards. So sums are formed within a host first, in rank
// order and rounded once, and then along the rail's ring. all_reduce cuts its tensor into one part
// per place. No bytes are copied besides, but in all_to_all.
#include <algorithm>
#include <memory>

#include "engine/comm/backends.h"
#include "engine/comm/slice_transport.h"

namespace dsj::comm {
namespace {

constexpr std::size_t kTinyReduce = 16 << 10;  // bytes * world; below it every rail takes all

class Hierarchical final : public SliceTransport {
 public:
  Hierarchical(std::unique_ptr<SliceTransport> host, std::unique_ptr<SliceTransport> rail,
               const Topology& topology, int rank)
      : SliceTransport(topology.hosts * topology.each),
        host_(std::move(host)),
        rail_(std::move(rail)),
        hosts_(topology.hosts),
        each_(topology.each),
        place_(rank % topology.each) {}

  std::string_view name() const override { return "hierarchical"; }
  std::int64_t sent() const override { return rail_->sent(); }

  void begin(const Request& request, Clock::time_point deadline) override {
    rail_->begin(request, deadline);
    host_->begin(request, deadline);
  }

  void gather(const Slices& slices, std::span<const char> in) override {
    rail_->gather(of_rail(slices), in);
    for (int host = 0; host < hosts_; ++host) {
      host_->gather(of_host(slices, host), own(slices, host));
    }
  }

  void reduce(const Slices& slices, char* out, at::ScalarType dtype, Op op) override {
    for (int host = 0; host < hosts_; ++host) {
      host_->reduce(of_host(slices, host), own(slices, host).data(), dtype, op);
    }
    rail_->reduce(of_rail(slices), out, dtype, op);
  }

  void all_reduce(std::span<char> data, at::ScalarType dtype, Op op) override {
    if (data.size() * static_cast<std::size_t>(world()) <= kTinyReduce) {
      host_->all_reduce(data, dtype, op);
      return rail_->all_reduce(data, dtype, op);
    }
    const Slices parts = cut(data, each_, c10::elementSize(dtype));
    const std::span<char> part = parts[static_cast<std::size_t>(place_)];
    host_->reduce(parts, part.data(), dtype, op);
    // The part of a place is of one size on all hosts, so the whole rail skips an empty one.
    if (!part.empty()) rail_->all_reduce(part, dtype, op);
    host_->gather(parts, part);
  }

  void broadcast(std::span<char> data, int root) override {
    if (root % each_ == place_) rail_->broadcast(data, root / each_);
    host_->broadcast(data, root % each_);
  }

  /// A rank first gets from its host all that goes to its place on any host, then deals along the
  /// rail. Between the two, and behind them, slices lie by host and within it by place.
  void all_to_all(const Slices& out, const Slices& in) override {
    const std::size_t slice = in.front().size();
    std::vector<char> going(slice * in.size()), coming(going.size());
    const Slices from_host = cut(going, world(), slice), from_rail = cut(coming, world(), slice);
    for (int host = 0; host < hosts_; ++host) {
      host_->all_to_all(of_host(from_host, host), of_host(in, host));
    }
    const std::size_t block = slice * static_cast<std::size_t>(each_);
    rail_->all_to_all(cut(coming, hosts_, block), cut(going, hosts_, block));
    for (std::size_t rank = 0; rank < out.size(); ++rank) {
      std::ranges::copy(from_rail[rank], out[rank].begin());
    }
  }

  /// A rank comes through its host when all of that are here, and through its rail when each rank
  /// of it came through its own host.
  void meet() override {
    host_->meet();
    rail_->meet();
  }

  void interrupt() override {
    host_->interrupt();
    rail_->interrupt();
  }

  void leave(const std::string& reason) override {
    host_->leave(reason);
    rail_->leave(reason);
  }

 private:
  Slices of_host(const Slices& slices, int host) const {
    const auto first = slices.begin() + host * each_;
    return {first, first + each_};
  }
  std::span<char> own(const Slices& slices, int host) const {
    return slices[static_cast<std::size_t>(host * each_ + place_)];
  }
  Slices of_rail(const Slices& slices) const {
    Slices rail;
    for (int host = 0; host < hosts_; ++host) rail.push_back(own(slices, host));
    return rail;
  }

  const std::unique_ptr<SliceTransport> host_, rail_;
  const int hosts_, each_;
  const int place_;
};

/// Every rank's verdict about its host's memory, in one: the first problem.
std::string first_problem(const std::vector<std::string>& problems) {
  const auto found = std::ranges::find_if(problems, [](const auto& text) { return !text.empty(); });
  return found == problems.end() ? "" : *found;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_hierarchical(Rendezvous& rendezvous,
                                                     const Topology& topology) {
  const int rank = rendezvous.options().rank;
  std::vector<int> host, rail;
  for (int other = 0; other < rendezvous.options().world; ++other) {
    if (other / topology.each == rank / topology.each) host.push_back(other);
    if (other % topology.each == rank % topology.each) rail.push_back(other);
  }
  const auto of_host = rendezvous.part("host " + std::to_string(host.front()), host);
  auto memory = make_shm(*of_host);
  if (!memory && memory.error().kind != ErrorKind::Environment) {
    return std::unexpected(memory.error());
  }
  // One verdict for all: if one host cannot, none does.
  DSJ_TRY(const std::string problem,
          rendezvous.settle("levels", memory ? "" : memory.error().message, first_problem));
  if (!problem.empty()) return fail(ErrorKind::Environment, problem);
  const auto of_rail = rendezvous.part("rail " + std::to_string(rail.front()), rail);
  DSJ_TRY(std::unique_ptr<SliceTransport> ring, make_ring(*of_rail));
  return std::make_unique<Hierarchical>(std::move(*memory), std::move(ring), topology, rank);
}

}  // namespace dsj::comm
