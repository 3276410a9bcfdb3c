// Collectives in two levels, for hosts with several ranks each: shared memory within a host, and a
// TCP ring, called a rail, between the ranks with the same local rank on each host. Rank = host *
// each + local rank. A number crosses between two hosts once, along one rail.
//
// all_gather: a rail gathers the slices of its ranks; then each host shares what its rails
// received, host by host. reduce_scatter: the reverse. So sums are formed within a host first, in
// rank order and rounded once, and then along the rail's ring. all_reduce cuts its tensor into one
// part per local rank. Only all_to_all copies bytes in addition.
//
// Each level records its parts of an operation in the flight log, as a group of its own. The log
// then shows in which level a rank is, and which rank of its host or rail did not come.
#include <algorithm>
#include <memory>
#include <utility>

#include "engine/comm/backends.h"
#include "engine/comm/slice_transport.h"
#include "job/flight_log.h"

namespace dsj::comm {
namespace {

constexpr std::size_t kTinyRailReduce = 16 << 10;  // bytes * world; below it each rail reduces all

/// One level: the ranks of this rank's host, or of its rail, and their parts of operations.
class Level {
 public:
  Level(std::unique_ptr<SliceTransport> transport, std::shared_ptr<FlightLog> flight)
      : flight_(std::move(flight)), transport_(std::move(transport)) {}
  SliceTransport* operator->() const { return transport_.get(); }

  /// Records one part in the flight log until the end of the scope.
  class Part {
   public:
    Part(Level& level, std::string_view kind, std::string_view unit, std::size_t bytes)
        : flight_(level.flight_.get()) {
      if (flight_) flight_->issued(++level.parts_, kind, unit, static_cast<std::int64_t>(bytes));
    }
    ~Part() {
      if (flight_) flight_->ended();
    }
    Part(const Part&) = delete;

   private:
    FlightLog* const flight_;
  };

 private:
  std::shared_ptr<FlightLog> flight_;
  std::unique_ptr<SliceTransport> transport_;
  std::uint64_t parts_ = 0;
};

std::size_t total_of(const Slices& slices) {
  std::size_t bytes = 0;
  for (const std::span<char> slice : slices) bytes += slice.size();
  return bytes;
}

class Hierarchical final : public SliceTransport {
 public:
  Hierarchical(Level host, Level rail, const Topology& topology, int rank)
      : SliceTransport(topology.hosts * topology.each),
        host_(std::move(host)),
        rail_(std::move(rail)),
        hosts_(topology.hosts),
        each_(topology.each),
        local_rank_(rank % topology.each) {}

  std::string_view name() const override { return "hierarchical"; }
  std::int64_t sent() const override { return rail_->sent(); }

  void begin(const Request& request, Clock::time_point deadline) override {
    unit_ = request.unit;
    const Level::Part part(rail_, "begin", unit_, 0);
    rail_->begin(request, deadline);
    host_->begin(request, deadline);
  }

  void gather(const Slices& slices, std::span<const char> in) override {
    gather_in_rail(of_rail(slices), in);
    const Level::Part part(host_, name_of(Kind::AllGather), unit_, total_of(slices));
    for (int host = 0; host < hosts_; ++host) {
      host_->gather(of_host(slices, host), own(slices, host));
    }
  }

  void reduce(const Slices& slices, char* out, at::ScalarType dtype, Op op) override {
    reduce_in_host(slices, dtype, op);
    const Slices rail = of_rail(slices);
    const Level::Part part(rail_, name_of(Kind::ReduceScatter), unit_, total_of(rail));
    rail_->reduce(rail, out, dtype, op);
  }

  void all_reduce(std::span<char> data, at::ScalarType dtype, Op op) override {
    if (data.size() * static_cast<std::size_t>(world()) <= kTinyRailReduce) {
      reduce_all(host_, data, dtype, op);
      return reduce_all(rail_, data, dtype, op);
    }
    const Slices parts = cut(data, each_, c10::elementSize(dtype));
    const std::span<char> mine = parts[static_cast<std::size_t>(local_rank_)];
    {
      const Level::Part part(host_, name_of(Kind::ReduceScatter), unit_, data.size());
      host_->reduce(parts, mine.data(), dtype, op);
    }
    // A local rank's part has the same size on all hosts, so the whole rail skips an empty one.
    if (!mine.empty()) reduce_all(rail_, mine, dtype, op);
    const Level::Part part(host_, name_of(Kind::AllGather), unit_, data.size());
    host_->gather(parts, mine);
  }

