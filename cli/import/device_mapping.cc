#include "cli/import/device_mapping.h"

#include <cctype>
#include <charconv>
#include <map>
#include <set>

namespace dsj::jobimport {
namespace {

constexpr size_t kMaxDevices = 65'536;

class Parser {
 public:
  Parser(const std::string& text, const std::string& where) : text_(text), where_(where) {}

  Result<std::vector<int64_t>> whole() {
    do {
      DSJ_TRY_STATUS(term());
    } while (take("+"));
    skip();
    if (at_ < text_.size()) return unexpected("the end");
    return std::move(devices_);
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(const std::string& token) {
    skip();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  std::unexpected<Error> unexpected(const std::string& expected) {
    skip();
    return bad_input("\"" + text_.substr(0, 60) + "\", column " + std::to_string(at_ + 1) +
                         ": expected " + expected,
                     where_, "ranges and lists of numbers are read: list(range(0,8)) + [12, 13]");
  }
  Status expect(const char* token) {
    if (!take(token)) return unexpected("\"" + std::string(token) + "\"");
    return {};
  }

  Result<int64_t> number() {
    skip();
    int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
    if (error != std::errc()) return unexpected("a whole number");
    at_ = static_cast<size_t>(stop - text_.data());
    return value;
  }

  Status push(int64_t device) {
    if (devices_.size() >= kMaxDevices)
      return bad_input("more than " + std::to_string(kMaxDevices) + " devices", where_);
    devices_.push_back(device);
    return {};
  }

  Status term() {
    if (take("list")) {
      DSJ_TRY_STATUS(expect("("));
      DSJ_TRY_STATUS(inner());
      return expect(")");
    }
    return inner();
  }

  Status inner() {
    if (take("range")) return range();
    if (!take("[")) return unexpected("list(...), range(...) or [...]");
    while (!take("]")) {
      DSJ_TRY(const int64_t device, number());
      DSJ_TRY_STATUS(push(device));
      if (!take(",")) return expect("]");
    }
    return {};
  }

  Status range() {
    DSJ_TRY_STATUS(expect("("));
    std::vector<int64_t> bounds;
    do {
      DSJ_TRY(const int64_t bound, number());
      bounds.push_back(bound);
    } while (bounds.size() < 3 && take(","));
    DSJ_TRY_STATUS(expect(")"));
    const int64_t first = bounds.size() > 1 ? bounds[0] : 0;
    const int64_t last = bounds.size() > 1 ? bounds[1] : bounds[0];
    const int64_t step = bounds.size() > 2 ? bounds[2] : 1;
    if (step == 0) return bad_input("a range with step 0", where_);
    // Larger numbers are refused before any arithmetic.
    for (const int64_t bound : bounds)
      if (bound > 1'000'000 || bound < -1'000'000)
        return bad_input("there is no device " + std::to_string(bound), where_);
    for (int64_t device = first; step > 0 ? device < last : device > last; device += step)
      DSJ_TRY_STATUS(push(device));
    return {};
  }

  const std::string& text_;
  const std::string& where_;
  size_t at_ = 0;
  std::vector<int64_t> devices_;
};

}  // namespace

Result<std::vector<int>> parse_device_mapping(const nlohmann::json& value,
                                              const std::string& where) {
  std::vector<int64_t> numbers;
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    DSJ_TRY(numbers, Parser(text, where).whole());
  } else if (value.is_array() && value.size() <= kMaxDevices) {
    for (const nlohmann::json& one : value) {
      if (!one.is_number_integer()) return bad_input("expected device numbers", where);
      numbers.push_back(one.get<int64_t>());
    }
  } else {
    return bad_input("expected an expression such as list(range(0,8))", where);
  }
  std::vector<int> devices;
  std::set<int64_t> seen;
  for (const int64_t device : numbers) {
    if (device < 0 || device > 1'000'000)
      return bad_input("there is no device " + std::to_string(device), where);
    if (!seen.insert(device).second)
      return bad_input("device " + std::to_string(device) + " is listed twice", where);
    devices.push_back(static_cast<int>(device));
  }
  if (devices.empty()) return bad_input("no device is listed", where);
  return devices;
}

Result<Nodes> nodes_of(const std::vector<int>& devices, int per_node, const std::string& where) {
  std::map<int, int> counts;
  for (const int device : devices) ++counts[device / per_node];
  const int slots = counts.begin()->second;
  std::string shown;
  bool even = true;
  for (const auto& [node, count] : counts) {
    even = even && count == slots;
    if (shown.size() < 200)
      shown += (shown.empty() ? "" : ", ") + std::string("node ") + std::to_string(node) + ": " +
               std::to_string(count);
  }
  if (!even)
    return bad_input("nodes with different numbers of devices: " + shown, where,
                     "every worker of a job has the same number of ranks");
  return Nodes{static_cast<int>(counts.size()), slots};
}

}  // namespace dsj::jobimport
