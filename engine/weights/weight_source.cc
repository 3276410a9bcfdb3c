#include "engine/weights/weight_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "common/check.h"
#include "common/files/file_form.h"
#include "common/json_depth.h"
#include "engine/weights/adapter_files.h"
#include "engine/weights/formats/torch_file.h"
#include "engine/weights/formats/weight_type.h"
#include "job/layout/units.h"

namespace dsj::weights {
namespace {

/// The order in which files are tried.
constexpr const char* kFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                  "pytorch_model.bin", "pytorch_model.bin.index.json"};
constexpr int64_t kIndexBytesMax = 100'000'000;
constexpr int64_t kConfigBytesMax = 16 << 20;
/// 16-bit weights are converted through a buffer that stays in the cache.
constexpr size_t kReadAtOnce = 128 * 1024;

std::unexpected<Error> no_weights(Files& files, const std::string& directory) {
  if (!files.exists(directory).value_or(false)) {
    return bad_input("the model directory does not exist", directory);
  }
  for (const DirEntry& entry : files.list_dir(directory).value_or(std::vector<DirEntry>())) {
    if (entry.name.ends_with(".gguf")) {
      return bad_input(
          "holds GGUF files, whose weights are quantised for llama.cpp (" + entry.name + ")",
          directory, "take the Hugging Face model that it was made from (safetensors)");
    }
    if (entry.name == kAdapterWeightsFile) {
      return bad_input("holds a LoRA adapter and not its model", directory,
                       "dsj merge --base DIR --adapter " + directory + " -o OUT makes one model");
    }
  }
  std::string names;
  for (const char* name : kFiles) names += (names.empty() ? "" : ", ") + std::string(name);
  return bad_input("there are no weights: none of " + names, directory,
                   "a Hugging Face model directory is expected");
}

Result<std::vector<TensorInfo>> read_safetensors(const ReadFile& file, const std::string& path) {
  std::string prefix(size_t(std::min(kHeaderPrefixBytes, file.size())), '\0');
  DSJ_TRY_STATUS(file.read(0, std::as_writable_bytes(std::span(prefix))));
  DSJ_TRY(const int64_t header_bytes, safetensors_header_bytes(prefix, file.size(), path));
  std::string json(size_t(header_bytes), '\0');
  DSJ_TRY_STATUS(file.read(kHeaderPrefixBytes, std::as_writable_bytes(std::span(json))));
  DSJ_TRY(auto header, parse_safetensors_header(json, file.size(), path));
  return std::move(header.tensors);
}

/// Error: the tensors are a quantised model's, which cannot be trained.
Status refuse_quantised(const std::vector<TensorInfo>& tensors, const std::string& path) {
  struct Mark {
    std::string_view suffix;
    const char* by;
  };
  constexpr Mark kMarks[] = {{".qweight", "GPTQ or AWQ"},
                             {".qzeros", "GPTQ or AWQ"},
                             {".absmax", "bitsandbytes, in 4 bits"},
                             {".quant_state.bitsandbytes__nf4", "bitsandbytes, in 4 bits"},
                             {".quant_state.bitsandbytes__fp4", "bitsandbytes, in 4 bits"},
                             {".SCB", "bitsandbytes, in 8 bits"},
                             {".weight_scale", "compressed-tensors or 8-bit floats"},
                             {".weight_packed", "compressed-tensors"},
                             {".W_q", "HQQ"}};
  for (const TensorInfo& tensor : tensors) {
    for (const Mark& mark : kMarks) {
      if (!tensor.name.ends_with(mark.suffix)) continue;
      return bad_input(std::string("holds quantised weights (") + mark.by + ": tensor \"" +
                           tensor.name + "\"), and those are not trained",
                       path, "use the 16- or 32-bit model that they were made from");
    }
  }
  return {};
}

/// File name per tensor, from an index's weight_map.
Result<std::map<std::string, std::string>> read_weight_map(Files& files, const std::string& path) {
  DSJ_TRY(const std::string text, files.read_all(path, kIndexBytesMax));
  if (const auto form = file_form(text)) {
    return bad_input("is " + std::string(form->name) + ", expected an index of weights", path,
                     std::string(form->remedy));
  }
  const auto index = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (index.is_discarded() || !index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object()) {
    return bad_input("no JSON object with a \"weight_map\" object", path);
  }
  std::map<std::string, std::string> files_by_tensor;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    // A file beside the index, never a path, because the index is not trusted.
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
      return bad_input("weight_map[\"" + tensor + "\"] is not the name of a file beside the index",
                       path);
    }
    files_by_tensor[tensor] = name;
  }
  if (files_by_tensor.empty()) return bad_input("the weight_map is empty", path);
  return files_by_tensor;
}

}  // namespace

