#include "engine/comm/collectives.h"

#include <algorithm>
#include <cstdio>

#include "common/check.h"
#include "job/flight_log.h"

namespace dsj::comm {
namespace {

bool dtype_is_supported(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf ||
         dtype == at::kDouble || dtype == at::kLong;
}

void check_tensor(const at::Tensor& tensor, at::Device device, const char* name) {
  DSJ_CHECK(tensor.defined(), "%s is not defined", name);
  DSJ_CHECK(tensor.is_contiguous(), "%s is not contiguous", name);
  DSJ_CHECK(tensor.device().type() == device.type(), "%s is not on the group's device", name);
  DSJ_CHECK(dtype_is_supported(tensor.scalar_type()), "%s has dtype %s", name,
            at::toString(tensor.scalar_type()));
  DSJ_CHECK(!tensor.requires_grad(), "%s requires grad: pass it detached", name);
}

/// Checks `whole` [world * n] against `slice` [n]. Only whole's own slice may overlap it.
void check_pair(const at::Tensor& whole, const at::Tensor& slice, int rank, int world,
                at::Device device, const char* whole_name, const char* slice_name) {
  check_tensor(whole, device, whole_name);
  check_tensor(slice, device, slice_name);
  DSJ_CHECK(whole.scalar_type() == slice.scalar_type(), "in and out differ in dtype");
  DSJ_CHECK(whole.numel() == slice.numel() * world, "%s has %lld elements, %s %lld, world %d",
            whole_name, static_cast<long long>(whole.numel()), slice_name,
            static_cast<long long>(slice.numel()), world);
  if (slice.numel() == 0) return;
  const auto* begin = static_cast<const char*>(whole.const_data_ptr());
  const auto* part = static_cast<const char*>(slice.const_data_ptr());
  const bool apart = part + slice.nbytes() <= begin || begin + whole.nbytes() <= part;
  DSJ_CHECK(apart || part == begin + slice.nbytes() * rank,
            "%s overlaps %s, but is not its slice %d", slice_name, whole_name, rank);
}

struct Volume {
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
};

/// What one rank sends, by the formulas of Counters.
Volume ring_volume(Kind kind, const ChunkPair& chunk, int world) {
  const auto volume = [&](const at::Tensor& whole, int times) {
    const std::int64_t elements = whole.numel() * times * (world - 1) / world;
    return Volume{elements, elements * static_cast<std::int64_t>(whole.element_size())};
  };
  switch (kind) {
    case Kind::AllGather:
    case Kind::Broadcast:
      return volume(chunk.out, 1);
    case Kind::ReduceScatter:
    case Kind::AllToAll:
      return volume(chunk.in, 1);
    case Kind::AllReduce:
      return volume(chunk.out, 2);
    case Kind::Barrier:
      break;
  }
  return {};
}

std::int64_t whole_bytes(const Request& request) {
  std::int64_t bytes = 0;
  for (const ChunkPair& chunk : request.chunks) {
    bytes += static_cast<std::int64_t>(std::max(chunk.out.nbytes(), chunk.in.nbytes()));
  }
  return bytes;
}

std::string describe(const CollectiveError::Facts& facts) {
  std::string text = "rank " + std::to_string(facts.rank) + ": " + name_of(facts.kind) + " #" +
                     std::to_string(facts.sequence);
  if (!facts.group.empty()) text += " of group " + facts.group;
  if (!facts.unit.empty()) text += " (" + facts.unit + ")";
  return text + " " + facts.reason;
}

}  // namespace

const char* name_of(Traffic traffic) {
  constexpr std::array names{"gradients", "parameters", "moments", "heads", "control"};
  return names[static_cast<std::size_t>(traffic)];
}

const char* name_of(Kind kind) {
  constexpr std::array names{"all_gather", "reduce_scatter", "all_reduce",
                             "broadcast",  "barrier",        "all_to_all"};
  return names[static_cast<std::size_t>(kind)];
}

CollectiveError::CollectiveError(Facts facts)
    : std::runtime_error(describe(facts)), facts_(std::move(facts)) {}

std::int64_t Counters::bytes() const {
  std::int64_t sum = 0;
  for (const Cell& cell : by_traffic) sum += cell.bytes;
  return sum;
}

Collectives::Collectives(int rank, int world, at::Device device)
    : rank_(rank), world_(world), device_(device) {
  DSJ_CHECK(world >= 1 && rank >= 0 && rank < world, "rank %d of %d", rank, world);
}

WorkPtr Collectives::all_gather(at::Tensor out, at::Tensor in, Label label) {
  const ChunkPair chunk{std::move(out), std::move(in)};
  return all_gather(std::span(&chunk, 1), label);
}

WorkPtr Collectives::all_gather(std::span<const ChunkPair> chunks, Label label) {
  for (const ChunkPair& chunk : chunks) {
    check_pair(chunk.out, chunk.in, rank_, world_, device_, "out", "in");
  }
  return submit(Request{.kind = Kind::AllGather,
                        .chunks = {chunks.begin(), chunks.end()},
                        .unit = std::string(label.unit)},
                label.traffic);
}

WorkPtr Collectives::reduce_scatter(at::Tensor out, at::Tensor in, Op op, Label label) {
  const ChunkPair chunk{std::move(out), std::move(in)};
  return reduce_scatter(std::span(&chunk, 1), op, label);
}

WorkPtr Collectives::reduce_scatter(std::span<const ChunkPair> chunks, Op op, Label label) {
  for (const ChunkPair& chunk : chunks) {
    check_pair(chunk.in, chunk.out, rank_, world_, device_, "in", "out");
  }
  return submit(Request{.kind = Kind::ReduceScatter,
                        .op = op,
                        .chunks = {chunks.begin(), chunks.end()},
                        .unit = std::string(label.unit)},
                label.traffic);
}

WorkPtr Collectives::all_reduce(at::Tensor tensor, Op op, Label label) {
  check_tensor(tensor, device_, "tensor");
  return submit(Request{.kind = Kind::AllReduce,
                        .op = op,
                        .chunks = {{tensor, tensor}},
                        .unit = std::string(label.unit)},
                label.traffic);
}

WorkPtr Collectives::all_to_all(at::Tensor out, at::Tensor in, Label label) {
  check_tensor(out, device_, "out");
  check_tensor(in, device_, "in");
  DSJ_CHECK(out.scalar_type() == in.scalar_type(), "in and out differ in dtype");
  DSJ_CHECK(out.numel() == in.numel() && in.numel() % world_ == 0,
            "out has %lld elements, in %lld, world %d", static_cast<long long>(out.numel()),
            static_cast<long long>(in.numel()), world_);
  const auto* begin = static_cast<const char*>(out.const_data_ptr());
  const auto* from = static_cast<const char*>(in.const_data_ptr());
  DSJ_CHECK(in.numel() == 0 || from + in.nbytes() <= begin || begin + out.nbytes() <= from,
            "in overlaps out");
  return submit(Request{.kind = Kind::AllToAll,
                        .chunks = {{std::move(out), std::move(in)}},
                        .unit = std::string(label.unit)},
                label.traffic);
}

WorkPtr Collectives::broadcast(at::Tensor tensor, int root, Label label) {
  check_tensor(tensor, device_, "tensor");
  DSJ_CHECK(root >= 0 && root < world_, "root %d of %d ranks", root, world_);
  return submit(Request{.kind = Kind::Broadcast,
                        .root = root,
                        .chunks = {{tensor, tensor}},
                        .unit = std::string(label.unit)},
                label.traffic);
}

WorkPtr Collectives::barrier(Label label) {
  return submit(Request{.kind = Kind::Barrier, .unit = std::string(label.unit)}, label.traffic);
}

WorkPtr Collectives::submit(Request request, Traffic traffic) {
  {
    const std::lock_guard lock(mutex_);
    request.sequence = ++sequence_;
    count(request, traffic);
    if (flight_) {
      flight_->issued(request.sequence, name_of(request.kind), request.unit, whole_bytes(request));
    }
  }
  return issue(std::move(request));
}

void Collectives::count(const Request& request, Traffic traffic) {
  Counters::Cell volume{.calls = 1, .chunks = static_cast<std::int64_t>(request.chunks.size())};
  for (const ChunkPair& chunk : request.chunks) {
    const Volume sent = ring_volume(request.kind, chunk, world_);
    volume.elements += sent.elements;
    volume.bytes += sent.bytes;
  }
  const auto add = [&](Counters::Cell& cell) {
    cell.calls += volume.calls;
    cell.chunks += volume.chunks;
    cell.elements += volume.elements;
    cell.bytes += volume.bytes;
  };
  add(counters_.by_traffic[static_cast<std::size_t>(traffic)]);
  add(counters_.by_kind[static_cast<std::size_t>(request.kind)]);
  counters_.in_flight_max = std::max(counters_.in_flight_max, ++in_flight_);
}

void Collectives::operation_done() {
  const std::lock_guard lock(mutex_);
  --in_flight_;
  if (flight_) flight_->ended();
}

int Collectives::world_rank() const {
  return world_ranks_.empty() ? rank_ : world_ranks_[static_cast<std::size_t>(rank_)];
}

void Collectives::split_by(Splitter splitter) {
  splitter_ = std::move(splitter);
}

void Collectives::is_part(std::string name, std::vector<int> world_ranks) {
  group_ = std::move(name);
  world_ranks_ = std::move(world_ranks);
}

Result<std::unique_ptr<Collectives>> Collectives::split(const Part& part) {
  DSJ_CHECK(splitter_, "a group that was made without Options::splits is split");
  return splitter_(part);
}

void Collectives::note_in(FlightLog* flight) {
  const std::lock_guard lock(mutex_);
  flight_ = flight;
}

Counters Collectives::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Collectives::reset_counters() {
  const std::lock_guard lock(mutex_);
  counters_ = {};
  counters_.in_flight_max = in_flight_;
}

}  // namespace dsj::comm
