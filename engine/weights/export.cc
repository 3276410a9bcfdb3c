#include "engine/weights/export.h"

#include <array>
#include <nlohmann/json.hpp>

#include "engine/weights/export_record.h"

namespace dsj::weights {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
constexpr char kTokenizerConfigFile[] = "tokenizer_config.json";
constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kCardFile[] = "README.md";
constexpr int64_t kConfigBytesMax = 16 << 20;
constexpr int64_t kCopyBytesMax = int64_t{1} << 30;

/// Copied unchanged if they exist.
constexpr std::array kCopiedFiles = {kGenerationFile,
                                     "tokenizer.json",
                                     kTokenizerConfigFile,
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "vocab.json",
                                     "merges.txt",
                                     "tokenizer.model",
                                     "qwen.tiktoken",
                                     kTemplateFile,
                                     "chat_template.json",
                                     "preprocessor_config.json",
                                     "processor_config.json",
                                     "video_preprocessor_config.json"};

std::string staging_dir(const std::string& target) {
  return hidden_beside(target, ".staging");
}
std::string old_dir(const std::string& target) {
  return hidden_beside(target, ".old");
}

/// The first unused of `path`, path-2, path-3 ...
Result<std::string> free_path(Files& files, const std::string& path) {
  std::string free = path;
  for (int i = 2;; ++i) {
    DSJ_TRY(const bool taken, files.exists(free));
    if (!taken) return free;
    free = path + "-" + std::to_string(i);
  }
}

/// Removes the packing settings, because weights are written unpacked.
void forget_packing(nlohmann::ordered_json& object) {
  const auto packing = object.find("quantization_config");
  if (packing == object.end() || !packing->is_object()) return;
  const auto method = packing->value("quant_method", nlohmann::ordered_json());
  if (method == "mxfp4" || method == "fp8") object.erase(packing);
}

/// config.json with the weights' dtype and without packing, otherwise unchanged and in order.
Result<std::string> updated_config(Files& files, const std::string& path, DType dtype,
                                   const std::optional<RewardModel>& reward) {
  DSJ_TRY(const std::string text, files.read_all(path, kConfigBytesMax));
  auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return bad_input("a JSON object is expected", path);
  forget_packing(config);
  if (config.contains("text_config") && config["text_config"].is_object())
    forget_packing(config["text_config"]);
  if (reward) {
    config["architectures"] = nlohmann::ordered_json::array({reward->architecture});
    config.erase("num_labels");
    config["id2label"] = nlohmann::ordered_json::object({{"0", "LABEL_0"}});
    config["label2id"] = nlohmann::ordered_json::object({{"LABEL_0", 0}});
    config["pad_token_id"] = reward->pad;
  }
  const std::string name(config_dtype_name(dtype));
  // transformers 5 renamed torch_dtype to dtype, and reads both.
  const bool has_new_name = config.contains("dtype");
  if (has_new_name) config["dtype"] = name;
  if (!has_new_name || config.contains("torch_dtype")) config["torch_dtype"] = name;
  return config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// tokenizer_config.json without its chat template, otherwise in order: transformers 5 writes the
/// template to its own file.
std::string without_template(const std::string& content) {
  auto config = nlohmann::ordered_json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || config.erase("chat_template") == 0) return content;
  return config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

Status recover_export(Files& files, const std::string& target_dir) {
  DSJ_TRY(const bool has_old, files.exists(old_dir(target_dir)));
  if (!has_old) return {};
  DSJ_TRY(const bool has_target, files.exists(target_dir));
  if (has_target) return files.remove_all(old_dir(target_dir));
  DSJ_TRY_STATUS(files.rename(old_dir(target_dir), target_dir));
  return files.sync_dir(path_parent(target_dir));
}

std::vector<std::string> clear_dead_export(Files& files, const std::string& target_dir) {
  std::vector<std::string> warnings;
  const auto clear = [&](const std::string& path) {
    if (const Status gone = files.remove_all(path); !gone)
      warnings.push_back("the leftovers of an export could not be removed: " +
                         gone.error().to_string());
  };
  if (const Status back = recover_export(files, target_dir); !back)
    warnings.push_back(back.error().to_string());
  clear(staging_dir(target_dir));
  return warnings;
}

Status ModelExport::make_staging() {
  Files& files = *files_;
  warnings_ = clear_dead_export(files, options_.target_dir);
  const std::string staging = staging_dir(options_.target_dir);
  DSJ_TRY(const bool left, files.exists(staging));
  if (left) {  // not removable: a file of it is open or mounted
    DSJ_TRY(const std::string aside, free_path(files, staging + ".left"));
    DSJ_TRY_STATUS(files.rename(staging, aside));
  }
  DSJ_TRY_STATUS(files.make_dir(staging));
  const auto with = [&](const char* name, const std::string& content) {
    const std::string kept =
        options_.chat_template && std::string_view(name) == kTokenizerConfigFile
            ? without_template(content)
            : content;
    const std::string grown =
        options_.vocabulary ? with_vocabulary(name, kept, *options_.vocabulary) : kept;
    return options_.eos ? with_eos(name, grown, *options_.eos) : grown;
  };
  if (options_.adapter) {
    DSJ_TRY_STATUS(files.write_synced(path_join(staging, kAdapterConfigFile),
                                      adapter_config_text(*options_.adapter)));
  } else {
    DSJ_TRY(const std::string config,
            updated_config(files, path_join(options_.source_dir, kConfigFile), options_.dtype,
                           options_.reward));
    DSJ_TRY_STATUS(files.write_synced(path_join(staging, kConfigFile), with(kConfigFile, config)));
  }
  if (options_.chat_template)
    DSJ_TRY_STATUS(files.write_synced(path_join(staging, kTemplateFile), *options_.chat_template));
  if (!options_.card.empty())
    DSJ_TRY_STATUS(files.write_synced(path_join(staging, kCardFile), options_.card));
  for (const char* name : kCopiedFiles) {
    const bool generates = !options_.adapter && !options_.reward;
    if (!generates && std::string_view(name) == kGenerationFile) continue;
    if (options_.chat_template && std::string_view(name).starts_with("chat_template.")) continue;
    const std::string source = path_join(options_.source_dir, name);
    DSJ_TRY(const EntryKind found, files.kind(source));
    if (found != EntryKind::File) continue;
    DSJ_TRY(const std::string content, files.read_all(source, kCopyBytesMax));
    DSJ_TRY_STATUS(files.write_synced(path_join(staging, name), with(name, content)));
  }
  return {};
}

Result<ModelExport> ModelExport::begin(Files& files, const ExportOptions& options,
                                       const std::vector<ExportTensor>& tensors) {
  ModelExport result;
  result.files_ = &files;
  result.options_ = options;
  if (options.share.rank == 0) DSJ_TRY_STATUS(result.make_staging());
  const std::string staging = staging_dir(options.target_dir);
  std::vector<TensorDeclaration> declarations;
  for (const ExportTensor& tensor : tensors) {
    declarations.push_back({(options.adapter ? kAdapterPrefix : "") + tensor.name,
                            tensor.dtype.value_or(options.dtype), tensor.shape});
  }
  if (options.adapter) {
    if (options.share.rank != 0) return result;
    DSJ_TRY(auto adapter, SafetensorsWriter::create(files, path_join(staging, kAdapterWeightsFile),
                                                    std::move(declarations)));
    result.adapter_ = std::make_unique<SafetensorsWriter>(std::move(adapter));
    return result;
  }
  DSJ_TRY(auto writer,
          ModelWriter::create(files, staging, std::move(declarations), options.shard_bytes_max));
  writer.deal(options.share);
  result.writer_ = std::make_unique<ModelWriter>(std::move(writer));
  return result;
}

bool ModelExport::is_dealt() const {
  return writer_ && writer_->file_count() > 1 && options_.share.world > 1;
}

bool ModelExport::sees_staging() {
  const auto found = files_->kind(staging_dir(options_.target_dir));
  return found && *found == EntryKind::Directory;
}

void ModelExport::write_alone() {
  options_.share.world = 1;
  if (writer_) writer_->deal(options_.share);
}

bool ModelExport::writes(const std::string& name) const {
  return writer_ ? writer_->writes(name) : adapter_ != nullptr;
}

Status ModelExport::append(const std::string& name, std::span<const float> values) {
  return adapter_ ? adapter_->append(kAdapterPrefix + name, values) : writer_->append(name, values);
}

Status ModelExport::finish() {
  return writer_ && writer_->has_files() ? writer_->finish_files() : Status{};
}

Status ModelExport::publish() {
  std::string target = options_.target_dir;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  DSJ_TRY_STATUS(adapter_ ? adapter_->finish() : writer_->finish());
  published_path_ = target;
  if (options_.is_replaced_later)
    DSJ_TRY_STATUS(record_export(*files_, staging_dir(target), target));
  const Status placed = take_place(target);
  if (placed) return files_->sync_dir(path_parent(target));
  // The model is complete, but something that cannot be moved has its name.
  DSJ_TRY(const std::string other, free_path(*files_, target + ".new"));
  if (!files_->rename(staging_dir(target), other)) return placed;
  warnings_.push_back("the new model is in " + other + ", because " + target +
                      " could not be replaced: " + placed.error().to_string());
  published_path_ = other;
  return files_->sync_dir(path_parent(target));
}

Status ModelExport::take_place(const std::string& target) {
  const std::string staging = staging_dir(target), parent = path_parent(target);
  DSJ_TRY(const Occupant there, occupant_of(*files_, target));
  if (there.kind == Occupant::Kind::Foreign) {
    DSJ_TRY(const std::string kept, free_path(*files_, target + ".kept"));
    DSJ_TRY_STATUS(files_->rename(target, kept));
    warnings_.push_back("the previous content of " + target + " is kept in " + kept + ": " +
                        there.what);
  }
  if (there.kind != Occupant::Kind::OwnModel) return files_->rename(staging, target);
  std::string replaced = staging;
  DSJ_TRY(const bool swapped, files_->exchange(staging, target));
  if (!swapped) {
    replaced = old_dir(target);
    DSJ_TRY_STATUS(files_->rename(target, replaced));
    if (const Status renamed = files_->rename(staging, target); !renamed) {
      (void)files_->rename(replaced, target);
      return renamed;
    }
  }
  DSJ_TRY_STATUS(files_->sync_dir(parent));
  if (const Status gone = files_->remove_all(replaced); !gone)
    warnings_.push_back("the model that was replaced could not be removed: " +
                        gone.error().to_string());
  return {};
}

}  // namespace dsj::weights
