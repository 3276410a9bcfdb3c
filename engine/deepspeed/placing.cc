#include "engine/deepspeed/placing.h"

#include <algorithm>
#include <set>

#include "engine/deepspeed/plain_groups.h"

namespace dsj::deepspeed {
namespace {

class Placing {
 public:
  Placing(Files& files, const Folder& folder, const SavedFile& model_file, const ModelStates& model)
      : files_(files), folder_(folder), model_file_(model_file), model_(model) {}

  Result<Placed> run() {
    if (folder_.universal) {
      DSJ_TRY_STATUS(universal());
    } else if (folder_.optims.count == 0) {
      DSJ_TRY_STATUS(plain());
    } else {
      DSJ_TRY_STATUS(cut_among_ranks());
    }
    DSJ_TRY_STATUS(frozen());
    for (size_t file = 0; file < out_.files.size(); ++file)
      if (const auto& contents = out_.files[file].contents)
        DSJ_TRY_STATUS(check_contents(out_, file, *contents));
    return std::move(out_);
  }

 private:
  size_t add_known(const std::string& path, Contents contents = {}) {
    out_.files.push_back({.path = path, .contents = std::move(contents)});
    return out_.files.size() - 1;
  }
  Contents& known(size_t file) { return *out_.files[file].contents; }

  Status deal(const std::string& state, const Parameter& parameter, Dealt dealt) {
    if (out_.tensors.emplace(StateOf(state, parameter.name), std::move(dealt)).second) return {};
    return damaged(state + " of " + parameter.name + " is listed twice", folder_.path);
  }
  /// Places a whole tensor in a known file.
  Status deal_whole(const std::string& state, const Parameter& parameter, size_t file,
                    const weights::TensorInfo& tensor) {
    DSJ_TRY_STATUS(
        check_whole(state, parameter.name, parameter.elements, tensor, out_.files[file].path));
    const FlatOf flat{.state = state, .parameter = parameter.name};
    append(known(file)[flat], 0, tensor);
    return deal(state, parameter, whole(parameter.elements, file, flat));
  }

  static int64_t share(const Parameter& parameter, int64_t ranks) {
    return parameter.elements / ranks + (parameter.elements % ranks != 0);
  }

  // ---- stages 1 to 3: a file per rank

  Status cut_among_ranks() {
    const std::string first = folder_.optims.path(0);
    const size_t ranks = folder_.optims.count;
    DSJ_TRY(const SavedFile file, SavedFile::open(files_, first));
    DSJ_TRY(out_.optim, read_optim_states(file));
    if (out_.optim.partitions != int(ranks))
      return bad_input("it has optimizer states of " + std::to_string(ranks) + " ranks, " +
                           std::to_string(out_.optim.partitions) + " ranks wrote it",
                       folder_.path, "copy the files of all ranks");
    if (model_.groups.empty())
      return bad_input("\"param_shapes\" is missing: the positions of parameters are unknown",
                       model_file_.path());
    const bool shards = out_.optim.stage == 3;
    for (size_t rank = 0; rank < ranks; ++rank)
      out_.files.push_back(
          {.path = folder_.optims.path(rank), .form = shards ? Form::Shard : Form::Partition});
    if (shards) {
      DSJ_TRY_STATUS(cut_parameters(int64_t(ranks)));
      DSJ_TRY(out_.files[0].contents, shard_of(out_.optim, first));
      return {};
    }
    if (out_.optim.updated.size() != model_.groups.size())
      return damaged("the optimizer has " + std::to_string(out_.optim.updated.size()) +
                         " groups, param_shapes has " + std::to_string(model_.groups.size()),
                     first);
    for (size_t g = 0; g < model_.groups.size(); ++g) DSJ_TRY_STATUS(cut_group(g, int64_t(ranks)));
    out_.files[0].contents = partition_of(out_.optim);
    return {};
  }