  void broadcast(std::span<char> data, int root) override {
    if (root % each_ == local_rank_) {
      const Level::Part part(rail_, name_of(Kind::Broadcast), unit_, data.size());
      rail_->broadcast(data, root / each_);
    }
    const Level::Part part(host_, name_of(Kind::Broadcast), unit_, data.size());
    host_->broadcast(data, root % each_);
  }

  /// Each rank first gets from its host all data for its local rank on any host, then exchanges it
  /// along the rail. Between and after the steps, slices are ordered by host, then local rank.
  void all_to_all(const Slices& out, const Slices& in) override {
    const std::size_t slice = in.front().size();
    std::vector<char> going(slice * in.size()), coming(going.size());
    const Slices from_host = cut(going, world(), slice), from_rail = cut(coming, world(), slice);
    {
      const Level::Part part(host_, name_of(Kind::AllToAll), unit_, going.size());
      for (int host = 0; host < hosts_; ++host) {
        host_->all_to_all(of_host(from_host, host), of_host(in, host));
      }
    }
    const Level::Part part(rail_, name_of(Kind::AllToAll), unit_, going.size());
    const std::size_t block = slice * static_cast<std::size_t>(each_);
    rail_->all_to_all(cut(coming, hosts_, block), cut(going, hosts_, block));
    for (std::size_t rank = 0; rank < out.size(); ++rank) {
      std::ranges::copy(from_rail[rank], out[rank].begin());
    }
  }

  /// A rank passes its host when all ranks of the host are there, and its rail when each rank of
  /// the rail has passed its own host.
  void meet() override {
    meet_in(host_);
    meet_in(rail_);
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
  void gather_in_rail(const Slices& slices, std::span<const char> in) {
    const Level::Part part(rail_, name_of(Kind::AllGather), unit_, total_of(slices));
    rail_->gather(slices, in);
  }
  void reduce_in_host(const Slices& slices, at::ScalarType dtype, Op op) {
    const Level::Part part(host_, name_of(Kind::ReduceScatter), unit_, total_of(slices));
    for (int host = 0; host < hosts_; ++host) {
      host_->reduce(of_host(slices, host), own(slices, host).data(), dtype, op);
    }
  }
  void reduce_all(Level& level, std::span<char> data, at::ScalarType dtype, Op op) {
    const Level::Part part(level, name_of(Kind::AllReduce), unit_, data.size());
    level->all_reduce(data, dtype, op);
  }
  void meet_in(Level& level) {
    const Level::Part part(level, name_of(Kind::Barrier), unit_, 0);
    level->meet();
  }

  Slices of_host(const Slices& slices, int host) const {
    const auto first = slices.begin() + host * each_;
    return {first, first + each_};
  }
  std::span<char> own(const Slices& slices, int host) const {
    return slices[static_cast<std::size_t>(host * each_ + local_rank_)];
  }
  Slices of_rail(const Slices& slices) const {
    Slices rail;
    for (int host = 0; host < hosts_; ++host) rail.push_back(own(slices, host));
    return rail;
  }

  Level host_, rail_;
  const int hosts_, each_;
  const int local_rank_;
  std::string unit_;  // of the current operation
};

}  // namespace

Result<std::unique_ptr<Transport>> make_hierarchical(Rendezvous& rendezvous,
                                                     const Topology& topology) {
  const int rank = rendezvous.options().rank;
  std::vector<int> host, rail;
  for (int other = 0; other < rendezvous.options().world; ++other) {
    if (other / topology.each == rank / topology.each) host.push_back(other);
    if (other % topology.each == rank % topology.each) rail.push_back(other);
  }
  const std::string host_name = "host " + std::to_string(rendezvous.name(host.front()));
  const auto of_host =
      rendezvous.part("host " + std::to_string(host.front()), host, host_name, true);
  auto memory = make_shm(*of_host);
  if (!memory && memory.error().kind != ErrorKind::Environment) {
    return std::unexpected(memory.error());
  }
  // One verdict for all ranks: if one host cannot share memory, all fail.
  DSJ_TRY(const std::string problem,
          rendezvous.settle("levels", memory ? "" : memory.error().message, first_problem));
  if (!problem.empty()) return fail(ErrorKind::Environment, problem);
  const std::string rail_name = "rail " + std::to_string(rendezvous.name(rail.front()));
  const auto of_rail =
      rendezvous.part("rail " + std::to_string(rail.front()), rail, rail_name, true);
  DSJ_TRY(std::unique_ptr<SliceTransport> ring, make_ring(*of_rail));
  return std::make_unique<Hierarchical>(Level(std::move(*memory), of_host->flight()),
                                        Level(std::move(ring), of_rail->flight()), topology, rank);
}

}  // namespace dsj::comm
