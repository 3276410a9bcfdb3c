#include "engine/weights/formats/pickle_writer.h"

#include <bit>
#include <limits>

namespace dsj::weights::pickled {
namespace {

std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string joined(const Items& items) {
  std::string out;
  for (const Value& item : items) out += item;
  return out;
}

std::string joined(const Entries& entries) {
  std::string out;
  for (const auto& [key, value] : entries) out += key + value;
  return out;
}

Value integers(const std::vector<int64_t>& numbers) {
  Items items;
  for (const int64_t number : numbers) items.push_back(integer(number));
  return tuple(items);
}

}  // namespace

Value none() {
  return "N";
}

Value boolean(bool value) {
  return value ? "\x88" : "\x89";
}

Value integer(int64_t value) {
  using Limits = std::numeric_limits<int32_t>;
  if (value >= Limits::min() && value <= Limits::max())
    return "J" + little(static_cast<uint64_t>(value), 4);
  return "\x8a\x08" + little(static_cast<uint64_t>(value), 8);  // LONG1
}

Value real(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  std::string out = "G";  // big-endian
  for (int i = 7; i >= 0; --i) out += static_cast<char>(bits >> (8 * i));
  return out;
}

Value str(const std::string& value) {
  return "X" + little(value.size(), 4) + value;
}

Value tuple(const Items& items) {
  return "(" + joined(items) + "t";
}

Value list(const Items& items) {
  return "](" + joined(items) + "e";
}

Value dict(const Entries& entries) {
  return "}(" + joined(entries) + "u";
}

Value ordered_dict(const Entries& entries) {
  return call(global("collections", "OrderedDict"), {}) + "(" + joined(entries) + "u";
}

Value global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

Value call(const Value& function, const Items& arguments) {
  return function + tuple(arguments) + "R";
}

Value object(const std::string& module, const std::string& name, const Entries& state) {
  return global(module, name) + ")\x81" + dict(state) + "b";
}

Value torch_size(const std::vector<int64_t>& shape) {
  return call(global("torch", "Size"), {integers(shape)});
}

Entries named(const std::vector<std::pair<std::string, Value>>& entries) {
  Entries out;
  for (const auto& [name, value] : entries) out.emplace_back(str(name), value);
  return out;
}

}  // namespace dsj::weights::pickled
