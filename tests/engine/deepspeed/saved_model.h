// A DeepSpeed checkpoint of a small model, written in any of its layouts, for tests. Every element has a value of its own,
// padding has values that must enter nothing.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "common/files/files.h"
#include "tests/engine/deepspeed/pt_writer.h"

namespace dsj::deepspeed::testing_support {

struct Tensor {
  std::string name;
  std::vector<int64_t> extents;
  int64_t elements() const {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  }
};

/// What element `i` of a state of parameter `p` holds.
inline float element(const std::string& state, size_t p, int64_t i) {
  const float base = state == "master" ? 1000 : state == "exp_avg" ? 2000 : 3000;
  return base + 100.0f * static_cast<float>(p) + static_cast<float>(i);
}

struct SavedModel {
  std::vector<std::vector<Tensor>> groups = {{{"a.weight", {3, 5}},
                                              {"b.bias", {7}},
                                              {"c.weight", {2, 2, 2}},
                                              {"d.empty", {0}},
                                              {"e.bias", {1}}}};
  int ranks = 3;
  int64_t steps = 12, skipped = 2, updates = 10;  ///< no updates: the optimizer has no states
  std::string tag = "/ds/global_step12";
  bool fused_step = false;      ///< FusedAdam: the count is a number
  bool padded_masters = false;  ///< BF16_Optimizer keeps the padding of the fp32 values, too
  bool elastic = false;         ///< elastic_checkpoint: a list of states
  std::vector<std::vector<int64_t>> alignment = {};
  Value scheduler = dict({{"last_batch_iteration", number(9)}});
  Entries client = {};  ///< at the top level of the model file

  static float poison() { return std::numeric_limits<float>::quiet_NaN(); }
  static std::vector<std::string> states() { return {"master", "exp_avg", "exp_avg_sq"}; }

  size_t index_of(const std::string& name) const {
    size_t index = 0;
    for (const auto& group : groups)
      for (const Tensor& tensor : group) {
        if (tensor.name == name) return index;
        ++index;
      }
    return SIZE_MAX;
  }
  std::vector<float> values(const std::string& state, const Tensor& tensor) const {
    std::vector<float> out;
    const size_t index = index_of(tensor.name);
    for (int64_t i = 0; i < tensor.elements(); ++i) out.push_back(element(state, index, i));
    return out;
  }

  Value shapes() const {
    std::vector<Value> all;
    for (const auto& group : groups) {
      Value one = call(global("collections", "OrderedDict"), {}) + "(";
      for (const Tensor& tensor : group) one += text(tensor.name) + size(tensor.extents);
      all.push_back(one + "u");
    }
    return list(all);
  }
  Entries counters() const {
    Entries all = {{"lr_scheduler", scheduler},      {"skipped_steps", number(skipped)},
                   {"global_steps", number(steps)},  {"global_samples", number(steps * 6)},
                   {"dp_world_size", number(ranks)}, {"mp_world_size", number(1)},
                   {"ds_version", text("0.19.8")}};
    all.insert(all.end(), client.begin(), client.end());
    return all;
  }
  static Value scaler() {
    return object("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler",
                  {{"cur_scale", real(512)},
                   {"cur_iter", number(11)},
                   {"last_overflow_iter", number(4)},
                   {"cur_hysteresis", number(2)},
                   {"dynamic", boolean(true)}});
  }
  Value param_groups(const std::vector<size_t>& counts) const {
    std::vector<Value> all;
    int64_t next = 0;
    for (size_t g = 0; g < counts.size(); ++g) {
      std::vector<Value> indices;
      for (size_t i = 0; i < counts[g]; ++i) indices.push_back(number(next++));
      all.push_back(dict({{"lr", real(0.5)},
                          {"weight_decay", real(g == 0 ? 0.1 : 0.0)},
                          {"betas", tuple({real(0.9), real(0.95)})},
                          {"step", number(0)},
                          {"params", list(indices)}}));
    }
    return list(all);
  }
  /// As torch's state_dict has them: made at the first update.
  Value states_of(const std::vector<Value>& states) const {
    return updates == 0 ? dict({}) : numbered(states);
  }
  Value step_of(PtFile& file) const {
    return fused_step ? number(updates) : file.scalar(float(updates));
  }

