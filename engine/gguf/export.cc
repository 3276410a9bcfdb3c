#include "engine/gguf/export.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/json.h"
#include "engine/data/chat/template_sources.h"
#include "engine/data/text/text_file.h"
#include "engine/data/tokenizer/tokenizer_files.h"
#include "engine/gguf/architectures.h"
#include "engine/gguf/model_keys.h"
#include "engine/gguf/tensors.h"
#include "engine/gguf/vocabulary.h"
#include "engine/weights/adapter.h"
#include "engine/weights/tensor_check.h"
#include "engine/weights/weight_source.h"
#include "job/layout/model_config.h"

namespace dsj::gguf {
namespace {

using layout::ModelConfig;
using weights::WeightSource;

constexpr int64_t kPieceElements = 1 << 22;
constexpr uint32_t kQuantizationVersion = 2;  // version of ggml's blocks

/// ggml's file type for files with matrices of `type`.
uint32_t file_type(Type type) {
  switch (type) {
    case Type::F32:
      return 0;
    case Type::F16:
      return 1;
    case Type::Q8_0:
      return 7;
    case Type::BF16:
      return 32;
  }
  return 0;
}

/// "qwen2-0.5b-alpaca" → "Qwen2 0.5b Alpaca", as in llama.cpp's converter.
std::string title_of(std::string id) {
  std::ranges::replace(id, '-', ' ');
  std::istringstream words(id);
  std::string title, word;
  while (words >> word) {
    const bool lower = std::ranges::none_of(word, [](unsigned char c) { return std::isupper(c); });
    const bool version = std::isdigit(static_cast<unsigned char>(word[0])) ||
                         (word.size() > 1 && word[0] == 'v' &&
                          word.find_first_not_of("0123456789.", 1) == word.npos);
    if (lower && !version) {
      bool begins = true;  // each run of letters starts with a capital
      for (char& c : word) {
        const bool letter = std::isalpha(static_cast<unsigned char>(c));
        if (letter && begins) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        begins = !letter;
      }
    }
    title += (title.empty() ? "" : " ") + word;
  }
  return title;
}

std::string name_of_directory(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

std::string with_type(std::string path, Type type) {
  std::string upper(type_name(type)), lower = upper;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [field, value] : {std::pair<std::string, std::string>{"{ftype}", lower},
                                     {"{outtype}", lower},
                                     {"{FTYPE}", upper},
                                     {"{OUTTYPE}", upper}}) {
    for (size_t at; (at = path.find(field)) != path.npos;) path.replace(at, field.size(), value);
  }
  return path;
}

/// Sets the sampling parameters of generation_config.json.
void set_sampling(const nlohmann::json& generation, Keys& keys) {
  struct Field {
    const char *from, *to;
    bool whole = false;
  };
  for (const Field& field :
       {Field{"top_k", "top_k", true}, Field{"top_p", "top_p"}, Field{"min_p", "min_p"},
        Field{"temperature", "temp"}, Field{"repetition_penalty", "penalty_repeat"}}) {
    const auto value = generation.find(field.from);
    if (value == generation.end() || !value->is_number()) continue;
    const std::string key = std::string("general.sampling.") + field.to;
    if (field.whole)
      keys.set(key, value->get<int32_t>());
    else
      keys.set(key, value->get<float>());
  }
}

/// Sets the chat templates: the default one, and others by name.
Status set_templates(Files& files, const std::string& model, Keys& keys) {
  DSJ_TRY(const data::TemplateSources sources, data::template_sources(files, model));
  if (!sources.source.empty()) keys.set("tokenizer.chat_template", sources.source);
  if (sources.tool_source.empty()) return {};
  keys.set("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
  keys.set("tokenizer.chat_template.tool_use", sources.tool_source);
  return {};
}

Status set_tokenizer(Files& files, const std::string& model, int64_t vocab_size, Keys& keys,
                     std::vector<std::string>& notes) {
  if (!data::has_tokenizer(model)) {
    set_no_vocabulary(keys);
    notes.push_back("the model has no tokenizer: llama.cpp can only take ids");
    return {};
  }
  DSJ_TRY(const data::TokenizerSpec spec, data::read_tokenizer_files(files, model));
  DSJ_TRY_STATUS(set_vocabulary(files, model, spec, vocab_size, keys, notes));
  return set_templates(files, model, keys);
}

/// Reads the elements of a tensor piece by piece, in file order.
class TensorReader {
 public:
  TensorReader(const WeightSource& source, Writer& out) : source_(source), out_(out) {}

  Status copy(const Tensor& tensor) {
    if (tensor.transposed) return copy_transposed(tensor);
    int64_t width = 1;
    const auto& shape = tensor.entry.shape;
    // Rows of stacked experts are counted over the first two dimensions.
    for (size_t i = shape.size() == 3 ? 2 : 1; i < shape.size(); ++i) width *= shape[i];
    for (const Rows& rows : tensor.rows) {
      DSJ_TRY_STATUS(rows.order.empty() ? copy_rows(rows, width, tensor.plus)
                                        : copy_ordered(rows, width, tensor.plus));
    }
    return {};
  }

 private:
  Status read(const std::string& name, int64_t first, int64_t count) {
    values_.resize(static_cast<size_t>(count));
    return source_.read(name, first, values_);
  }
  Status write(float plus) {
    if (plus != 0)
      for (float& value : values_) value += plus;
    return out_.append(values_);
  }
  Status copy_rows(const Rows& rows, int64_t width, float plus) {
    const int64_t step = std::max<int64_t>(kPieceElements / width, 1);
    for (int64_t done = 0; done < rows.count; done += step) {
      const int64_t count = std::min(step, rows.count - done);
      DSJ_TRY_STATUS(read(rows.tensor, (rows.first + done) * width, count * width));
      DSJ_TRY_STATUS(write(plus));
    }
    return {};
  }
  Status copy_ordered(const Rows& rows, int64_t width, float plus) {
    DSJ_TRY_STATUS(read(rows.tensor, rows.first * width, rows.count * width));
    std::vector<float> ordered(values_.size());
    for (size_t to = 0; to < rows.order.size(); ++to)
      std::copy_n(values_.begin() + rows.order[to] * width, width,
                  ordered.begin() + static_cast<int64_t>(to) * width);
    values_.swap(ordered);
    return write(plus);
  }
  Status copy_transposed(const Tensor& tensor) {
    const int64_t out = tensor.entry.shape[0], in = tensor.entry.shape[1];
    DSJ_TRY_STATUS(read(tensor.rows[0].tensor, 0, in * out));
    std::vector<float> turned(values_.size());
    for (int64_t i = 0; i < in; ++i)
      for (int64_t o = 0; o < out; ++o)
        turned[static_cast<size_t>(o * in + i)] = values_[static_cast<size_t>(i * out + o)];
    values_.swap(turned);
    return write(tensor.plus);
  }

  const WeightSource& source_;
  Writer& out_;
  std::vector<float> values_;
};

Status write_tensors(const WeightSource& source, const std::vector<RopeTensor>& added,
                     const std::vector<Tensor>& tensors, Writer& out) {
  for (const RopeTensor& tensor : added) DSJ_TRY_STATUS(out.append(tensor.values));
  TensorReader reader(source, out);
  for (const Tensor& tensor : tensors) DSJ_TRY_STATUS(reader.copy(tensor));
  return {};
}

Status check_place(Files& files, const std::string& path) {
  DSJ_TRY(const bool occupied, files.exists(path));
  if (occupied) return bad_input("already exists", path, "remove it, or name another file");
  return {};
}

}  // namespace

Result<Exported> export_gguf(Files& files, const ExportOptions& options) {
  DSJ_TRY(const bool adapter, files.exists(path_join(options.model, weights::kAdapterConfigFile)));
  if (adapter)
    return bad_input("is an adapter, not a model", options.model,
                     "add it to its base first: dsj merge --adapter " + options.model +
                         " --output MERGED; then export MERGED");
  const std::string config_path = path_join(options.model, "config.json");
  DSJ_TRY(const nlohmann::json json, data::read_json_file(files, config_path));
  DSJ_TRY(const ModelConfig config, layout::model_config_from_json(json, config_path));
  if (config.scored)
    return bad_input("is a reward model: it has a score and no lm_head, which GGUF's readers need",
                     config_path, "transformers' AutoModelForSequenceClassification reads it");
  DSJ_TRY(const Architecture* of, architecture_of(config, config_path));
  DSJ_TRY(const WeightSource source, WeightSource::open(files, options.model));
  DSJ_TRY_STATUS(weights::check_tensors(source, layout::units_of(config)));
  const Type type =
      options.type.value_or(source.dtype() == weights::DType::F16 ? Type::F16 : Type::BF16);
  Exported done{.path = with_type(options.output, type), .architecture = of->name};
  DSJ_TRY_STATUS(check_place(files, done.path));

  Keys keys;
  keys.set("general.architecture", std::string(of->name));
  keys.set("general.type", std::string("model"));
  keys.set("general.name",
           options.name.empty() ? title_of(name_of_directory(options.model)) : options.name);
  keys.set("general.size_label", size_label(config));
  keys.set("general.file_type", file_type(type));
  keys.set("general.quantization_version", kQuantizationVersion);
  DSJ_TRY(const auto generation,
          data::json_object_of(files, path_join(options.model, "generation_config.json")));
  set_sampling(generation, keys);
  set_model_keys(config, *of, keys, done.notes);
  DSJ_TRY_STATUS(set_tokenizer(files, options.model, config.vocab_size, keys, done.notes));

  const std::vector<Tensor> tensors = tensors_of(config, *of, type);
  const std::vector<RopeTensor> added = rope_tensors(config);
  std::vector<TensorEntry> entries;
  for (const RopeTensor& tensor : added)
    entries.push_back({tensor.name, {static_cast<int64_t>(tensor.values.size())}, Type::F32});
  for (const Tensor& tensor : tensors) {
    entries.push_back(tensor.entry);
    if (type == Type::Q8_0 && tensor.entry.type == Type::F16 && tensor.entry.shape.size() > 1)
      done.notes.push_back(tensor.entry.name + " is F16: its rows of " +
                           std::to_string(tensor.entry.shape.back()) +
                           " elements do not fill blocks of 32");
  }
  done.tensors = static_cast<int64_t>(entries.size());
  DSJ_TRY(Writer out, Writer::begin(files, done.path, keys, std::move(entries)));
  DSJ_TRY_STATUS(write_tensors(source, added, tensors, out));
  DSJ_TRY(done.bytes, out.finish());
  return done;
}

}  // namespace dsj::gguf
