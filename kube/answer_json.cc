#include "kube/answer_json.h"

#include <utility>
#include <vector>

namespace dsj::kube {
namespace {

using Json = nlohmann::json;

/// Builds the value as nlohmann's own parser does, without what is under managedFields.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has no binary values

  bool start_object(size_t) override { return begin(Json::object()); }
  bool start_array(size_t) override { return begin(Json::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool key(string_t& name) override {
    if (left_out_ > 0) return true;
    Level& level = levels_.back();
    level.leaves_out = level.is == Is::Metadata && name == "managedFields";
    level.next = Is::Other;
    if (level.is == Is::Object && name == "metadata") level.next = Is::Metadata;
    // Watch events have an object, lists have items. Other members so named have no such metadata.
    if (level.is == Is::Object && levels_.size() == 1) {
      if (name == "object") level.next = Is::Object;
      if (name == "items") level.next = Is::Items;
    }
    if (!level.leaves_out) level.member = &(*level.value)[std::move(name)];
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  Json result;

 private:
  /// The role of a container.
  enum class Is { Object, Metadata, Items, Other };
  struct Level {
    Json* value;
    Is is;
    Is next = Is::Other;      ///< role of the next member
    Json* member = nullptr;   ///< where it is stored, in an object
    bool leaves_out = false;  ///< whether it is left out
  };

  /// Whether the next value is left out.
  bool skips() const { return left_out_ > 0 || (!levels_.empty() && levels_.back().leaves_out); }

  Json& place(Json value) {
    if (levels_.empty()) return result = std::move(value);
    Level& level = levels_.back();
    if (!level.value->is_array()) return *level.member = std::move(value);
    level.value->push_back(std::move(value));
    return level.value->back();
  }
  bool put(Json value) {
    if (!skips()) place(std::move(value));
    return true;
  }
  bool begin(Json empty) {
    if (skips()) {
      ++left_out_;
      return true;
    }
    Is is = Is::Object;
    if (!levels_.empty()) {
      const Level& level = levels_.back();
      is = level.is == Is::Items ? Is::Object : level.next;
    }
    Json& value = place(std::move(empty));
    // The elements of an array do not move while one of them is open.
    levels_.push_back({.value = &value, .is = is});
    return true;
  }
  bool end() {
    if (left_out_ > 0) {
      --left_out_;
    } else {
      levels_.pop_back();
    }
    return true;
  }

  std::vector<Level> levels_;  ///< open containers
  int left_out_ = 0;           ///< open containers that are left out
};

}  // namespace

nlohmann::json parse_answer(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return Json(Json::value_t::discarded);
  return std::move(builder.result);
}

}  // namespace dsj::kube