  void write(Files& files, const std::string& name, const PtFile& file, const Value& root) const {
    ASSERT_TRUE(files.make_dirs(path_parent(tag + "/" + name)));
    ASSERT_TRUE(files.write_synced(tag + "/" + name, file.bytes(root)));
  }
  static std::string rank_file(const std::string& prefix, int rank, const std::string& end) {
    return prefix + "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_" + end + ".pt";
  }

  /// mp_rank_00_model_states.pt of stages 1 and 2: `module` views one storage, with a tied name and a buffer.
  void write_model(Files& files) const {
    PtFile file;
    Entries module;
    for (const auto& group : groups)
      for (const Tensor& tensor : group)
        module.emplace_back(tensor.name, file.tensor(tensor.extents, values("master", tensor)));
    module.emplace_back("rotary", file.flat({1, 2}));
    Entries all = {{"module", dict(module)},
                   {"buffer_names", list({text("rotary")})},
                   {"optimizer", none()},
                   {"param_shapes", shapes()},
                   {"frozen_param_shapes", dict({})},
                   {"shared_params", dict({{"tied", text("a.weight")}})},
                   {"frozen_param_fragments", dict({})}};
    for (const auto& entry : counters()) all.push_back(entry);
    write(files, "mp_rank_00_model_states.pt", file, dict(all));
  }

  /// Stages 1 and 2.
  void write_partitions(Files& files, int stage = 2, const std::string& prefix = "") const {
    write_model(files);
    const int64_t align = 2 * ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      PtFile file;
      std::vector<Value> masters, states, partitions, paddings;
      for (size_t g = 0; g < groups.size(); ++g) {
        std::map<std::string, std::vector<float>> flat;
        for (const std::string& state : SavedModel::states())
          for (size_t i = 0; i < groups[g].size(); ++i) {
            const auto more = values(state, groups[g][i]);
            flat[state].insert(flat[state].end(), more.begin(), more.end());
            if (g < alignment.size())
              flat[state].insert(flat[state].end(), size_t(alignment[g][i]), poison());
          }
        const int64_t real_count = int64_t(flat["master"].size());
        const int64_t each = (real_count + align - 1) / align * align / ranks;
        const auto part = [&](const std::string& state, bool padded) {
          auto& all = flat[state];
          all.resize(size_t(each * ranks), poison());
          const int64_t begin = std::min(rank * each, padded ? each * ranks : real_count);
          const int64_t end = std::min((rank + 1) * each, padded ? each * ranks : real_count);
          return std::vector<float>(all.begin() + begin, all.begin() + end);
        };
        masters.push_back(file.flat(part("master", padded_masters)));
        states.push_back(dict({{"step", step_of(file)},
                               {"exp_avg", file.flat(part("exp_avg", !elastic))},
                               {"exp_avg_sq", file.flat(part("exp_avg_sq", !elastic))}}));
        partitions.push_back(number(ranks));
        std::vector<Value> padding;
        for (size_t i = 0; i < groups[g].size(); ++i)
          padding.push_back(number(g < alignment.size() ? alignment[g][i] : 0));
        paddings.push_back(list(padding));
      }
      const Value base =
          elastic ? list(updates == 0 ? std::vector<Value>(states.size(), dict({})) : states)
                  : dict({{"state", states_of(states)},
                          {"param_groups", param_groups(std::vector<size_t>(groups.size(), 1))}});
      Entries all = {{"loss_scaler", scaler()},
                     {"dynamic_loss_scale", boolean(true)},
                     {"base_optimizer_state", base},
                     {"single_partition_of_fp32_groups", list(masters)},
                     {"partition_count", list(partitions)},
                     {"param_alignment_paddings", list(paddings)}};
      if (elastic) all.emplace_back("base_optimizer_state_step", number(updates));
      if (stage > 0)
        all.emplace_back(
            "zero_stage",
            call(global("deepspeed.runtime.zero.config", "ZeroStageEnum"), {number(stage)}));
      write(files, rank_file(prefix, rank, "optim_states"), file,
            dict({{"optimizer_state_dict", dict(all)}}));
    }
  }

