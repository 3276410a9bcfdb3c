#include "engine/deepspeed/placing.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/deepspeed/plain_groups.h"

namespace dsj::deepspeed {
namespace {

constexpr char kMaster[] = "master";

std::unexpected<Error> damaged(const std::string& what, const std::string& path) {
  return fail(ErrorKind::Environment, what, path, kDamagedHint);
}

/// A flat vector for each state.
using Flats = std::map<std::string, FlatVector>;

class Placing {
 public:
  Placing(Files& files, const Folder& folder, const SavedFile& model_file, const ModelStates& model)
      : files_(files), folder_(folder), model_file_(model_file), model_(model) {}

  Result<Placed> run() {
    if (folder_.universal) {
      DSJ_TRY_STATUS(universal());
    } else if (folder_.optim_files.empty()) {
      DSJ_TRY_STATUS(plain());
    } else {
      DSJ_TRY(out_.optim, open_optim(0));
      if (out_.optim.partitions != int(folder_.optim_files.size()))
        return bad_input("optimizer states of " + std::to_string(folder_.optim_files.size()) +
                             " ranks are there, " + std::to_string(out_.optim.partitions) +
                             " wrote them",
                         folder_.path, "copy the files of all ranks");
      if (model_.groups.empty())
        return bad_input("\"param_shapes\" is missing: nothing says where a parameter lies",
                         model_file_.path());
      DSJ_TRY_STATUS(out_.optim.stage == 3 ? shards() : partitions());
    }
    DSJ_TRY_STATUS(frozen());
    DSJ_TRY_STATUS(out_.ranges.check(folder_.path));
    return std::move(out_);
  }

 private:
  size_t add_path(const std::string& path) {
    out_.paths.push_back(path);
    return out_.paths.size() - 1;
  }
  Result<OptimStates> open_optim(size_t rank) {
    DSJ_TRY(const SavedFile file, SavedFile::open(files_, folder_.optim_files[rank]));
    return read_optim_states(files_, file);
  }
  Status take(const std::string& state, const Parameter& parameter, int64_t offset, int64_t count,
              const FlatVector& flat, int64_t at) {
    out_.ranges.declare({state, parameter.name}, parameter.elements);
    return out_.ranges.take({state, parameter.name}, offset, count, flat, at, folder_.path);
  }
  /// A tensor that holds one state of one parameter, whole.
  Status take_whole(const std::string& state, const Parameter& parameter, size_t file,
                    const weights::TensorInfo& tensor) {
    FlatVector flat;
    append(flat, 0, file, tensor);
    if (tensor.elements != parameter.elements)
      return damaged(state + " of " + parameter.name + " has " + std::to_string(tensor.elements) +
                         " elements, the parameter " + std::to_string(parameter.elements),
                     out_.paths[file]);
    return take(state, parameter, 0, parameter.elements, flat, 0);
  }

  // ---- stages 1 and 2: each group is one vector, cut among the ranks

  Status partitions() {
    std::vector<Flats> flats(model_.groups.size());                  // [group]
    std::vector<std::map<std::string, int64_t>> part(flats.size());  // [group]: elements of rank 0
    for (size_t rank = 0; rank < folder_.optim_files.size(); ++rank) {
      DSJ_TRY(const OptimStates optim, open_optim(rank));
      const size_t file = add_path(folder_.optim_files[rank]);
      if (optim.updated.size() != flats.size())
        return damaged("the optimizer has " + std::to_string(optim.updated.size()) +
                           " groups, param_shapes has " + std::to_string(flats.size()),
                       out_.paths[file]);
      for (size_t g = 0; g < flats.size(); ++g)
        for (const auto& [state, tensor] : optim.updated[g].states) {
          // Every rank but the last ones has equally much; padding at the end may be cut off.
          const int64_t each = rank == 0 ? tensor.elements : part[g][state];
          if (tensor.elements > each)
            return damaged(state + " has more elements than on rank 0", out_.paths[file]);
          part[g][state] = each;
          append(flats[g][state], int64_t(rank) * each, file, tensor);
        }
    }
    for (size_t g = 0; g < flats.size(); ++g) DSJ_TRY_STATUS(cut_group(g, flats[g]));
    return {};
  }

