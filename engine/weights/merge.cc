#include "engine/weights/merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/weights/adapter.h"
#include "engine/weights/expert_update.h"
#include "engine/weights/export.h"
#include "engine/weights/tensor_check.h"
#include "engine/weights/weight_source.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "job/layout/units.h"

namespace dsj::weights {
namespace {

/// The change of one tensor of the base: a replacement, an update, or an update of the replacement.
struct Change {
  std::string module;      ///< as PEFT names it
  std::string whole;       ///< the replacement: a saved module, or the layer below the adapter
  std::string a, b;        ///< the adapter's tensors,
  std::string magnitude;   ///< and DoRA's
  bool embedding = false;  ///< A and B are an embedding's
  std::optional<ExpertChange> experts = {};  ///< or what an adapter of all experts adds

  bool updates() const { return experts || !a.empty() || !b.empty() || !magnitude.empty(); }
};

Error bad(const std::string& message, const std::string& where) {
  return {ErrorKind::BadInput, message, where, {}};
}

/// The base's name for a tensor. Files may be saved from the bare model, without its prefix; and
/// the text part of a vision model has other names in files than in PEFT.
std::optional<std::string> base_name_of(const WeightSource& base, const std::string& name) {
  std::vector<std::string> names = {name, name.substr(name.find('.') + 1)};
  constexpr std::string_view kTextPart = "model.language_model.";
  if (name.starts_with(kTextPart))
    for (const char* base_name : {"language_model.model.", "model."})
      names.push_back(base_name + name.substr(kTextPart.size()));
  for (const std::string& one : names)
    if (const TensorInfo* found = base.find(one)) return found->name;
  return std::nullopt;
}

/// What adapters of experts and routers change, by name in the base. `own` gets their tensors' names.
Result<std::map<std::string, Change>> changes_of_parameters(
    const std::optional<layout::ModelConfig>& model, const LoraArgs& lora, const WeightSource& base,
    std::set<std::string>& own) {
  std::map<std::string, Change> changes;
  if (lora.target_parameters.empty()) return changes;
  if (!model)
    return bad_input("the adapter is on experts, whose tensors are not known for this model type",
                     base.paths()[0], "`dsj plan` says what its config.json lacks");
  DSJ_TRY(const auto of_experts, expert_changes(*model, lora));
  for (const auto& [weight, change] : of_experts) {
    const auto name = base_name_of(base, weight);
    if (!name)
      return bad_input("there is no tensor \"" + weight + "\", which the adapter changes",
                       base.paths()[0]);
    changes[*name].experts = change;
    own.insert(change.a);
    own.insert(change.b);
  }
  return changes;
}

/// The adapter's tensors by their names in the base. `tied`: the second copy of a tied weight goes
/// where the first one does. `changes`: those of the tensors in `done`.
Result<std::map<std::string, Change>> changes_of(const WeightSource& base,
                                                 const WeightSource& adapter, bool dora,
                                                 const std::optional<layout::TiedPair>& tied,
                                                 std::map<std::string, Change> changes,
                                                 const std::set<std::string>& done) {
  const std::string where = adapter.paths()[0];
  for (const TensorInfo& tensor : adapter.tensors()) {
    if (done.contains(tensor.name)) continue;
    const std::string own = tensor.name.substr(std::string_view(kAdapterPrefix).size());
    std::string target = own;
    constexpr std::string_view kBelow = ".base_layer.weight";
    if (is_adapter_tensor(own))  // "X.lora_A.weight" changes "X.weight"
      target = adapted_module(own) + ".weight";
    else if (own.ends_with(kBelow))
      target = own.substr(0, own.size() - kBelow.size()) + ".weight";
    const auto base_name = base_name_of(base, target);
    if (!base_name && tied && own == tied->head) continue;
    if (!base_name)
      return std::unexpected(
          bad("tensor \"" + tensor.name + "\" has no place in " + base.paths()[0], where));
    Change& change = changes[*base_name];
    change.embedding |= own.contains(".lora_embedding_");
    const std::string_view kind = std::string_view(own).substr(adapted_module(own).size());
    (!is_adapter_tensor(own)                                   ? change.whole
     : kind == ".lora_A.weight" || kind == ".lora_embedding_A" ? change.a
     : kind == ".lora_B.weight" || kind == ".lora_embedding_B" ? change.b
                                                               : change.magnitude) = tensor.name;
    if (is_adapter_tensor(own)) change.module = adapted_module(own);
  }
  for (const auto& [name, change] : changes) {
    if (!change.updates() || change.experts) continue;
    if (change.a.empty() || change.b.empty())
      return std::unexpected(bad("\"" + name + "\" has a lora_A or a lora_B, not both", where));
    if (change.magnitude.empty() == dora)
      return std::unexpected(bad("\"" + name + "\" has " + (dora ? "no" : "a") +
                                     " lora_magnitude_vector, and use_dora is " +
                                     (dora ? "true" : "false"),
                                 where));
  }
  return changes;
}

/// Refuses a file without a module that its configuration names as saved: the base's would stay.
Status check_saved(const WeightSource& base, const WeightSource& adapter,
                   const std::vector<std::string>& saved) {
  const auto has = [](const WeightSource& source, const std::string& module) {
    return std::ranges::any_of(source.tensors(), [&](const TensorInfo& tensor) {
      return ("." + tensor.name).contains("." + module + ".");
    });
  };
  for (const std::string& module : saved)
    if (has(base, module) && !has(adapter, module))
      return bad_input("lacks \"" + module + "\", which adapter_config.json has in modules_to_save",
                       adapter.paths()[0], "save the adapter with it, or remove it from the list");
  return {};
}

/// The base's config.json. `model`: nullopt for a type that is not built.
struct Base {
  bool tied = false;
  std::optional<layout::ModelConfig> model;
};

Result<Base> read_base(Files& files, const std::string& directory) {
  const std::string path = path_join(directory, "config.json");
  DSJ_TRY(const std::string text, files.read_all(path));
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return bad_input("a JSON object is expected", path);
  auto model = layout::model_config_from_json(config, path);
  // Families differ in the default of tie_word_embeddings.
  if (model) return Base{.tied = model->tied, .model = std::move(*model)};
  return Base{.tied = config.value("tie_word_embeddings", nlohmann::json()) == true};
}

/// The tied weight that the adapter replaces as one; nullopt if it does not say so.
Result<std::optional<layout::TiedPair>> tied_weight(const Base& base, const AdapterConfig& config,
                                                    const WeightSource& adapter) {
  if (!base.tied || !base.model || !config.lora.ensure_weight_tying)
    return std::optional<layout::TiedPair>();
  auto tied = layout::tied_pair(*base.model, config.lora);
  if (adapter.find(kAdapterPrefix + tied->head) == nullptr)
    return std::optional<layout::TiedPair>();
  DSJ_TRY_STATUS(check_tied_copies(adapter, *tied));
  return tied;
}

/// Refuses a changed embedding of a tied model: PEFT has separated it from the output layer, but this
/// file has one tensor for both.
Status refuse_untied(const Base& base, const MergeOptions& options,
                     const std::map<std::string, Change>& changes) {
  if (!base.tied) return {};
  const std::string table =
      base.model ? layout::units_of(*base.model).front().parameters.front().name : std::string();
  for (const auto& [name, change] : changes) {
    const bool embedding =
        base.model ? name == table || name == layout::name_without_prefix(table)
                   : name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight");
    if (embedding)
      return bad_input("the adapter changes \"" + name +
                           "\", which is the output layer too (tie_word_embeddings), without "
                           "\"ensure_weight_tying\"",
                       options.adapter);
  }
  return {};
}

/// Updates a weight, some rows at a time. Stored [out, in]: W[o, i] += s sum_k B[o, k] A[k, i].
/// With DoRA each row then gets its magnitude as its length.
/// Stored [in, out]: W[i, o] += s sum_k A[k, i] B[o, k].
class Update {
 public:
  static Result<Update> open(const WeightSource& adapter, const Change& change,
                             const TensorInfo& weight, const AdapterConfig& config) {
    Update update;
    DSJ_TRY(update.a_, read_matrix(adapter, change.a));
    DSJ_TRY(update.b_, read_matrix(adapter, change.b));
    DSJ_TRY(const auto own, layout::rank_and_scaling(config.lora, change.module));
    update.scaling_ = static_cast<float>(own.scaling);
    if (!change.magnitude.empty()) {
      update.magnitude_.resize(static_cast<size_t>(adapter.find(change.magnitude)->elements));
      DSJ_TRY_STATUS(adapter.read(change.magnitude, 0, update.magnitude_));
    }
    update.in_out_ = config.fan_in_fan_out || change.embedding;
    if (update.a_.rows != own.rank)
      return std::unexpected(bad("tensor \"" + change.a + "\" has rank " +
                                     std::to_string(update.a_.rows) +
                                     ", adapter_config.json says " + std::to_string(own.rank),
                                 adapter.paths()[0]));
    std::vector<int64_t> shape = {update.b_.rows, update.a_.columns};
    if (update.in_out_) std::swap(shape[0], shape[1]);
    const auto text = [](const std::vector<int64_t>& sizes) {
      return nlohmann::json(sizes).dump();
    };
    if (!update.magnitude_.empty() && (update.in_out_ || std::ssize(update.magnitude_) != shape[0]))
      return std::unexpected(bad("tensor \"" + change.magnitude + "\" is not built for \"" +
                                     weight.name + "\" of shape " + text(weight.shape),
                                 adapter.paths()[0]));
    if (update.a_.rows != update.b_.columns || weight.shape != shape) {
      return std::unexpected(bad("tensor \"" + weight.name + "\" has shape " + text(weight.shape) +
                                     ", its adapter is for " + text(shape) + " with rank " +
                                     std::to_string(update.a_.rows) + " and " +
                                     std::to_string(update.b_.columns),
                                 adapter.paths()[0]));
    }
    return update;
  }

