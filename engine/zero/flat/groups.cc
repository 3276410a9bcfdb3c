#include "engine/zero/flat/groups.h"

#include "common/check.h"

namespace dsj::zero {

Result<RunGroups> RunGroups::make(comm::Collectives& world, const plan::RankGroups& sizes) {
  DSJ_CHECK(sizes.world == world.world() && sizes.world % sizes.shards == 0);
  RunGroups run(world);
  const int rank = world.rank();
  // Groups are of consecutive ranks: this rank's group, and the ranks with its index in each group.
  const auto group = [&](const char* name, int size) {
    return world.split({.name = name, .colour = rank / size, .key = rank});
  };
  const auto same_index = [&](const char* name, int size) {
    return world.split({.name = name, .colour = rank % size, .key = rank});
  };
  if (sizes.replicas() > 1) {
    DSJ_TRY(run.shards_, group("shards", sizes.shards));
    DSJ_TRY(run.replicas_, same_index("replicas", sizes.shards));
    run.groups_.shards = run.shards_.get();
    run.groups_.replicas = run.replicas_.get();
  }
  if (sizes.near > 0) {
    DSJ_CHECK(sizes.world % sizes.near == 0);
    DSJ_TRY(run.near_, group("hpz", sizes.near));
    run.groups_.near = run.near_.get();
  }
  if (sizes.rails) {
    DSJ_TRY(run.rail_, same_index("rail", sizes.near));
    run.groups_.rail = run.rail_.get();
  }
  if (sizes.sequence > 1) {
    DSJ_CHECK(sizes.world % sizes.sequence == 0);
    DSJ_TRY(run.sequence_, group("sequence", sizes.sequence));
    run.groups_.sequence = run.sequence_.get();
  }
  return run;
}

std::vector<comm::Collectives*> RunGroups::all() const {
  std::vector<comm::Collectives*> all = {groups_.world};
  for (const auto* part : {&shards_, &replicas_, &near_, &rail_, &sequence_})
    if (*part) all.push_back(part->get());
  return all;
}

comm::Counters RunGroups::counters() const {
  comm::Counters sum;
  const auto add = [](auto& cells, const auto& more) {
    for (size_t i = 0; i < cells.size(); ++i) {
      cells[i].calls += more[i].calls;
      cells[i].chunks += more[i].chunks;
      cells[i].elements += more[i].elements;
      cells[i].bytes += more[i].bytes;
    }
  };
  for (const comm::Collectives* group : all()) {
    const comm::Counters one = group->counters();
    add(sum.by_traffic, one.by_traffic);
    add(sum.by_kind, one.by_kind);
    sum.in_flight_max += one.in_flight_max;
  }
  return sum;
}

void RunGroups::reset_counters() {
  for (comm::Collectives* group : all()) group->reset_counters();
}

void RunGroups::shutdown() {
  for (comm::Collectives* group : all())
    if (group != groups_.world) group->shutdown();
}

}  // namespace dsj::zero
