#include "engine/weights/new_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/json.h"
#include "engine/weights/export.h"
#include "engine/weights/weight_source.h"
#include "job/layout/model_config.h"
#include "job/layout/units.h"

namespace dsj::weights {
namespace {

constexpr int64_t kTokenizerBytesMax = int64_t{1} << 30;

/// Assigns ids as tokenizers' AddedVocabulary: after the last added token, or after the model's
/// tokens.
Result<AddedTokens> assign_ids(const std::string& text, const std::string& path,
                               const AddTokensOptions& options) {
  const auto tokenizer = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!tokenizer.is_object()) return bad_input("a JSON object is expected", path);
  std::set<std::string> known;
  const auto& vocabulary = json_child(json_child(tokenizer, "model"), "vocab");
  for (const auto& [token, id] : vocabulary.items()) {
    const bool unigram = id.is_array() && !id.empty() && id[0].is_string();  // [token, score]
    known.insert(unigram ? id[0].get<std::string>() : token);
  }
  if (known.empty()) return bad_input("has no vocabulary", path);
  auto next = static_cast<int64_t>(vocabulary.size());
  for (const auto& token : json_child(tokenizer, "added_tokens")) {
    known.insert(json_text(token, "content"));
    next = std::max(next, json_whole(token, "id").value_or(-1) + 1);
  }
  AddedTokens result;
  for (const std::string& token : options.tokens) {
    if (token.empty()) return bad_input("an empty token was given", "--tokens");
    if (known.insert(token).second)
      result.added.push_back({token, next++, options.special});
    else
      result.known.push_back(token);
  }
  if (result.added.empty())
    return bad_input("the tokenizer has all these tokens", path, "train the model as it is");
  return result;
}

/// The names in `base` of the tensors with a row per token.
Result<std::vector<std::string>> tables_of(const layout::ModelConfig& model,
                                           const WeightSource& base) {
  const auto units = layout::units_of(model);
  const auto& head = units[static_cast<size_t>(layout::head_of(units))].parameters;
  std::vector<std::string> names = {units.front().parameters.front().name};
  std::string module;  // of the output layer
  for (const auto& parameter : head) {
    if (parameter.shape[0] != model.vocab_size || parameter.shape.size() != 2) continue;
    names.push_back(parameter.name);
    module = parameter.name.substr(0, parameter.name.rfind('.'));
  }
  for (const auto& parameter : head)
    if (!module.empty() && parameter.name == module + ".bias") names.push_back(parameter.name);
  for (std::string& name : names) {
    const TensorInfo* found = base.find(name);
    if (found == nullptr) return bad_input("tensor \"" + name + "\" is missing", base.paths()[0]);
    name = found->name;
  }
  // A tied model's file may repeat the embedding as the output layer.
  const auto& embedding = base.find(names.front())->shape;
  for (const TensorInfo& tensor : base.tensors())
    if (model.tied && tensor.shape == embedding && tensor.name != names.front())
      names.push_back(tensor.name);
  return names;
}

/// Copies a tensor; then, if it is one with a row per token, adds `rows` rows of the mean.
Status write_tensor(const WeightSource& base, const TensorInfo& tensor, int64_t rows,
                    ModelExport& out) {
  const size_t columns = tensor.shape.size() == 2 ? static_cast<size_t>(tensor.shape[1]) : 1;
  std::vector<double> sums(rows > 0 ? columns : 0);
  DSJ_TRY_STATUS(base.read_rows(tensor, [&](int64_t, std::span<float> values) {
    for (size_t at = 0; rows > 0 && at < values.size(); ++at) sums[at % columns] += values[at];
    return out.append(tensor.name, values);
  }));
  if (rows == 0) return {};
  std::vector<float> mean(sums.size());
  for (size_t at = 0; at < mean.size(); ++at)
    mean[at] = static_cast<float>(sums[at] / static_cast<double>(tensor.shape[0]));
  for (int64_t row = 0; row < rows; ++row) DSJ_TRY_STATUS(out.append(tensor.name, mean));
  return {};
}

}  // namespace

Result<AddedTokens> add_tokens(Files& files, const AddTokensOptions& options) {
  DSJ_TRY(const bool occupied, files.exists(options.output));
  if (occupied)
    return bad_input("already exists", options.output, "name a directory that does not exist");
  const std::string path = path_join(options.model, "tokenizer.json");
  DSJ_TRY(const bool there, files.exists(path));
  if (!there)
    return bad_input("the model has no tokenizer.json", options.model,
                     "save its tokenizer once with transformers");
  DSJ_TRY(const std::string text, files.read_all(path, kTokenizerBytesMax));
  DSJ_TRY(AddedTokens result, assign_ids(text, path, options));
  const std::string config_path = path_join(options.model, "config.json");
  DSJ_TRY(const std::string config_text, files.read_all(config_path));
  const auto config = nlohmann::json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  DSJ_TRY(const auto model, layout::model_config_from_json(config, config_path));
  if (model.layer_input > 0)
    return bad_input("new rows of the second embedding (" + std::string(model.names.layer_table) +
                         ", hidden_size_per_layer_input) are not built",
                     config_path, "use tokens that the tokenizer has");
  DSJ_TRY(const auto base, WeightSource::open(files, options.model));
  DSJ_TRY(const auto tables, tables_of(model, base));
  result.rows_before = result.rows = model.vocab_size;
  const int64_t needed = result.added.back().id + 1;
  if (needed > result.rows)
    result.rows = (needed + options.multiple - 1) / options.multiple * options.multiple;
  std::vector<ExportTensor> tensors;
  for (const TensorInfo& tensor : base.tensors()) {
    if (!is_weight_dtype(tensor.dtype)) {
      result.left_out.push_back(tensor.name);
      continue;
    }
    tensors.push_back({tensor.name, tensor.shape, tensor.dtype});
    if (std::ranges::find(tables, tensor.name) != tables.end()) {
      if (tensor.shape[0] != model.vocab_size)
        return bad_input("tensor \"" + tensor.name + "\" has " + std::to_string(tensor.shape[0]) +
                             " rows, expected vocab_size, " + std::to_string(model.vocab_size),
                         base.paths()[0]);
      tensors.back().shape[0] = result.rows;
    }
  }
  DSJ_TRY_STATUS(files.make_dirs(path_parent(options.output)));
  DSJ_TRY(auto out, ModelExport::begin(files,
                                       {.source_dir = options.model,
                                        .target_dir = options.output,
                                        .dtype = base.dtype(),
                                        .shard_bytes_max = options.shard_bytes_max,
                                        .vocabulary = NewVocabulary{result.added, result.rows},
                                        .is_replaced_later = false},
                                       tensors));
  for (const ExportTensor& tensor : tensors) {
    const TensorInfo& info = *base.find(tensor.name);
    const bool grows = std::ranges::find(tables, tensor.name) != tables.end();
    DSJ_TRY_STATUS(write_tensor(base, info, grows ? result.rows - result.rows_before : 0, out));
  }
  DSJ_TRY_STATUS(out.publish());
  return result;
}

}  // namespace dsj::weights
