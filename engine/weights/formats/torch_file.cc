#include "engine/weights/formats/torch_file.h"

#include <array>
#include <cstring>

#include "engine/weights/formats/state_dict_pickle.h"

namespace dsj::weights {
namespace {

using Entries = std::map<std::string, ZipEntry>;

constexpr char kSaveAgain[] = "save it again with model.save_pretrained(DIR)";

/// Row-major without gaps. Dimensions of size 1 may have any stride.
bool contiguous(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

Result<std::string> read_entry(const ReadFile& file, const ZipEntry& entry) {
  std::string text(static_cast<size_t>(entry.bytes), '\0');
  DSJ_TRY_STATUS(file.read(entry.begin, std::as_writable_bytes(std::span(text))));
  return text;
}

/// The archive's one folder, which holds data.pkl.
Result<std::string> folder_of(const Entries& entries, const std::string& path) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const auto& [name, entry] : entries) {
    const bool here = name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size();
    if (here) return name.substr(0, name.size() - kPickle.size());
  }
  return bad_input("the zip archive has no data.pkl: torch.save did not write it", path);
}

}  // namespace

Result<TorchArchive> TorchArchive::open(const ReadFile& file, const std::string& path) {
  std::array<char, 4> magic{};
  if (file.size() >= int64_t{magic.size()}) {
    DSJ_TRY_STATUS(file.read(0, std::as_writable_bytes(std::span(magic))));
  }
  if (std::memcmp(magic.data(), "PK\3\4", magic.size()) != 0) {
    const bool pickle = magic[0] == '\x80';
    return bad_input(pickle ? "the format of torch.save before PyTorch 1.6, which is not read"
                            : "no zip archive: torch.save did not write it, or it is damaged",
                     path, kSaveAgain);
  }
  TorchArchive archive;
  archive.path_ = path;
  DSJ_TRY(archive.entries_, read_zip_directory(file, path));
  DSJ_TRY(archive.folder_, folder_of(archive.entries_, path));
  const Entries& entries = archive.entries_;
  if (const auto order = entries.find(archive.folder_ + "/byteorder"); order != entries.end()) {
    if (order->second.bytes > 16) return bad_input("its byteorder entry is damaged", path);
    DSJ_TRY(const std::string text, read_entry(file, order->second));
    if (text != "little") return bad_input("byte order \"" + text + "\", little is read", path);
  }
  const ZipEntry& pickle = entries.at(archive.folder_ + "/data.pkl");
  if (pickle.bytes > kPickleBytesMax) {
    return bad_input("a pickle of " + std::to_string(pickle.bytes) + " bytes, at most " +
                         std::to_string(kPickleBytesMax) + " are read",
                     path);
  }
  DSJ_TRY(archive.pickle_, read_entry(file, pickle));
  return archive;
}

Result<TensorInfo> TorchArchive::place(const PickledTensor& tensor) const {
  const std::string what = "tensor \"" + tensor.name + "\": ";
  const auto entry = entries_.find(folder_ + "/data/" + tensor.storage);
  if (entry == entries_.end()) {
    return bad_input(what + "its storage data/" + tensor.storage + " is not in the archive", path_);
  }
  const int64_t width = dtype_bytes(tensor.dtype);
  if (tensor.storage_elements < 0 || tensor.storage_elements > entry->second.bytes / width ||
      tensor.storage_elements * width != entry->second.bytes) {
    return bad_input(what + "its storage is announced with " +
                         std::to_string(tensor.storage_elements) + " elements, data/" +
                         tensor.storage + " has " + std::to_string(entry->second.bytes) + " bytes",
                     path_);
  }
  TensorInfo info{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape};
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(info.elements, extent, &info.elements)) {
      return bad_input(what + "the product of its shape is too large", path_);
    }
  }
  if (info.elements > 0 && !contiguous(tensor)) {
    return bad_input(what + "its elements are not row-major without gaps", path_, kSaveAgain);
  }
  if (tensor.offset > tensor.storage_elements ||
      info.elements > tensor.storage_elements - tensor.offset) {
    return bad_input(what + "it reaches beyond its storage", path_);
  }
  info.begin = entry->second.begin + tensor.offset * width;
  return info;
}

Result<std::vector<TensorInfo>> read_torch_file(const ReadFile& file, const std::string& path) {
  DSJ_TRY(const TorchArchive archive, TorchArchive::open(file, path));
  DSJ_TRY(const auto pickled, read_state_dict_pickle(archive.pickle(), path));
  std::vector<TensorInfo> tensors;
  for (const PickledTensor& tensor : pickled) {
    DSJ_TRY(auto info, archive.place(tensor));
    tensors.push_back(std::move(info));
  }
  return tensors;
}

}  // namespace dsj::weights
