#include "engine/deepspeed/saved_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace dsj::deepspeed {
namespace {

using weights::PickleKind;
using weights::PickleName;
using weights::PickleRule;
using weights::PickleValue;

constexpr char kHint[] =
    "only what DeepSpeed itself saves is read, so that nothing in a file can be run";
constexpr size_t kPieceBytes = 8 << 20;

/// Allowed names besides a state dict's. DeepSpeed's classes keep only attributes.
constexpr PickleName kOwnNames[] = {
    {"torch.Size", PickleRule::First},
    {"torch._utils._rebuild_parameter", PickleRule::First},
    {"torch._utils._rebuild_parameter_with_state", PickleRule::First},
    {"torch._tensor._rebuild_from_type_v2", PickleRule::RebuildFromType},
    {"torch.Tensor", PickleRule::Constant},
    {"torch.nn.parameter.Parameter", PickleRule::Constant},
    {"torch.float32", PickleRule::Constant},
    {"torch.float16", PickleRule::Constant},
    {"torch.bfloat16", PickleRule::Constant},
    {"torch.float64", PickleRule::Constant},
    {"torch.int64", PickleRule::Constant},
    {"collections.defaultdict", PickleRule::EmptyDict},
    {"__builtin__.dict", PickleRule::Constant},
    {"__builtin__.list", PickleRule::Constant},
    {"__builtin__.set", PickleRule::First},
    {"deepspeed.runtime.zero.config.ZeroStageEnum", PickleRule::First},
    {"deepspeed.runtime.fp16.loss_scaler.LossScaler", PickleRule::Object},
    {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", PickleRule::Object},
    {"deepspeed.utils.tensor_fragment.fragment_address", PickleRule::Object},
};

const std::vector<PickleName>& names() {
  static const std::vector<PickleName> all = [] {
    const auto common = weights::state_dict_names();
    std::vector<PickleName> list(common.begin(), common.end());
    list.insert(list.end(), std::begin(kOwnNames), std::end(kOwnNames));
    return list;
  }();
  return all;
}

}  // namespace

Node Node::operator[](std::string_view key) const {
  const PickleValue* found = value_ == nullptr ? nullptr : pickle_->find(*value_, key);
  return found == nullptr ? Node() : Node(*pickle_, *found);
}

Node Node::with_key(int64_t key) const {
  if (!is(PickleKind::Dict)) return {};
  for (size_t i = 0; i < size(); ++i)
    if (this->key(i).integer() == key) return value(i);
  return {};
}

size_t Node::size() const {
  if (is(PickleKind::List) || is(PickleKind::Tuple)) return value_->items.size();
  return is(PickleKind::Dict) || is(PickleKind::Object) ? value_->items.size() / 2 : 0;
}

Node Node::item(size_t index) const {
  const bool listed = is(PickleKind::List) || is(PickleKind::Tuple);
  return listed && index < size() ? Node(*pickle_, pickle_->at(value_->items[index])) : Node();
}

Node Node::key(size_t index) const {
  return is(PickleKind::Dict) && index < size()
             ? Node(*pickle_, pickle_->at(value_->items[2 * index]))
             : Node();
}

Node Node::value(size_t index) const {
  return is(PickleKind::Dict) && index < size()
             ? Node(*pickle_, pickle_->at(value_->items[2 * index + 1]))
             : Node();
}

std::optional<int64_t> Node::integer() const {
  if (is(PickleKind::Int) || is(PickleKind::Bool)) return value_->number;
  if (is(PickleKind::Float) && value_->real == std::floor(value_->real) &&
      std::abs(value_->real) < 9e15)
    return static_cast<int64_t>(value_->real);
  return std::nullopt;
}

std::optional<double> Node::number() const {
  if (is(PickleKind::Float)) return value_->real;
  if (is(PickleKind::Int) || is(PickleKind::Bool)) return static_cast<double>(value_->number);
  return std::nullopt;
}

std::string Node::text() const {
  return is(PickleKind::Text) ? value_->text : std::string();
}

Result<SavedFile> SavedFile::open(Files& files, const std::string& path) {
  SavedFile saved;
  saved.path_ = path;
  DSJ_TRY(saved.file_, files.open_read(path));
  DSJ_TRY(saved.archive_, weights::TorchArchive::open(*saved.file_, path));
  DSJ_TRY(auto pickle, weights::read_pickle(saved.archive_.pickle(), names(),
                                            "a DeepSpeed checkpoint", path, kHint));
  saved.pickle_ = std::make_unique<weights::Pickle>(std::move(pickle));
  return saved;
}

Result<weights::TensorInfo> SavedFile::tensor(Node node, const std::string& name) const {
  if (!node.is(PickleKind::Tensor)) return bad_input("\"" + name + "\" is not a tensor", path_);
  DSJ_TRY(const auto pickled,
          weights::pickled_tensor(*node.pickle(), *node.raw(), name, path_, ""));
  return archive_.place(pickled);
}

Result<double> SavedFile::scalar(Node node, const std::string& name) const {
  if (const auto number = node.number()) return *number;
  DSJ_TRY(const auto info, tensor(node, name));
  if (info.elements != 1)
    return bad_input(
        "\"" + name + "\" has " + std::to_string(info.elements) + " elements, expected one", path_);
  const auto read = [&]<typename T>(T value) -> Result<double> {
    DSJ_TRY_STATUS(file_->read(info.begin, std::as_writable_bytes(std::span(&value, 1))));
    return static_cast<double>(value);
  };
  switch (info.dtype) {
    case weights::DType::F32:
      return read(float{});
    case weights::DType::F64:
      return read(double{});
    case weights::DType::I64:
      return read(int64_t{});
    case weights::DType::I32:
      return read(int32_t{});
    default:
      return bad_input("\"" + name + "\" is " + std::string(weights::dtype_name(info.dtype)),
                       path_);
  }
}

Result<int64_t> SavedFile::count(Node node, const std::string& name) const {
  DSJ_TRY(const double number, scalar(node, name));
  if (number >= 0 && number < 9e15) return static_cast<int64_t>(number);
  return bad_input("\"" + name + "\" is not a count", path_);
}

Status verify_archive(Files& files, const std::string& path) {
  DSJ_TRY(const auto file, files.open_read(path));
  DSJ_TRY(const auto entries, weights::read_zip_directory(*file, path));
  std::vector<std::byte> buffer;
  for (const auto& [name, entry] : entries) {
    uLong sum = crc32(0, nullptr, 0);
    for (int64_t done = 0; done < entry.bytes; done += int64_t(buffer.size())) {
      buffer.resize(std::min(kPieceBytes, size_t(entry.bytes - done)));
      DSJ_TRY_STATUS(file->read(entry.begin + done, buffer));
      sum = crc32(sum, reinterpret_cast<const Bytef*>(buffer.data()),
                  static_cast<uInt>(buffer.size()));
    }
    if (sum != entry.crc32)
      return fail(ErrorKind::Environment, "the bytes of " + name + " do not match their checksum",
                  path, "the checkpoint is damaged: copy it again, or use an older one");
  }
  return {};
}

}  // namespace dsj::deepspeed
