// Reads a file that DeepSpeed wrote with torch.save: its pickle as a tree, and the positions of its
// tensors. Nothing is executed; names that DeepSpeed's checkpoints do not need are refused.
// Internal to engine/deepspeed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/torch_file.h"

namespace dsj::deepspeed {

/// A value of the tree, or none. Valid as long as its file. A wrong kind gives none, so that a
/// chain like root["optimizer"]["state"] needs only one check at its end.
class Node {
 public:
  Node() = default;
  Node(const weights::Pickle& pickle, const weights::PickleValue& value)
      : pickle_(&pickle), value_(&value) {}

  /// Whether there is a value other than None.
  explicit operator bool() const {
    return value_ != nullptr && value_->kind != weights::PickleKind::None;
  }
  bool is(weights::PickleKind kind) const { return value_ != nullptr && value_->kind == kind; }
  /// For a dict or an object.
  Node operator[](std::string_view key) const;
  /// For a dict with integer keys.
  Node with_key(int64_t key) const;
  /// Items of a list or tuple; entries of a dict.
  size_t size() const;
  /// For a list or tuple.
  Node item(size_t index) const;
  /// For a dict, in its order.
  Node key(size_t index) const;
  Node value(size_t index) const;
  std::optional<int64_t> integer() const;  ///< of an integral number or a bool
  std::optional<double> number() const;
  std::string text() const;  ///< empty if it is not text
  const weights::PickleValue* raw() const { return value_; }
  const weights::Pickle* pickle() const { return pickle_; }

 private:
  const weights::Pickle* pickle_ = nullptr;
  const weights::PickleValue* value_ = nullptr;
};

class SavedFile {
 public:
  /// Reads directory and pickle; keeps the file open. Errors: as weights/formats/torch_file.h and
  /// pickle.h.
  static Result<SavedFile> open(Files& files, const std::string& path);

  const std::string& path() const { return path_; }
  Node root() const { return {*pickle_, pickle_->at(pickle_->root)}; }
  /// The position of a tensor. Error: not a tensor, or outside its storage.
  Result<weights::TensorInfo> tensor(Node node, const std::string& name) const;
  /// A number, or the value of a one-element tensor. Error: neither.
  Result<double> scalar(Node node, const std::string& name) const;
  /// The same for a count. Error: it is negative, or too large.
  Result<int64_t> count(Node node, const std::string& name) const;
  /// Releases the open file for reading tensors. Do not call scalar() or count() afterwards.
  std::unique_ptr<ReadFile> release() { return std::move(file_); }

 private:
  std::string path_;
  std::unique_ptr<ReadFile> file_;
  std::unique_ptr<weights::Pickle> pickle_;
  weights::TorchArchive archive_;
};

/// Checks every entry of a zip archive against the archive's checksums. Error (Environment): names
/// the entry that differs.
Status verify_archive(Files& files, const std::string& path);

}  // namespace dsj::deepspeed