Result<WeightSource> WeightSource::open(Files& files, const std::string& directory) {
  WeightSource source;
  std::string found;
  for (const char* name : kFiles) {
    DSJ_TRY(const bool there, files.exists(path_join(directory, name)));
    if (found.empty() && there) found = name;
  }
  if (found.empty()) return no_weights(files, directory);
  if (found.ends_with(".json")) {
    DSJ_TRY_STATUS(source.add_index(files, directory, path_join(directory, found)));
  } else {
    DSJ_TRY_STATUS(source.add_file(files, path_join(directory, found)));
  }
  DSJ_TRY_STATUS(source.unpack(files, directory));
  source.sort();
  source.join_experts(files, directory);
  return source;
}

Result<WeightSource> WeightSource::open_file(Files& files, const std::string& path) {
  WeightSource source;
  DSJ_TRY_STATUS(source.add_file(files, path));
  source.sort();
  return source;
}

/// The model's config.json, if it can be read.
static Result<layout::ModelConfig> model_of(const std::string& config_json) {
  if (json_depth(config_json) > kJsonDepthMax)
    return bad_input("is nested too deep", "config.json");
  const auto parsed = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  return layout::model_config_from_json(parsed, "config.json");
}

/// A tied model's file may have only the head, which is then the embedding, as in transformers.
static void name_tied_head(std::vector<TensorInfo>& tensors, const std::string& config_json) {
  const auto model = model_of(config_json);
  if (!model || !model->tied) return;
  const auto called = [&](const std::string& name) {
    const std::string bare = layout::name_without_prefix(name);
    return std::ranges::find_if(tensors, [&](const TensorInfo& tensor) {
      return tensor.name == name || (!bare.empty() && tensor.name == bare);
    });
  };
  const std::string embedding = layout::units_of(*model).front().parameters.front().name;
  const auto head = called(std::string(model->names.head) + ".weight");
  if (head != tensors.end() && called(embedding) == tensors.end()) head->name = embedding;
}

Status WeightSource::unpack(Files& files, const std::string& directory) {
  const auto config = files.read_all(path_join(directory, "config.json"), kConfigBytesMax);
  if (config) name_tied_head(tensors_, *config);
  const auto packs = [](const TensorInfo& tensor) {
    return (tensor.dtype == DType::U8 && tensor.name.ends_with("_blocks")) ||
           tensor.name.ends_with("_scale_inv");
  };
  if (std::ranges::none_of(tensors_, packs)) return {};
  std::map<std::string, TensorPlace> places;
  std::map<std::string, size_t> source_of;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Source& source = sources_[source_of_[i]];
    source_of[tensors_[i].name] = source_of_[i];
    places[tensors_[i].name] = {tensors_[i], source.file.get(), source.path};
  }
  DSJ_TRY(auto unpacked, packed_.take(places, scale_block_of(config.value_or(""))));
  tensors_.clear();
  source_of_.clear();
  by_name_.clear();
  const auto add = [&](TensorInfo info, size_t source) {
    tensors_.push_back(std::move(info));
    source_of_.push_back(source);
  };
  for (auto& [name, place] : places) add(std::move(place.info), source_of[name]);
  for (TensorInfo& info : unpacked) {
    const size_t source = source_of[packed_.codes(info.name)];
    add(std::move(info), source);
  }
  return {};
}