  /// Stages 1 and 2: each group is one vector, cut among the ranks. No rank has more than rank 0.
  Status cut_group(size_t g, int64_t ranks) {
    int64_t at = 0;
    for (size_t i = 0; i < model_.groups[g].size(); ++i) {
      const Parameter& parameter = model_.groups[g][i];
      for (const auto& [state, tensor] : out_.optim.updated[g].states) {
        const int64_t there = std::max<int64_t>(0, tensor.elements * ranks - at);
        if (there < parameter.elements)
          return damaged(state + " of " + parameter.name + ": " + std::to_string(there) + " of " +
                             std::to_string(parameter.elements) + " elements are there",
                         folder_.path);
        DSJ_TRY_STATUS(deal(state, parameter,
                            {.elements = parameter.elements,
                             .shift = at,
                             .each = tensor.elements,
                             .flat = {.state = state, .group = g}}));
      }
      const auto& alignment = out_.optim.alignment;
      const bool padded = g < alignment.size() && i < alignment[g].size();
      at += parameter.elements + (padded ? alignment[g][i] : 0);
      out_.trained.push_back(parameter);
    }
    return {};
  }

  /// Stage 3: each parameter is cut among the ranks. The last share's padding is not saved.
  Status cut_parameters(int64_t ranks) {
    std::set<std::string> states;
    for (const Updated& sub_group : out_.optim.updated)
      for (const auto& [state, tensor] : sub_group.states) states.insert(state);
    int64_t at = 0;
    for (const auto& group : model_.groups) {
      for (const Parameter& parameter : group) {
        const int64_t each = share(parameter, ranks);
        for (const std::string& state : states)
          DSJ_TRY_STATUS(deal(state, parameter,
                              {.elements = parameter.elements,
                               .each = each,
                               .flat = {.state = state},
                               .base = at}));
        at += each;
        out_.trained.push_back(parameter);
      }
    }
    const int64_t end = shard_elements(out_.optim);
    if (at == end) return {};
    return damaged("the parameters have " + std::to_string(at) +
                       " elements on this rank, the file has " + std::to_string(end),
                   folder_.optims.path(0));
  }

  // ---- stage 0: one file

  Status plain() {
    DSJ_TRY(out_.optim, read_plain_optimizer(model_file_));
    const size_t file = add_known(model_file_.path());
    std::vector<Parameter> parameters;
    for (const auto& tensor : model_.module)
      parameters.push_back({tensor.name, tensor.shape, tensor.elements});
    const size_t updated = out_.optim.updated.size();
    const bool fused = updated == out_.optim.groups.size() && updated != parameters.size();
    DSJ_TRY(const auto groups, plain_groups(parameters, out_.optim, fused, model_file_.path()));
    if (fused) known(file) = partition_of(out_.optim);
    size_t next = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      int64_t at = 0;
      for (const size_t index : groups[g]) {
        const Parameter& parameter = parameters[index];
        const Updated& from = out_.optim.updated[fused ? g : next++];
        for (const auto& [state, tensor] : from.states) {
          if (fused) {
            const FlatOf flat{.state = state, .group = g};
            DSJ_TRY_STATUS(deal(state, parameter, whole(parameter.elements, file, flat, at)));
          } else {
            DSJ_TRY_STATUS(deal_whole(state, parameter, file, tensor));
          }
        }
        if (!from.states.contains(kMaster))
          DSJ_TRY_STATUS(deal_whole(kMaster, parameter, file, model_.module[index]));
        at += parameter.elements;
        out_.trained.push_back(parameter);
      }
    }
    return {};
  }

  // ---- universal: a folder per parameter

  Status universal() {
    const std::string zero = path_join(folder_.path, "zero");
    const std::string optimizer = path_join(zero, "optimizer_state.pt");
    DSJ_TRY(const SavedFile common, SavedFile::open(files_, optimizer));
    DSJ_TRY(out_.optim, read_universal_optimizer(common));
    add_known(optimizer);
    for (const auto& group : model_.groups) {
      for (const Parameter& parameter : group) {
        DSJ_TRY_STATUS(universal_parameter(parameter, path_join(zero, parameter.name)));
        out_.trained.push_back(parameter);
      }
    }
    return {};
  }

