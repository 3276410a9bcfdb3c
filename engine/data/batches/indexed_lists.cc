#include "engine/data/batches/indexed_lists.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

namespace dsj::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr int64_t kVersion = 1;
constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
enum class Number { U8, I8, I16, I32, I64, U16, U32, U64, F64 };
constexpr uint8_t kI32 = 4, kI64 = 5;  ///< codes

struct Coded {
  uint8_t code;
  Number number;
  int64_t bytes;
};
/// The codes above 5 changed their type in DeepSpeed 0.18; the size shows which one it is.
constexpr Coded kCodes[] = {{1, Number::U8, 1},     {2, Number::I8, 1},     {3, Number::I16, 2},
                            {kI32, Number::I32, 4}, {kI64, Number::I64, 8}, {6, Number::U16, 2},
                            {6, Number::F64, 8},    {7, Number::U32, 4},    {7, Number::F64, 8},
                            {8, Number::U64, 8},    {8, Number::U16, 2},    {9, Number::U32, 4},
                            {10, Number::U64, 8}};

template <typename T>
T value_at(std::string_view bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// nullopt if it is not an integer in the range of int64.
std::optional<int64_t> number_at(std::string_view bytes, int64_t offset, Number number) {
  switch (number) {
    case Number::U8:
      return value_at<uint8_t>(bytes, offset);
    case Number::I8:
      return value_at<int8_t>(bytes, offset);
    case Number::I16:
      return value_at<int16_t>(bytes, offset);
    case Number::I32:
      return value_at<int32_t>(bytes, offset);
    case Number::I64:
      return value_at<int64_t>(bytes, offset);
    case Number::U16:
      return value_at<uint16_t>(bytes, offset);
    case Number::U32:
      return value_at<uint32_t>(bytes, offset);
    case Number::U64: {
      const auto value = value_at<uint64_t>(bytes, offset);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case Number::F64: {
      const auto value = value_at<double>(bytes, offset);
      if (!(std::abs(value) < 9e18) || std::floor(value) != value) return std::nullopt;
      return static_cast<int64_t>(value);
    }
  }
  return std::nullopt;
}

Result<std::string> whole_file(Files& files, const std::string& path) {
  DSJ_TRY(const auto file, files.open_read(path));
  std::string bytes(static_cast<size_t>(file->size()), '\0');
  DSJ_TRY_STATUS(file->read(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

std::unexpected<Error> damaged(const std::string& path, const std::string& what) {
  return bad_input(what, path, "`dsj analyze DATA` makes it again");
}

/// The content of PREFIX.idx, which describes PREFIX.bin.
struct Index {
  uint8_t code = 0;
  std::vector<int64_t> starts = {0};
  std::vector<int64_t> byte_starts;
};

Result<Index> parse_index(std::string_view bytes, const std::string& path) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kHeaderBytes || !bytes.starts_with(kIndexMagic))
    return damaged(path, "this is not an index of lists: it does not begin with MMIDIDX");
  if (value_at<int64_t>(bytes, 9) != kVersion)
    return damaged(path, "found version " + std::to_string(value_at<uint64_t>(bytes, 9)) +
                             " of the format, expected 1");
  const auto count = value_at<int64_t>(bytes, 18), documents = value_at<int64_t>(bytes, 26);
  const int64_t room = size - kHeaderBytes;
  if (count < 0 || documents < 0 || count > room / 12 || documents > (room - 12 * count) / 8 ||
      room != 12 * count + 8 * documents)
    return damaged(path, "its size does not fit the lists that it counts");
  Index index{.code = value_at<uint8_t>(bytes, 17)};
  for (int64_t i = 0; i < count; ++i) {
    const auto length = value_at<int32_t>(bytes, kHeaderBytes + 4 * i);
    if (length < 0) return damaged(path, "list " + std::to_string(i) + " has a negative length");
    index.starts.push_back(index.starts.back() + length);
    index.byte_starts.push_back(value_at<int64_t>(bytes, kHeaderBytes + 4 * count + 8 * i));
  }
  return index;
}

/// The type of the numbers: among the types of this code, the one whose size fits the bytes.
const Coded* type_of(const Index& index, int64_t bytes) {
  for (const Coded& coded : kCodes) {
    const int64_t numbers = index.starts.back();
    if (coded.code == index.code && bytes % coded.bytes == 0 && bytes / coded.bytes == numbers)
      return &coded;
  }
  return nullptr;
}

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void Lists::add(std::span<const int64_t> list) {
  values.insert(values.end(), list.begin(), list.end());
  starts.push_back(static_cast<int64_t>(values.size()));
}

Result<Lists> read_lists(Files& files, const std::string& prefix) {
  const std::string idx = prefix + ".idx", bin = prefix + ".bin";
  DSJ_TRY(const std::string index_bytes, whole_file(files, idx));
  DSJ_TRY(Index index, parse_index(index_bytes, idx));
  DSJ_TRY(const std::string bytes, whole_file(files, bin));
  const Coded* type = type_of(index, static_cast<int64_t>(bytes.size()));
  if (type == nullptr)
    return damaged(bin, "found " + std::to_string(bytes.size()) + " bytes for " +
                            std::to_string(index.starts.back()) + " numbers of type " +
                            std::to_string(index.code));
  Lists lists;
  lists.starts = std::move(index.starts);
  for (int64_t i = 0; i < lists.count(); ++i)
    if (index.byte_starts[static_cast<size_t>(i)] !=
        lists.starts[static_cast<size_t>(i)] * type->bytes)
      return damaged(idx, "list " + std::to_string(i) + " does not follow the previous list");
  lists.values.reserve(static_cast<size_t>(lists.starts.back()));
  for (int64_t i = 0; i < lists.starts.back(); ++i) {
    const auto value = number_at(bytes, i * type->bytes, type->number);
    if (!value) return damaged(bin, "number " + std::to_string(i) + " is not whole, or too large");
    lists.values.push_back(*value);
  }
  return lists;
}

Status write_lists(Files& files, const std::string& prefix, const Lists& lists) {
  bool small = true;
  for (const int64_t value : lists.values)
    small = small && value >= INT32_MIN && value <= INT32_MAX;
  const int64_t bytes = small ? 4 : 8;
  std::string numbers, index(kIndexMagic);
  for (const int64_t value : lists.values)
    small ? append(numbers, static_cast<int32_t>(value)) : append(numbers, value);
  append(index, kVersion);
  append(index, small ? kI32 : kI64);
  append(index, lists.count());
  append(index, int64_t{2});  // document boundaries: all lists are one document
  for (int64_t i = 0; i < lists.count(); ++i)
    append(index, static_cast<int32_t>(lists.list(i).size()));
  for (int64_t i = 0; i < lists.count(); ++i)
    append(index, lists.starts[static_cast<size_t>(i)] * bytes);
  append(index, int64_t{0});
  append(index, lists.count());
  DSJ_TRY_STATUS(files.write_atomically(prefix + ".bin", numbers));
  return files.write_atomically(prefix + ".idx", index);
}

}  // namespace dsj::data