  /// Stage 3: a sub-group for each group; the padding of each parameter's last share is poison.
  void write_shards(Files& files) const {
    for (int rank = 0; rank < ranks; ++rank) {
      PtFile model, optim;
      Entries module;
      std::vector<Value> masters, states;
      for (const auto& group : groups) {
        std::map<std::string, std::vector<float>> flat;
        for (const Tensor& tensor : group) {
          module.emplace_back(tensor.name, model.flat({}));
          const int64_t each = (tensor.elements() + ranks - 1) / ranks;
          for (const std::string& state : SavedModel::states()) {
            auto all = values(state, tensor);
            all.resize(size_t(each * ranks), poison());
            flat[state].insert(flat[state].end(), all.begin() + rank * each,
                               all.begin() + (rank + 1) * each);
          }
        }
        const Value with_attributes =
            call(global("torch._tensor", "_rebuild_from_type_v2"),
                 {global("torch._utils", "_rebuild_tensor_v2"), global("torch", "Tensor"),
                  arguments(optim.flat(flat["master"])), dict({{"ds_id", text("1_10")}})});
        masters.push_back(with_attributes);
        states.push_back(dict({{"step", step_of(optim)},
                               {"exp_avg", optim.flat(flat["exp_avg"])},
                               {"exp_avg_sq", optim.flat(flat["exp_avg_sq"])}}));
      }
      Entries all = {{"module", dict(module)},
                     {"buffer_names", list({})},
                     {"optimizer", none()},
                     {"param_shapes", shapes()},
                     {"frozen_param_shapes", dict({{"frozen", size({2, 2})}})},
                     {"shared_params", dict({})},
                     {"frozen_param_fragments", dict({{"frozen", model.flat(fragment(rank))}})}};
      for (const auto& entry : counters()) all.push_back(entry);
      write(files, rank_file("", rank, "model_states"), model, dict(all));
      const Value torch_state =
          dict({{"state", states_of(states)},
                {"param_groups", param_groups(std::vector<size_t>(groups.size(), 1))}});
      write(
          files, rank_file("", rank, "optim_states"), optim,
          dict({{"optimizer_state_dict",
                 dict({{"zero_stage", call(global("deepspeed.runtime.zero.config", "ZeroStageEnum"),
                                           {number(3)})},
                       {"loss_scaler", scaler()},
                       {"dynamic_loss_scale", boolean(false)},
                       {"partition_count", number(ranks)},
                       {"optimizer_state_dict", torch_state},
                       {"fp32_flat_groups", list(masters)}})}}));
    }
  }

  /// The frozen parameter [2, 2] holds 1, 2, 3, 4; its last shares are padding.
  std::vector<float> fragment(int rank) const {
    std::vector<float> all = {1, 2, 3, 4};
    const size_t each = size_t((4 + ranks - 1) / ranks);
    all.resize(each * size_t(ranks), poison());
    return {all.begin() + int64_t(each) * rank, all.begin() + int64_t(each) * (rank + 1)};
  }

 private:
  /// The arguments tuple of a call that a tensor is.
  static Value arguments(const Value& tensor) {
    const std::string name = global("torch._utils", "_rebuild_tensor_v2");
    return tensor.substr(name.size(), tensor.size() - name.size() - 1);
  }
};

}  // namespace dsj::deepspeed::testing_support