void WeightSource::join_experts(Files& files, const std::string& directory) {
  const auto config = files.read_all(path_join(directory, "config.json"), kConfigBytesMax);
  const auto model = model_of(config.value_or(""));
  if (!model || !model->experts.stacked || model->experts.turned) return;
  const int64_t rows = model->experts.inner, columns = model->hidden_size;
  std::set<std::string> gone;
  std::vector<std::pair<TensorInfo, size_t>> whole;
  for (const layout::UnitSpec& unit : layout::units_of(*model)) {
    for (const layout::Parameter& parameter : unit.parameters) {
      if (!parameter.routed || find(parameter.name)) continue;
      const bool up = parameter.name.ends_with(model->names.stacked_up);
      const std::string base = parameter.name.substr(0, parameter.name.rfind('.') + 1);
      const std::vector<int64_t> shape =
          up ? std::vector{rows, columns} : std::vector{columns, rows};
      Joined joined;
      for (int64_t expert = 0; expert < model->experts.count; ++expert) {
        for (const char* part :
             {model->names.expert_gate, model->names.expert_up, model->names.expert_down}) {
          if (up == (part == model->names.expert_down)) continue;
          const auto found = place_of(base + std::to_string(expert) + "." + part + ".weight");
          if (found == by_name_.end() || tensors_[found->second].shape != shape) continue;
          joined.parts.push_back(tensors_[found->second]);
          joined.source_of.push_back(source_of_[found->second]);
        }
      }
      // Incomplete ones are left out; reading them is then an error.
      if (std::ssize(joined.parts) != model->experts.count * (up ? 2 : 1)) continue;
      for (const TensorInfo& part : joined.parts) gone.insert(part.name);
      whole.push_back({{.name = parameter.name,
                        .dtype = joined.parts[0].dtype,
                        .shape = parameter.shape,
                        .elements = parameter.numel()},
                       joined.source_of[0]});
      joined_[parameter.name] = std::move(joined);
    }
  }
  if (whole.empty()) return;
  std::vector<TensorInfo> tensors;
  std::vector<size_t> source_of;
  const auto add = [&](const TensorInfo& tensor, size_t source) {
    tensors.push_back(tensor);
    source_of.push_back(source);
  };
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (!gone.contains(tensors_[i].name)) add(tensors_[i], source_of_[i]);
  for (const auto& [tensor, source] : whole) add(tensor, source);
  tensors_ = std::move(tensors);
  source_of_ = std::move(source_of);
  sort();
}

void WeightSource::sort() {
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) -> const std::string& { return tensors_[i].name; });
  std::vector<TensorInfo> tensors;
  std::vector<size_t> source_of;
  by_name_.clear();
  for (const size_t i : order) {
    by_name_[tensors_[i].name] = tensors.size();
    tensors.push_back(std::move(tensors_[i]));
    source_of.push_back(source_of_[i]);
  }
  tensors_ = std::move(tensors);
  source_of_ = std::move(source_of);
}

Status WeightSource::add_file(Files& files, const std::string& path) {
  DSJ_TRY(auto file, files.open_read(path));
  if (file->size() == 0)
    return bad_input("is empty, expected weights", path, "copy or download it again");
  auto read = path.ends_with(".safetensors") ? read_safetensors : read_torch_file;
  auto tensors = read(*file, path);
  if (!tensors) {
    DSJ_TRY_STATUS(refuse_other_form(*file, path, "weights"));
    return std::unexpected(tensors.error());
  }
  DSJ_TRY_STATUS(refuse_quantised(*tensors, path));
  for (TensorInfo& tensor : *tensors) {
    const auto [other, is_new] = by_name_.emplace(tensor.name, tensors_.size());
    if (!is_new) {
      return bad_input("tensor \"" + tensor.name + "\" is in " +
                           sources_[source_of_[other->second]].path + " too",
                       path);
    }
    tensors_.push_back(std::move(tensor));
    source_of_.push_back(sources_.size());
  }
  sources_.push_back({path, std::move(file)});
  return {};
}

