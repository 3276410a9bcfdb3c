// Writes what torch.save writes, for tests: values as strings of pickle opcodes, tensors as storages of a zip archive.
#pragma once

#include <zlib.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace dsj::deepspeed::testing_support {

using Value = std::string;  ///< opcodes that push one value

inline Value none() {
  return "N";
}
inline Value boolean(bool value) {
  return value ? "\x88" : "\x89";
}
inline Value number(int64_t value) {
  std::string out = "J";
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}
inline Value real(double value) {
  std::string out = "G";
  for (int i = 7; i >= 0; --i) out += static_cast<char>(std::bit_cast<uint64_t>(value) >> (8 * i));
  return out;
}
inline Value text(const std::string& value) {
  std::string out = "X";
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value.size() >> (8 * i));
  return out + value;
}
inline Value joined(const std::vector<Value>& items) {
  std::string out;
  for (const Value& item : items) out += item;
  return out;
}
inline Value tuple(const std::vector<Value>& items) {
  return "(" + joined(items) + "t";
}
inline Value list(const std::vector<Value>& items) {
  return "](" + joined(items) + "e";
}
using Entries = std::vector<std::pair<std::string, Value>>;
inline Value dict(const Entries& entries) {
  std::string out = "}(";
  for (const auto& [name, value] : entries) out += text(name) + value;
  return out + "u";
}
inline Value numbered(const std::vector<Value>& items) {
  std::string out = "}(";
  for (size_t i = 0; i < items.size(); ++i) out += number(int64_t(i)) + items[i];
  return out + "u";
}
/// "module\nname\n".
inline Value global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline Value call(const Value& name, const std::vector<Value>& arguments) {
  return name + tuple(arguments) + "R";
}
inline Value object(const std::string& module, const std::string& name, const Entries& state) {
  return global(module, name) + ")\x81" + dict(state) + "b";
}
inline Value shape(const std::vector<int64_t>& extents) {
  std::vector<Value> items;
  for (const int64_t extent : extents) items.push_back(number(extent));
  return tuple(items);
}
inline Value size(const std::vector<int64_t>& extents) {
  return call(global("torch", "Size"), {shape(extents)});
}

/// One file.
class PtFile {
 public:
  /// A view of `values`, which become a storage of their own.
  Value tensor(const std::vector<int64_t>& extents, const std::vector<float>& values) {
    return view(storage(values), values.size(), 0, extents);
  }
  Value flat(const std::vector<float>& values) { return tensor({int64_t(values.size())}, values); }
  Value scalar(float value) { return tensor({}, {value}); }
  int storage(const std::vector<float>& values) {
    storages_.emplace_back(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(float));
    return int(storages_.size()) - 1;
  }
  Value view(int storage, size_t elements, int64_t offset, const std::vector<int64_t>& extents) {
    return stored("FloatStorage", storage, elements, offset, extents);
  }
  Value bf16(const std::vector<int64_t>& extents, const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      bytes += {static_cast<char>(bits), static_cast<char>(bits >> 8)};
    }
    storages_.push_back(bytes);
    return stored("BFloat16Storage", int(storages_.size()) - 1, values.size(), 0, extents);
  }

  /// The archive's bytes.
  std::string bytes(const Value& root) const {
    std::string out, directory;
    int count = 0;
    const auto add = [&](const std::string& name, const std::string& content) {
      const auto crc = static_cast<uint32_t>(crc32(
          0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
      std::string common = little(20, 2) + little(0, 2) + little(0, 2) + little(0, 4) +
                           little(crc, 4) + little(content.size(), 4) + little(content.size(), 4) +
                           little(name.size(), 2) + little(0, 2);
      directory += "PK\1\2" + little(20, 2) + common + little(0, 2) + little(0, 2) + little(0, 2) +
                   little(0, 4) + little(out.size(), 4) + name;
      out += "PK\3\4" + common + name + content;
      ++count;
    };
    add("x/data.pkl", "\x80\2" + root + ".");
    add("x/byteorder", "little");
    for (size_t i = 0; i < storages_.size(); ++i) add("x/data/" + std::to_string(i), storages_[i]);
    const size_t at = out.size();
    return out + directory + "PK\5\6" + little(0, 2) + little(0, 2) + little(count, 2) +
           little(count, 2) + little(directory.size(), 4) + little(at, 4) + little(0, 2);
  }

 private:
  static std::string little(uint64_t value, int width) {
    std::string out;
    for (int i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i));
    return out;
  }
  static Value stored(const char* type, int storage, size_t elements, int64_t offset,
                      const std::vector<int64_t>& extents) {
    std::vector<int64_t> strides(extents.size());
    int64_t step = 1;
    for (size_t i = extents.size(); i-- > 0; step *= extents[i]) strides[i] = step;
    const Value id = tuple({text("storage"), global("torch", type), text(std::to_string(storage)),
                            text("cpu"), number(int64_t(elements))});
    return call(global("torch._utils", "_rebuild_tensor_v2"),
                {id + "Q", number(offset), shape(extents), shape(strides), boolean(false),
                 call(global("collections", "OrderedDict"), {})});
  }
  std::vector<std::string> storages_;
};

}  // namespace dsj::deepspeed::testing_support
