#include "engine/weights/formats/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "common/check.h"

namespace dsj::weights {
namespace {

constexpr char kPartialSuffix[] = ".partial";
constexpr size_t kWrittenAtOnce = 512 * 1024;
/// Data starts at a multiple of this, so that a memory map of the file is aligned.
constexpr size_t kDataAlignment = 8;
/// The maximum number of written files that are not yet durable.
constexpr size_t kShardsOpenMax = 8;
const std::map<std::string, std::string> kModelMetadata = {{"format", "pt"}};

std::string header_text(const std::vector<TensorDeclaration>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t position = 0;
  for (const TensorDeclaration& tensor : tensors) {
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {position, position + tensor.bytes()}}};
    position += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  return text;
}

std::string shard_name(size_t number, size_t count) {
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", number, count);
  return name.data();
}

}  // namespace

int64_t TensorDeclaration::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    DSJ_CHECK(extent >= 0 && !__builtin_mul_overflow(product, extent, &product), "shape of %s",
              name.c_str());
  }
  return product;
}

Result<SafetensorsWriter> SafetensorsWriter::create(
    Files& files, const std::string& path, std::vector<TensorDeclaration> tensors,
    const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names = {"__metadata__"};
  for (const TensorDeclaration& tensor : tensors) {
    DSJ_CHECK(names.insert(tensor.name).second, "%s is declared twice", tensor.name.c_str());
    DSJ_CHECK(is_weight_dtype(tensor.dtype), "%s", tensor.name.c_str());
  }
  SafetensorsWriter writer;
  writer.files_ = &files;
  writer.path_ = path;
  writer.tensors_ = std::move(tensors);
  const std::string json = header_text(writer.tensors_, metadata);
  const uint64_t json_bytes = json.size();
  std::string header(reinterpret_cast<const char*>(&json_bytes), sizeof json_bytes);
  header += json;
  DSJ_TRY(writer.file_, files.create_write(path + kPartialSuffix));
  DSJ_TRY_STATUS(writer.file_->append(as_bytes(header)));
  writer.bytes_written_ = int64_t(header.size());
  writer.skip_complete();
  return writer;
}

void SafetensorsWriter::skip_complete() {
  while (index_ < tensors_.size() && position_ == tensors_[index_].bytes()) {
    ++index_;
    position_ = 0;
  }
}

bool SafetensorsWriter::complete() const {
  return index_ == tensors_.size();
}

const TensorDeclaration& SafetensorsWriter::current(const std::string& name) {
  DSJ_CHECK(!complete() && tensors_[index_].name == name, "%s is not the next tensor of %s",
            name.c_str(), path_.c_str());
  return tensors_[index_];
}

Status SafetensorsWriter::append_bytes(const std::string& name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const TensorDeclaration& tensor = current(name);
  DSJ_CHECK(int64_t(bytes.size()) <= tensor.bytes() - position_ &&
                int64_t(bytes.size()) % dtype_bytes(tensor.dtype) == 0,
            "%s: %zu bytes more", name.c_str(), bytes.size());
  DSJ_TRY_STATUS(file_->append(bytes));
  position_ += int64_t(bytes.size());
  bytes_written_ += int64_t(bytes.size());
  skip_complete();
  return {};
}

Status SafetensorsWriter::append(const std::string& name, std::span<const float> values) {
  if (values.empty()) return {};
  const DType dtype = current(name).dtype;
  if (dtype == DType::F32) return append_bytes(name, std::as_bytes(values));
  const auto convert = dtype == DType::BF16 ? float_to_bf16 : float_to_fp16;
  if (staged_.empty()) staged_.resize(kWrittenAtOnce);
  while (!values.empty()) {
    const auto part = std::span(staged_).first(std::min(values.size(), staged_.size()));
    convert(values.first(part.size()), part);
    DSJ_TRY_STATUS(append_bytes(name, std::as_bytes(part)));
    values = values.subspan(part.size());
  }
  return {};
}