  Status cut_group(size_t g, const Flats& flats) {
    int64_t at = 0;
    for (size_t i = 0; i < model_.groups[g].size(); ++i) {
      const Parameter& parameter = model_.groups[g][i];
      for (const auto& [state, flat] : flats)
        DSJ_TRY_STATUS(take(state, parameter, 0, parameter.elements, flat, at));
      const auto& alignment = out_.optim.alignment;
      const bool padded = g < alignment.size() && i < alignment[g].size();
      at += parameter.elements + (padded ? alignment[g][i] : 0);
      out_.trained.push_back(parameter);
    }
    return {};
  }

  // ---- stage 3: each parameter is cut among the ranks

  Status shards() {
    for (const auto& group : model_.groups)
      out_.trained.insert(out_.trained.end(), group.begin(), group.end());
    for (size_t rank = 0; rank < folder_.optim_files.size(); ++rank) {
      DSJ_TRY(const OptimStates optim, open_optim(rank));
      const size_t file = add_path(folder_.optim_files[rank]);
      Flats flats;
      int64_t end = 0;
      for (const Updated& sub_group : optim.updated) {
        const int64_t elements = sub_group.states.at(kMaster).elements;
        for (const auto& [state, tensor] : sub_group.states) {
          if (tensor.elements != elements)
            return damaged(state + " of a sub-group has another size than its fp32 values",
                           out_.paths[file]);
          append(flats[state], end, file, tensor);
        }
        end += elements;
      }
      DSJ_TRY_STATUS(cut_shard(int64_t(rank), flats, end, file));
    }
    return {};
  }

  /// The share of a rank: the last one's tail is padding, which was never written.
  int64_t share(const Parameter& parameter) const {
    const auto ranks = static_cast<int64_t>(folder_.optim_files.size());
    return parameter.elements / ranks + (parameter.elements % ranks != 0);
  }

  Status cut_shard(int64_t rank, const Flats& flats, int64_t end, size_t file) {
    int64_t at = 0;
    for (const Parameter& parameter : out_.trained) {
      const int64_t each = share(parameter);
      const int64_t offset = std::min(rank * each, parameter.elements);
      const int64_t mine = std::min(each, parameter.elements - offset);
      for (const auto& [state, flat] : flats)
        DSJ_TRY_STATUS(take(state, parameter, offset, mine, flat, at));
      at += each;
    }
    if (at == end) return {};
    return damaged("the parameters have " + std::to_string(at) +
                       " elements on this rank, the file has " + std::to_string(end),
                   out_.paths[file]);
  }

  // ---- stage 0: one file

  Status plain() {
    DSJ_TRY(out_.optim, read_plain_optimizer(files_, model_file_));
    const size_t file = add_path(model_file_.path());
    std::vector<Parameter> parameters;
    for (const auto& tensor : model_.module)
      parameters.push_back({tensor.name, tensor.shape, tensor.elements});
    const size_t updated = out_.optim.updated.size();
    const bool fused = updated == out_.optim.groups.size() && updated != parameters.size();
    DSJ_TRY(const auto groups, plain_groups(parameters, out_.optim, fused, model_file_.path()));
    size_t next = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      int64_t at = 0;
      for (const size_t index : groups[g]) {
        const Parameter& parameter = parameters[index];
        const Updated& from = out_.optim.updated[fused ? g : next++];
        for (const auto& [state, tensor] : from.states) {
          FlatVector flat;
          append(flat, 0, file, tensor);
          if (fused) {
            DSJ_TRY_STATUS(take(state, parameter, 0, parameter.elements, flat, at));
          } else {
            DSJ_TRY_STATUS(take_whole(state, parameter, file, tensor));
          }
        }
        if (!from.states.contains(kMaster))
          DSJ_TRY_STATUS(take_whole(kMaster, parameter, file, model_.module[index]));
        at += parameter.elements;
        out_.trained.push_back(parameter);
      }
    }
    return {};
  }