  /// Adds to rows [first, first + rows) of the weight.
  void add(int64_t first, int64_t rows, std::span<float> values) const {
    const int64_t columns = in_out_ ? b_.rows : a_.columns, rank = a_.rows;
    std::vector<float> delta(columns);
    for (int64_t row = 0; row < rows; ++row) {
      std::ranges::fill(delta, 0.0f);
      for (int64_t k = 0; k < rank; ++k) add_rank(k, first + row, delta);
      float* out = values.data() + row * columns;
      for (int64_t i = 0; i < columns; ++i) out[i] += scaling_ * delta[i];
      if (magnitude_.empty()) continue;
      double squares = 0;
      for (int64_t i = 0; i < columns; ++i) squares += static_cast<double>(out[i]) * out[i];
      const auto factor = static_cast<float>(magnitude_[first + row] / std::sqrt(squares));
      for (int64_t i = 0; i < columns; ++i) out[i] *= factor;
    }
  }

 private:
  void add_rank(int64_t k, int64_t row, std::span<float> delta) const {
    if (in_out_) {
      const float factor = a_.values[k * a_.columns + row];
      for (size_t o = 0; o < delta.size(); ++o) delta[o] += factor * b_.values[o * b_.columns + k];
      return;
    }
    const float factor = b_.values[row * b_.columns + k];
    const float* a = a_.values.data() + k * a_.columns;
    for (size_t i = 0; i < delta.size(); ++i) delta[i] += factor * a[i];
  }