  Status universal_parameter(const Parameter& parameter, const std::string& folder) {
    DSJ_TRY(const auto entries, files_.list_dir(folder));
    for (const DirEntry& entry : entries) {
      if (!entry.name.ends_with(".pt")) continue;
      const std::string state = entry.name.substr(0, entry.name.size() - 3);
      const std::string path = path_join(folder, entry.name);
      if (state != "step") {
        DSJ_TRY_STATUS(universal_state(parameter, state, path));
      } else if (!out_.optim.step) {
        DSJ_TRY(const SavedFile file, SavedFile::open(files_, path));
        DSJ_TRY(out_.optim.step, file.count(file.root(), state));
      }
    }
    return {};
  }

  /// The first file of a state shows whether it is elementwise or a number, unless its parameter
  /// has one element.
  Status universal_state(const Parameter& parameter, const std::string& name,
                         const std::string& path) {
    const std::string state = name == "fp32" ? kMaster : name;
    const auto seen = is_number_.find(state);
    if (parameter.elements != 1 && seen != is_number_.end()) {
      if (seen->second) return {};
      const FlatOf tensor{.state = state, .parameter = parameter.name};
      out_.files.push_back({.path = path, .form = Form::Tensor, .tensor = tensor});
      return deal(state, parameter, whole(parameter.elements, out_.files.size() - 1, tensor));
    }
    DSJ_TRY(const SavedFile file, SavedFile::open(files_, path));
    DSJ_TRY(const auto tensor, universal_tensor(file, state));
    const bool number = tensor.shape.empty() && parameter.elements != 1;
    if (parameter.elements != 1) is_number_[state] = number;
    return number ? Status{} : deal_whole(state, parameter, add_known(path), tensor);
  }

  // ---- frozen parameters: values only

  Status frozen() {
    if (model_.frozen.empty()) return unlisted_frozen();
    out_.frozen = model_.frozen;
    const size_t first = out_.files.size();
    const auto ranks = static_cast<int64_t>(folder_.models.count);
    if (ranks == 1) {
      add_known(model_file_.path());
      for (const Parameter& parameter : out_.frozen) {
        DSJ_TRY(const auto tensor, frozen_tensor(model_, parameter, model_file_.path()));
        DSJ_TRY_STATUS(deal_whole(kMaster, parameter, first, tensor));
      }
      return {};
    }
    for (size_t rank = 0; rank < folder_.models.count; ++rank)
      out_.files.push_back({.path = folder_.models.path(rank), .form = Form::Fragments});
    DSJ_TRY(out_.files[first].contents, fragments_of(out_.frozen, model_, model_file_.path()));
    for (const Parameter& parameter : out_.frozen)
      DSJ_TRY_STATUS(deal(kMaster, parameter,
                          {.elements = parameter.elements,
                           .first = first,
                           .each = share(parameter, ranks),
                           .flat = {.state = kMaster, .parameter = parameter.name}}));
    return {};
  }

  /// Stage 1 does not list frozen parameters.
  Status unlisted_frozen() {
    if (out_.optim.stage == 3) return {};
    std::set<std::string> trained;
    for (const Parameter& parameter : out_.trained) trained.insert(parameter.name);
    const size_t file = add_known(model_file_.path());
    for (const auto& tensor : model_.module) {
      if (trained.contains(tensor.name)) continue;
      out_.frozen.push_back({tensor.name, tensor.shape, tensor.elements});
      DSJ_TRY_STATUS(deal_whole(kMaster, out_.frozen.back(), file, tensor));
    }
    return {};
  }

  Files& files_;
  const Folder& folder_;
  const SavedFile& model_file_;
  const ModelStates& model_;
  std::map<std::string, bool> is_number_;  ///< universal: per known state
  Placed out_;
};

}  // namespace

Result<Placed> place(Files& files, const Folder& folder, const SavedFile& model_file,
                     const ModelStates& model) {
  return Placing(files, folder, model_file, model).run();
}

}  // namespace dsj::deepspeed