int64_t SafetensorsWriter::file_bytes(const std::vector<TensorDeclaration>& tensors) {
  int64_t bytes = int64_t(sizeof(uint64_t) + header_text(tensors, kModelMetadata).size());
  for (const TensorDeclaration& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

Status SafetensorsWriter::finish() {
  DSJ_CHECK(complete(), "%s is not complete", tensors_[index_].name.c_str());
  DSJ_TRY_STATUS(file_->sync());
  DSJ_TRY_STATUS(file_->close());
  return files_->rename(path_ + kPartialSuffix, path_);
}

int writer_of(size_t file, size_t files, int world) {
  const size_t ranks = size_t(world);
  return int(files <= ranks ? file * ranks / files : file % ranks);
}

Result<ModelWriter> ModelWriter::create(Files& files, const std::string& directory,
                                        std::vector<TensorDeclaration> tensors,
                                        int64_t shard_bytes_max) {
  ModelWriter writer;
  writer.files_ = &files;
  writer.directory_ = directory;
  int64_t bytes = 0;
  writer.shards_.emplace_back();
  for (TensorDeclaration& tensor : tensors) {
    if (bytes > 0 && tensor.bytes() > shard_bytes_max - bytes) {
      writer.shards_.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    writer.shards_.back().tensors.push_back(std::move(tensor));
  }
  const size_t count = writer.shards_.size();
  for (size_t i = 0; i < count; ++i) {
    writer.shards_[i].file_name = count == 1 ? "model.safetensors" : shard_name(i + 1, count);
  }
  writer.deal({});
  return writer;
}

void ModelWriter::deal(const Share& share) {
  DSJ_CHECK(next_ == 0, "the files are dealt before they are written");
  own_.clear();
  own_names_.clear();
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (writer_of(i, shards_.size(), share.world) != share.rank) continue;
    own_.push_back(i);
    for (const TensorDeclaration& tensor : shards_[i].tensors) own_names_.insert(tensor.name);
  }
}

Status ModelWriter::next_shard() {
  DSJ_CHECK(next_ < own_.size(), "there is no further shard in %s", directory_.c_str());
  if (open_.size() == kShardsOpenMax) DSJ_TRY_STATUS(finish_oldest());
  const Shard& shard = shards_[own_[next_++]];
  DSJ_TRY(auto writer, SafetensorsWriter::create(*files_, path_join(directory_, shard.file_name),
                                                 shard.tensors));
  open_.push_back(std::move(writer));
  return {};
}

Status ModelWriter::finish_oldest() {
  DSJ_TRY_STATUS(open_.front().finish());
  open_.pop_front();
  return {};
}

Status ModelWriter::append(const std::string& name, std::span<const float> values) {
  if (values.empty()) return {};
  while (open_.empty() || open_.back().complete()) DSJ_TRY_STATUS(next_shard());
  return open_.back().append(name, values);
}

Status ModelWriter::finish_files() {
  // Only shards of empty tensors can be left.
  while (next_ < own_.size()) DSJ_TRY_STATUS(next_shard());
  while (!open_.empty()) DSJ_TRY_STATUS(finish_oldest());
  return files_->sync_dir(directory_);
}

Status ModelWriter::check_file(const Shard& shard) const {
  const std::string path = path_join(directory_, shard.file_name);
  const int64_t expected = SafetensorsWriter::file_bytes(shard.tensors);
  const auto file = files_->open_read(path);
  if (file && (*file)->size() == expected) return {};
  return fail(ErrorKind::Environment,
              (file ? "the file has " + std::to_string((*file)->size()) + " bytes, "
                    : "the file is not there, ") +
                  std::to_string(expected) + " were written by another rank",
              path, "the output directory must be on storage that all ranks share");
}

Status ModelWriter::finish() {
  DSJ_TRY_STATUS(finish_files());
  if (own_.size() < shards_.size())
    for (const Shard& shard : shards_) DSJ_TRY_STATUS(check_file(shard));
  if (shards_.size() > 1) DSJ_TRY_STATUS(write_index());
  return files_->sync_dir(directory_);
}

Status ModelWriter::write_index() {
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  int64_t total_bytes = 0;
  for (const Shard& shard : shards_) {
    for (const TensorDeclaration& tensor : shard.tensors) {
      weight_map[tensor.name] = shard.file_name;
      total_bytes += tensor.bytes();
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes}}},
                                        {"weight_map", std::move(weight_map)}};
  return files_->write_synced(path_join(directory_, "model.safetensors.index.json"),
                              index.dump(2) + "\n");
}

}  // namespace dsj::weights