Status WeightSource::add_index(Files& files, const std::string& directory,
                               const std::string& index_path) {
  DSJ_TRY(const auto files_by_tensor, read_weight_map(files, index_path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : files_by_tensor) names.insert(file);
  for (const std::string& name : names) {
    const std::string path = path_join(directory, name);
    DSJ_TRY(const bool there, files.exists(path));
    if (!there) {
      return bad_input("the index names " + name + ", which is not there", index_path,
                       "download or copy all shards of the model");
    }
    DSJ_TRY_STATUS(add_file(files, path));
  }
  for (const auto& [tensor, file] : files_by_tensor) {
    const auto found = by_name_.find(tensor);
    if (found == by_name_.end() ||
        sources_[source_of_[found->second]].path != path_join(directory, file)) {
      return bad_input(
          "the index says that " + file + " holds tensor \"" + tensor + "\", it does not",
          index_path);
    }
  }
  return {};
}

std::map<std::string, size_t>::const_iterator WeightSource::place_of(
    const std::string& name) const {
  const auto exact = by_name_.find(name);
  const std::string bare = layout::name_without_prefix(name);
  if (exact != by_name_.end() || bare.empty()) return exact;
  const auto without = by_name_.find(bare);
  constexpr std::string_view kModel = "model.";
  if (without != by_name_.end() || !name.starts_with(kModel)) return without;
  return by_name_.find("model.language_model." + bare);
}

const TensorInfo* WeightSource::find(const std::string& name) const {
  const auto found = place_of(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

DType WeightSource::dtype() const {
  std::map<DType, int64_t> bytes;
  for (const TensorInfo& tensor : tensors_) bytes[tensor.dtype] += tensor.bytes();
  if (bytes.empty()) return DType::F32;
  return std::ranges::max_element(bytes, {}, [](const auto& row) { return row.second; })->first;
}

std::vector<std::string> WeightSource::paths() const {
  std::vector<std::string> paths;
  for (const Source& source : sources_) paths.push_back(source.path);
  return paths;
}

Status WeightSource::read_rows(
    const TensorInfo& tensor, const std::function<Status(int64_t, std::span<float>)>& visit) const {
  constexpr int64_t kPieceElements = 1 << 20;
  const int64_t columns = tensor.shape.size() == 2 ? std::max<int64_t>(tensor.shape[1], 1) : 1;
  const int64_t piece = std::max<int64_t>(kPieceElements / columns, 1) * columns;
  std::vector<float> values(std::min(piece, tensor.elements));
  for (int64_t done = 0; done < tensor.elements; done += piece) {
    const auto part =
        std::span(values).first(static_cast<size_t>(std::min(piece, tensor.elements - done)));
    DSJ_TRY_STATUS(read(tensor.name, done, part));
    DSJ_TRY_STATUS(visit(done, part));
  }
  return {};
}

Status WeightSource::read(const std::string& name, int64_t offset, std::span<float> out) const {
  const auto found = place_of(name);
  if (found == by_name_.end()) {
    return bad_input("there is no tensor \"" + name + "\"",
                     sources_.empty() ? "" : path_parent(sources_.front().path));
  }
  const TensorInfo& tensor = tensors_[found->second];
  DSJ_CHECK(
      offset >= 0 && offset <= tensor.elements && int64_t(out.size()) <= tensor.elements - offset,
      "%s: elements %lld + %zu of %lld", name.c_str(), (long long)offset, out.size(),
      (long long)tensor.elements);
  const auto joined = joined_.find(tensor.name);
  if (joined == joined_.end()) return read_from(tensor, source_of_[found->second], offset, out);
  const int64_t each = joined->second.parts[0].elements;
  while (!out.empty()) {
    const auto part = static_cast<size_t>(offset / each);
    const auto count = std::min(out.size(), static_cast<size_t>(each - offset % each));
    DSJ_TRY_STATUS(read_from(joined->second.parts[part], joined->second.source_of[part],
                             offset % each, out.first(count)));
    offset += static_cast<int64_t>(count);
    out = out.subspan(count);
  }
  return {};
}

Status WeightSource::read_from(const TensorInfo& tensor, size_t place, int64_t offset,
                               std::span<float> out) const {
  const Source& source = sources_[place];
  if (packed_.has(tensor.name)) return packed_.read(tensor.name, offset, out);
  DSJ_TRY_STATUS(check_weight_type(tensor, source.path));
  int64_t position = tensor.begin + offset * dtype_bytes(tensor.dtype);
  if (tensor.dtype == DType::F32) return source.file->read(position, std::as_writable_bytes(out));

  const auto convert = tensor.dtype == DType::BF16 ? bf16_to_float : fp16_to_float;
  std::vector<uint16_t> staged(std::min(out.size(), kReadAtOnce));
  while (!out.empty()) {
    const std::span<uint16_t> part = std::span(staged).first(std::min(out.size(), staged.size()));
    DSJ_TRY_STATUS(source.file->read(position, std::as_writable_bytes(part)));
    convert(part, out.first(part.size()));
    position += int64_t(part.size_bytes());
    out = out.subspan(part.size());
  }
  return {};
}

}  // namespace dsj::weights
