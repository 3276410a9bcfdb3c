// A reader of GGUF for tests, written from the format's description and not from the writer.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dsj::gguf::testing_support {

struct ReadTensor {
  std::string type;
  std::vector<int64_t> shape;  ///< row-major
  std::string bytes;
};

struct ReadFile {
  nlohmann::json keys = nlohmann::json::object();
  std::map<std::string, ReadTensor> tensors;
};

class GgufReader {
 public:
  explicit GgufReader(const std::string& bytes) : bytes_(bytes) {}

  ReadFile read() {
    EXPECT_EQ(bytes_.substr(0, 4), "GGUF");
    at_ = 4;
    EXPECT_EQ(take<uint32_t>(), 3u);
    const auto tensors = take<uint64_t>(), keys = take<uint64_t>();
    ReadFile file;
    for (uint64_t i = 0; i < keys; ++i) {
      const std::string key = text();
      EXPECT_FALSE(file.keys.contains(key)) << key;
      file.keys[key] = value(take<uint32_t>());
    }
    struct Entry {
      std::string name;
      ReadTensor tensor;
      uint64_t offset;
    };
    std::vector<Entry> entries;
    for (uint64_t i = 0; i < tensors; ++i) {
      Entry entry{.name = text()};
      const auto dimensions = take<uint32_t>();
      for (uint32_t d = 0; d < dimensions; ++d)
        entry.tensor.shape.insert(entry.tensor.shape.begin(),
                                  static_cast<int64_t>(take<uint64_t>()));
      const auto type = take<uint32_t>();
      entry.tensor.type = type == 0 ? "F32" : type == 1 ? "F16" : type == 8 ? "Q8_0" : "BF16";
      EXPECT_TRUE(type == 0 || type == 1 || type == 8 || type == 30) << type;
      entry.offset = take<uint64_t>();
      EXPECT_EQ(entry.offset % 32, 0u) << entry.name;
      entries.push_back(std::move(entry));
    }
    const uint64_t data = (at_ + 31) / 32 * 32;
    for (Entry& entry : entries) {
      uint64_t elements = 1;
      for (const int64_t size : entry.tensor.shape) elements *= static_cast<uint64_t>(size);
      const uint64_t size = entry.tensor.type == "F32"    ? elements * 4
                            : entry.tensor.type == "Q8_0" ? elements / 32 * 34
                                                          : elements * 2;
      EXPECT_LE(data + entry.offset + size, bytes_.size()) << entry.name;
      entry.tensor.bytes = bytes_.substr(data + entry.offset, size);
      EXPECT_TRUE(file.tensors.emplace(entry.name, entry.tensor).second) << entry.name;
    }
    return file;
  }

 private:
  template <typename T>
  T take() {
    T value{};
    EXPECT_LE(at_ + sizeof(T), bytes_.size());
    if (at_ + sizeof(T) <= bytes_.size()) std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text() {
    const auto size = take<uint64_t>();
    std::string read = bytes_.substr(at_, size);
    at_ += size;
    return read;
  }
  nlohmann::json value(uint32_t type) {
    switch (type) {
      case 4:
        return take<uint32_t>();
      case 5:
        return take<int32_t>();
      case 6:
        return take<float>();
      case 7:
        return take<uint8_t>() != 0;
      case 8:
        return text();
      case 9: {
        const auto of = take<uint32_t>();
        const auto count = take<uint64_t>();
        nlohmann::json list = nlohmann::json::array();
        for (uint64_t i = 0; i < count; ++i) list.push_back(value(of));
        return list;
      }
      default:
        ADD_FAILURE() << "type " << type;
        return {};
    }
  }

  const std::string& bytes_;
  uint64_t at_ = 0;
};

inline ReadFile read_gguf(const std::string& bytes) {
  return GgufReader(bytes).read();
}

inline uint32_t crc_of(const std::string& bytes) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

}  // namespace dsj::gguf::testing_support