  Matrix a_, b_;
  std::vector<float> magnitude_;  ///< DoRA's, of each row; empty: none
  float scaling_ = 1;
  bool in_out_ = false;
};

Status copy_tensor(const WeightSource& base, const TensorInfo& tensor, const WeightSource& adapter,
                   const Change* change, const AdapterConfig& config, MatrixReader& matrices,
                   ModelExport& out) {
  const bool replaced = change && !change->whole.empty(), updated = change && change->updates();
  const WeightSource& source = replaced ? adapter : base;
  const std::string& name = replaced ? change->whole : tensor.name;
  if (replaced && source.find(name)->shape != tensor.shape)
    return std::unexpected(
        bad("tensor \"" + name + "\" has another shape than the base's", adapter.paths()[0]));
  std::optional<Update> update;
  std::optional<ExpertUpdate> of_experts;
  if (updated && change->experts) {
    DSJ_TRY(auto opened, ExpertUpdate::open(matrices, *change->experts, tensor));
    of_experts.emplace(std::move(opened));
  } else if (updated) {
    DSJ_TRY(auto opened, Update::open(adapter, *change, tensor, config));
    update.emplace(std::move(opened));
  }
  return source.read_rows(*source.find(name),
                          [&](int64_t first, std::span<float> values) -> Status {
                            if (replaced) DSJ_TRY_STATUS(check_finite(values, name, adapter));
                            if (update) {
                              const int64_t columns = tensor.shape[1];
                              update->add(first / columns, std::ssize(values) / columns, values);
                            }
                            if (of_experts) of_experts->add(first, values);
                            return out.append(tensor.name, values);
                          });
}

}  // namespace

Result<Merged> merge_adapter(Files& files, const MergeOptions& options) {
  DSJ_TRY(const bool occupied, files.exists(options.output));
  if (occupied)
    return bad_input("already exists", options.output, "name a directory that does not exist");
  DSJ_TRY(const AdapterConfig config, read_adapter_config(files, options.adapter));
  DSJ_TRY(const auto base, WeightSource::open(files, options.base));
  DSJ_TRY(const auto adapter, open_adapter_weights(files, options.adapter));
  DSJ_TRY(const Base model, read_base(files, options.base));
  DSJ_TRY(const auto tied, tied_weight(model, config, adapter));
  std::set<std::string> done;
  DSJ_TRY(auto of_parameters, changes_of_parameters(model.model, config.lora, base, done));
  DSJ_TRY(const auto changes,
          changes_of(base, adapter, config.lora.use_dora, tied, std::move(of_parameters), done));
  DSJ_TRY_STATUS(check_saved(base, adapter, config.lora.modules_to_save));
  if (!tied) DSJ_TRY_STATUS(refuse_untied(model, options, changes));
  MatrixReader matrices(adapter);
  Merged merged;
  std::vector<ExportTensor> tensors;
  std::vector<const TensorInfo*> infos;
  for (const TensorInfo& tensor : base.tensors()) {
    if (!is_weight_dtype(tensor.dtype)) {
      merged.left_out.push_back(tensor.name);
      continue;
    }
    tensors.push_back({tensor.name, tensor.shape, tensor.dtype});
    infos.push_back(&tensor);
  }
  DSJ_TRY_STATUS(files.make_dirs(path_parent(options.output)));
  DSJ_TRY(auto out, ModelExport::begin(files,
                                       {.source_dir = options.base,
                                        .target_dir = options.output,
                                        .dtype = base.dtype(),
                                        .shard_bytes_max = options.shard_bytes_max,
                                        .is_replaced_later = false},
                                       tensors));
  for (const TensorInfo* tensor : infos) {
    const auto found = changes.find(tensor->name);
    const Change* change = found == changes.end() ? nullptr : &found->second;
    DSJ_TRY_STATUS(copy_tensor(base, *tensor, adapter, change, config, matrices, out));
    ++merged.tensors;
    if (change) ++(change->updates() ? merged.updated : merged.replaced);
  }
  DSJ_TRY_STATUS(out.publish());
  return merged;
}

}  // namespace dsj::weights
