#include "engine/deepspeed/contents.h"

#include <algorithm>

namespace dsj::deepspeed {
namespace {

Result<Contents> read_partition(const OptimStates& first, const SavedFile& saved) {
  DSJ_TRY(const OptimStates optim, read_optim_states(saved));
  if (optim.updated.size() != first.updated.size())
    return damaged("the optimizer has " + std::to_string(optim.updated.size()) +
                       " groups, that of rank 0 " + std::to_string(first.updated.size()),
                   saved.path());
  for (size_t g = 0; g < optim.updated.size(); ++g)
    for (const auto& [state, tensor] : optim.updated[g].states) {
      // All ranks but the last ones have equal sizes; padding at the end may be missing.
      const auto found = first.updated[g].states.find(state);
      const int64_t most = found == first.updated[g].states.end() ? 0 : found->second.elements;
      if (tensor.elements > most)
        return damaged(state + " has more elements than on rank 0", saved.path());
    }
  return partition_of(optim);
}

Result<Contents> read_shard(const OptimStates& first, const SavedFile& saved) {
  DSJ_TRY(const OptimStates optim, read_optim_states(saved));
  const int64_t elements = shard_elements(optim), expected = shard_elements(first);
  if (elements == expected) return shard_of(optim, saved.path());
  return damaged("the file has " + std::to_string(elements) +
                     " elements of each state, that of rank 0 " + std::to_string(expected),
                 saved.path());
}

Result<Contents> read_tensor(const Placed& placed, const FlatOf& name, const SavedFile& saved) {
  DSJ_TRY(const auto tensor, universal_tensor(saved, name.state));
  const int64_t elements = placed.tensors.at({name.state, name.parameter}).elements;
  DSJ_TRY_STATUS(check_whole(name.state, name.parameter, elements, tensor, saved.path()));
  Contents contents;
  append(contents[name], 0, tensor);
  return contents;
}

Result<Contents> read_form(const Placed& placed, const PartFile& part, const SavedFile& saved) {
  switch (part.form) {
    case Form::Partition:
      return read_partition(placed.optim, saved);
    case Form::Shard:
      return read_shard(placed.optim, saved);
    case Form::Fragments: {
      DSJ_TRY(const ModelStates model, read_model_states(saved));
      return fragments_of(placed.frozen, model, saved.path());
    }
    case Form::Tensor:
      return read_tensor(placed, part.tensor, saved);
    case Form::Known:
      break;
  }
  return fail(ErrorKind::Internal, "nothing is left to be read", saved.path());
}

}  // namespace

std::unexpected<Error> damaged(const std::string& what, const std::string& path) {
  return fail(ErrorKind::Environment, what, path, kDamagedHint);
}

Result<Contents> read_contents(const Placed& placed, size_t file, const SavedFile& saved) {
  DSJ_TRY(Contents contents, read_form(placed, placed.files[file], saved));
  DSJ_TRY_STATUS(check_contents(placed, file, contents));
  return contents;
}

Status check_contents(const Placed& placed, size_t file, const Contents& contents) {
  for (const auto& [name, dealt] : placed.tensors) {
    const auto share = share_in(dealt, file);
    if (!share) continue;
    const auto flat = contents.find(dealt.flat);
    int64_t covered = 0;
    if (flat != contents.end())
      for (const Stretch& stretch : cut(flat->second, share->at, share->elements))
        covered += stretch.elements;
    if (covered != share->elements)
      return damaged(name.first + " of " + name.second + ": " + std::to_string(covered) + " of " +
                         std::to_string(share->elements) + " elements are there",
                     placed.files[file].path);
  }
  return {};
}

Contents partition_of(const OptimStates& optim) {
  Contents contents;
  for (size_t g = 0; g < optim.updated.size(); ++g)
    for (const auto& [state, tensor] : optim.updated[g].states)
      append(contents[{.state = state, .group = g}], 0, tensor);
  return contents;
}

Result<Contents> shard_of(const OptimStates& optim, const std::string& path) {
  Contents contents;
  int64_t end = 0;
  for (const Updated& sub_group : optim.updated) {
    const int64_t elements = sub_group.states.at(kMaster).elements;
    for (const auto& [state, tensor] : sub_group.states) {
      if (tensor.elements != elements)
        return damaged(state + " of a sub-group has another size than its fp32 values", path);
      append(contents[{.state = state}], end, tensor);
    }
    end += elements;
  }
  return contents;
}

int64_t shard_elements(const OptimStates& optim) {
  int64_t all = 0;
  for (const Updated& sub_group : optim.updated) all += sub_group.states.at(kMaster).elements;
  return all;
}

Result<weights::TensorInfo> frozen_tensor(const ModelStates& model, const Parameter& parameter,
                                          const std::string& path) {
  const auto fragment = model.frozen_fragments.find(parameter.name);
  if (fragment != model.frozen_fragments.end()) return fragment->second;
  const auto module = std::ranges::find(model.module, parameter.name, &weights::TensorInfo::name);
  if (module != model.module.end() && module->elements == parameter.elements) return *module;
  return bad_input("the values of \"" + parameter.name + "\", which is frozen, are not in it", path,
                   "save it without exclude_frozen_parameters");
}

Result<Contents> fragments_of(const std::vector<Parameter>& frozen, const ModelStates& model,
                              const std::string& path) {
  Contents contents;
  for (const Parameter& parameter : frozen) {
    DSJ_TRY(const auto tensor, frozen_tensor(model, parameter, path));
    append(contents[{.state = kMaster, .parameter = parameter.name}], 0, tensor);
  }
  return contents;
}

Result<weights::TensorInfo> universal_tensor(const SavedFile& file, const std::string& state) {
  const Node inside = file.root()["param"];
  return file.tensor(inside ? inside : file.root(), state);
}

Status check_whole(const std::string& state, const std::string& parameter, int64_t elements,
                   const weights::TensorInfo& tensor, const std::string& path) {
  if (tensor.elements == elements) return {};
  return damaged(state + " of " + parameter + " has " + std::to_string(tensor.elements) +
                     " elements, the parameter " + std::to_string(elements),
                 path);
}

}  // namespace dsj::deepspeed