  // ---- universal: a folder for each parameter

  Status universal() {
    const std::string zero = path_join(folder_.path, "zero");
    const std::string optimizer = path_join(zero, "optimizer_state.pt");
    DSJ_TRY(const SavedFile common, SavedFile::open(files_, optimizer));
    DSJ_TRY(out_.optim, read_universal_optimizer(files_, common));
    add_path(optimizer);
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
      DSJ_TRY(const SavedFile file, SavedFile::open(files_, path_join(folder, entry.name)));
      if (state == "step") {
        if (out_.optim.step) continue;
        DSJ_TRY(out_.optim.step, file.count(files_, file.root(), state));
        continue;
      }
      // Stages 1 and 2: {"param": tensor, "cat_dim": 0}; stage 3: a flat tensor.
      const Node inside = file.root()["param"];
      DSJ_TRY(const auto tensor, file.tensor(inside ? inside : file.root(), state));
      if (tensor.shape.empty() && parameter.elements != 1) continue;
      DSJ_TRY_STATUS(
          take_whole(state == "fp32" ? kMaster : state, parameter, add_path(file.path()), tensor));
    }
    return {};
  }

  // ---- parameters that were not trained: their values only

  Status frozen() {
    std::set<std::string> trained;
    for (const Parameter& parameter : out_.trained) trained.insert(parameter.name);
    if (model_.frozen.empty()) {  // stage 1 does not list them
      const size_t file = add_path(model_file_.path());
      for (const auto& tensor : model_.module) {
        if (trained.contains(tensor.name) || out_.optim.stage == 3) continue;
        out_.frozen.push_back({tensor.name, tensor.shape, tensor.elements});
        DSJ_TRY_STATUS(take_whole(kMaster, out_.frozen.back(), file, tensor));
      }
      return {};
    }
    out_.frozen = model_.frozen;
    for (size_t rank = 0; rank < folder_.model_files.size(); ++rank) {
      DSJ_TRY(const SavedFile file, SavedFile::open(files_, folder_.model_files[rank]));
      DSJ_TRY(const ModelStates model, read_model_states(file));
      const size_t path = add_path(file.path());
      for (const Parameter& parameter : out_.frozen)
        DSJ_TRY_STATUS(fragment(parameter, model, int64_t(rank), path));
    }
    return {};
  }

  Status fragment(const Parameter& parameter, const ModelStates& model, int64_t rank, size_t file) {
    const auto found = model.frozen_fragments.find(parameter.name);
    const auto module = std::ranges::find(model.module, parameter.name, &weights::TensorInfo::name);
    const bool whole = module != model.module.end() && module->elements == parameter.elements;
    if (found == model.frozen_fragments.end() && !(whole && rank == 0))
      return bad_input("the values of \"" + parameter.name + "\", which is frozen, are not in it",
                       out_.paths[file], "save it without exclude_frozen_parameters");
    const weights::TensorInfo& tensor =
        found == model.frozen_fragments.end() ? *module : found->second;
    if (folder_.model_files.size() == 1) return take_whole(kMaster, parameter, file, tensor);
    const auto ranks = static_cast<int64_t>(folder_.model_files.size());
    const int64_t each = parameter.elements / ranks + (parameter.elements % ranks != 0);
    const int64_t offset = std::min(rank * each, parameter.elements);
    FlatVector flat;
    append(flat, 0, file, tensor);
    return take(kMaster, parameter, offset, std::min(each, parameter.elements - offset), flat, 0);
  }

  Files& files_;
  const Folder& folder_;
  const SavedFile& model_file_;
  const ModelStates& model_;
  Placed out_;
};

}  // namespace

Result<Placed> place(Files& files, const Folder& folder, const SavedFile& model_file,
                     const ModelStates& model) {
  return Placing(files, folder, model_file, model).run();
}

}  // namespace dsj::deepspeed
