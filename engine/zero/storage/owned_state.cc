#include "engine/zero/storage/owned_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

namespace dsj::zero {
namespace {

int part_at(const std::vector<layout::Part>& parts, int64_t element) {
  for (int i = 0; i < static_cast<int>(parts.size()); ++i)
    if (element >= parts[i].begin && element < parts[i].begin + parts[i].numel) return i;
  return -1;
}

/// A part that is overwritten piece by piece must be read first, to keep its other pieces.
Access for_run(Access access, const layout::Part& part, int64_t numel) {
  return access == Access::Write && part.numel != numel ? Access::ReadWrite : access;
}

}  // namespace

OwnedState::OwnedState(int64_t shard_numel, ShardStoreOptions optimizer,
                       ShardStoreOptions parameters)
    : optimizer_(std::move(optimizer)), parameters_(std::move(parameters)) {
  std::set<int64_t> cuts = {shard_numel};
  for (const auto* parts : {&optimizer_.parts(), &parameters_.parts()})
    for (const layout::Part& part : *parts) cuts.insert(part.begin + part.numel);
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    runs_.push_back({begin, end - begin, part_at(optimizer_.parts(), begin),
                     part_at(parameters_.parts(), begin)});
    begin = end;
  }
}

void OwnedState::for_runs(std::optional<Access> optimizer, std::optional<Access> parameters,
                          const std::function<void(const OwnedRun&)>& f) {
  for (const Run& run : runs_) {
    OwnedRun open{.begin = run.begin, .numel = run.numel, .optimizer = {}, .parameters = {}};
    const auto narrow = [&](const at::Tensor& tensor, const layout::Part& part) {
      return tensor.narrow(0, run.begin - part.begin, run.numel);
    };
    std::optional<Access> first, second;
    if (optimizer && run.optimizer >= 0) {
      const layout::Part& part = optimizer_.parts()[run.optimizer];
      first = for_run(*optimizer, part, run.numel);
      open.in_file = optimizer_.in_file(run.optimizer);
      for (const auto& tensor : optimizer_.open(run.optimizer, *first, true))
        open.optimizer.push_back(narrow(tensor, part));
    }
    if (parameters && run.parameters >= 0) {
      const layout::Part& part = parameters_.parts()[run.parameters];
      second = for_run(*parameters, part, run.numel);
      open.in_file = open.in_file || parameters_.in_file(run.parameters);
      const bool reads = *second != Access::Write;
      open.parameters = narrow(parameters_.open(run.parameters, *second, reads)[0], part);
    }
    f(open);
    if (first) optimizer_.close(run.optimizer, *first);
    if (second) parameters_.close(run.parameters, *second);
  }
}

bool OwnedState::optimizer_elsewhere() const {
  return std::ranges::any_of(optimizer_.parts(), [](const layout::Part& part) {
    return part.place != layout::Place::Device;
  });
}

void OwnedState::for_parameters(const std::function<void(int64_t, const at::Tensor&, bool)>& f) {
  for (int i = 0; i < static_cast<int>(parameters_.parts().size()); ++i) {
    f(parameters_.parts()[i].begin, parameters_.open(i, Access::Read)[0], !parameters_.in_file(i));
    parameters_.close(i, Access::Read);
    parameters_.read_ahead();
  }
}

}  // namespace dsj::zero
