// One file that DeepSpeed wrote with torch.save: its pickle as a tree, and where its tensors lie. Read as data; a name
// that DeepSpeed's own checkpoints do not need is refused by name. Internal to engine/deepspeed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/torch_file.h"

namespace dsj::deepspeed {

/// A value in the tree, or nothing. Valid as long as its file. Asking the wrong kind gives nothing, so that a chain
/// like root["optimizer"]["state"] needs one check at its end.
class Node {
 public:
  Node() = default;
  Node(const weights::Pickle& pickle, const weights::PickleValue& value)
      : pickle_(&pickle), value_(&value) {}

  /// There is a value, and it is not None.
  explicit operator bool() const {
    return value_ != nullptr && value_->kind != weights::PickleKind::None;
  }
  bool is(weights::PickleKind kind) const { return value_ != nullptr && value_->kind == kind; }
  /// Of a dict or an object.
  Node operator[](std::string_view key) const;
  /// Of a dict whose keys are numbers.
  Node with_key(int64_t key) const;
  /// Items of a list or tuple; entries of a dict.
  size_t size() const;
  /// Of a list or tuple.
  Node item(size_t index) const;
  /// Of a dict, in its order.
  Node key(size_t index) const;
  Node value(size_t index) const;
  std::optional<int64_t> integer() const;  ///< of a number that is whole, or of a bool
  std::optional<double> number() const;
  std::string text() const;  ///< empty: it is no text
  const weights::PickleValue* raw() const { return value_; }
  const weights::Pickle* pickle() const { return pickle_; }

 private:
  const weights::Pickle* pickle_ = nullptr;
  const weights::PickleValue* value_ = nullptr;
};

class SavedFile {
 public:
  /// Reads directory and pickle, and stays open. Error: weights/torch_file.h's, weights/pickle.h's.
  static Result<SavedFile> open(Files& files, const std::string& path);

  const std::string& path() const { return path_; }
  Node root() const { return {*pickle_, pickle_->at(pickle_->root)}; }
  /// Where a tensor lies. Error: it is no tensor, or lies outside its storage.
  Result<weights::TensorInfo> tensor(Node node, const std::string& name) const;
  /// A number, or the value of a tensor with one element. Error: neither.
  Result<double> scalar(Node node, const std::string& name) const;
  /// The same for a number of things. Error: it is negative, or too large to count with.
  Result<int64_t> count(Node node, const std::string& name) const;
  /// The open file, for whoever reads its tensors next. Ask for no number afterwards.
  std::unique_ptr<ReadFile> release() { return std::move(file_); }

 private:
  std::string path_;
  std::unique_ptr<ReadFile> file_;
  std::unique_ptr<weights::Pickle> pickle_;
  weights::TorchArchive archive_;
};

/// Checks the bytes of every entry of a zip archive against the checksum that the archive has of them. Error
/// (Environment): the entry whose bytes are not what was written.
Status verify_archive(Files& files, const std::string& path);

}  // namespace dsj::deepspeed
