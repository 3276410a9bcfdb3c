#include "engine/weights/export.h"

#include <array>
#include <nlohmann/json.hpp>

namespace dsj::weights {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
constexpr int64_t kConfigBytesMax = 16 << 20;
constexpr int64_t kCopyBytesMax = int64_t{1} << 30;

/// Copied unchanged if they exist.
constexpr std::array kCopiedFiles = {kGenerationFile,
                                     "tokenizer.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "vocab.json",
                                     "merges.txt",
                                     "tokenizer.model",
                                     "qwen.tiktoken",
                                     "chat_template.jinja",
                                     "chat_template.json"};

/// "out/model" → "out/.model.staging".
std::string beside(std::string_view target, const char* suffix) {
  while (target.size() > 1 && target.back() == '/') target.remove_suffix(1);
  const size_t slash = target.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? target : target.substr(slash + 1);
  return path_join(path_parent(target), "." + std::string(name) + suffix);
}
std::string staging_dir(const std::string& target) {
  return beside(target, ".staging");
}
std::string old_dir(const std::string& target) {
  return beside(target, ".old");
}

/// config.json with the weights' dtype, all else unchanged and in order.
Result<std::string> updated_config(Files& files, const std::string& path, DType dtype) {
  DSJ_TRY(const std::string text, files.read_all(path, kConfigBytesMax));
  auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return bad_input("a JSON object is expected", path);
  const std::string name(config_dtype_name(dtype));
  // transformers 5 renamed torch_dtype to dtype, and reads both.
  const bool has_new_name = config.contains("dtype");
  if (has_new_name) config["dtype"] = name;
  if (!has_new_name || config.contains("torch_dtype")) config["torch_dtype"] = name;
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

Status ModelExport::make_staging() {
  Files& files = *files_;
  DSJ_TRY_STATUS(recover_export(files, options_.target_dir));
  const std::string staging = staging_dir(options_.target_dir);
  DSJ_TRY_STATUS(files.remove_all(staging));
  DSJ_TRY_STATUS(files.make_dir(staging));
  const auto with = [&](const char* name, const std::string& content) {
    return options_.eos ? with_eos(name, content, *options_.eos) : content;
  };
  if (options_.adapter) {
    DSJ_TRY_STATUS(files.write_synced(path_join(staging, kAdapterConfigFile),
                                      adapter_config_text(*options_.adapter)));
  } else {
    DSJ_TRY(const std::string config,
            updated_config(files, path_join(options_.source_dir, kConfigFile), options_.dtype));
    DSJ_TRY_STATUS(files.write_synced(path_join(staging, kConfigFile), with(kConfigFile, config)));
  }
  for (const char* name : kCopiedFiles) {
    if (options_.adapter && std::string_view(name) == kGenerationFile) continue;
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
  const std::string staging = staging_dir(target), parent = path_parent(target);
  DSJ_TRY_STATUS(adapter_ ? adapter_->finish() : writer_->finish());
  DSJ_TRY(const bool occupied, files_->exists(target));
  if (!occupied) {
    DSJ_TRY_STATUS(files_->rename(staging, target));
    return files_->sync_dir(parent);
  }
  DSJ_TRY(const bool swapped, files_->exchange(staging, target));
  if (swapped) {
    DSJ_TRY_STATUS(files_->sync_dir(parent));
    return files_->remove_all(staging);
  }
  DSJ_TRY_STATUS(files_->rename(target, old_dir(target)));
  DSJ_TRY_STATUS(files_->rename(staging, target));
  DSJ_TRY_STATUS(files_->sync_dir(parent));
  return files_->remove_all(old_dir(target));
}

}  // namespace dsj::weights
