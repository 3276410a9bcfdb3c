// The values of a template: Python's, as far as chat templates use them. Internal to common/jinja,
// except for reading JSON and building a context (see template.h).
//
// Texts, sequences and dicts are immutable, so a copy is a handle. Values with state (a namespace,
// a loop) are Objects of the evaluator. Texts are UTF-8; lengths and positions count code points,
// as in Python. Dicts keep the order of their keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/result.h"

namespace dsj::jinja {

class Value;
class Dict;
struct Sequence;

/// An error in a template, or one that it raises (raise_exception). Thrown inside the room only;
/// template.h returns it as an Error with the template's line.
struct TemplateError {
  std::string message;
};

struct Text {
  std::string bytes;
  size_t length = 0;  ///< code points
  bool is_ascii() const { return length == bytes.size(); }
};

/// A value that the evaluator knows: a macro, a namespace, a loop, a function, a method.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual bool is_callable() const { return false; }
  /// nullopt if it has no such attribute.
  virtual std::optional<Value> attribute(std::string_view name) const;
  virtual int depth() const { return 0; }
};

inline constexpr int kDepthMax = 200;  ///< nesting of values
inline constexpr int64_t kWeightMax = 16 << 20;

class Value {
 public:
  /// `why`: the error when it is used ("'x' is undefined").
  struct Undefined {
    std::shared_ptr<const std::string> why;
  };
  struct None {};
  /// An integer beyond 64 bits: it can only be printed and compared with others of its kind.
  struct BigInt {
    std::shared_ptr<const std::string> digits;
  };
  /// `markup`: marked by the filter safe; text added to it is escaped for HTML.
  struct Str {
    std::shared_ptr<const Text> text;
    bool markup = false;
  };

  Value() : data_(Undefined{}) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(static_cast<int64_t>(value)) {}
  Value(int64_t value) : data_(value) {}
  Value(size_t value) : data_(static_cast<int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(std::string bytes, bool markup = false);
  Value(std::string_view bytes) : Value(std::string(bytes)) {}
  Value(const char* bytes) : Value(std::string(bytes)) {}
  Value(BigInt value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Sequence> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}
  static Value none();
  static Value undefined(std::string why);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  /// Includes bool, as in Python.
  bool is_int() const { return std::holds_alternative<int64_t>(data_) || is_bool(); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_big() const { return std::holds_alternative<BigInt>(data_); }
  bool is_number() const { return is_int() || is_float() || is_big(); }
  bool is_str() const { return std::holds_alternative<Str>(data_); }
  bool is_markup() const { return is_str() && std::get<Str>(data_).markup; }

  // Only if the value is of that kind.
  const std::string& why() const;
  int64_t as_int() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double as_double() const { return is_float() ? std::get<double>(data_) : double(as_int()); }
  const std::string& digits() const { return *std::get<BigInt>(data_).digits; }
  const Text& text() const { return *std::get<Str>(data_).text; }
  const std::string& bytes() const { return text().bytes; }
  /// The same text with the mark set to `markup`.
  Value marked(bool markup) const;

  // nullptr if it is of another kind.
  const Sequence* sequence() const;
  const Dict* dict() const;
  Object* object() const;
  template <typename T>
  T* object_as() const {
    return dynamic_cast<T*>(object());
  }
  /// Python's `is`; scalars are the same if they are equal.
  bool same_as(const Value& other) const;
  int depth() const;
  /// Roughly the cost of walking it: the number of values in it, plus one per 16 bytes of text. A
  /// value that occurs twice counts twice.
  int64_t weight() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, BigInt, Str, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

using Values = std::vector<Value>;

struct Sequence {
  enum class Kind { List, Tuple, Range, Keys, Values, Items, Generator };
  Kind kind = Kind::List;
  dsj::jinja::Values items;
  int depth = 0;
  int64_t weight = 1;
  /// For a generator: the number of items taken.
  mutable size_t taken = 0;
  bool has_places() const { return kind <= Kind::Range; }
};

class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(const Value& key) const;
  const Value* named(std::string_view key) const;
  /// Only before the dict becomes a Value. An existing key keeps its position.
  void set(Value key, Value value);
  int depth() const { return depth_; }
  int64_t weight() const { return weight_; }

 private:
  std::optional<size_t> place_of(std::string_view key) const;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;  ///< for texts, once there are many
  int depth_ = 0;
  int64_t weight_ = 1;
};

// These throw TemplateError if values nest too deep or weigh more than kWeightMax.
Value make_sequence(Values items, Sequence::Kind kind = Sequence::Kind::List);
inline Value make_list(Values items) {
  return make_sequence(std::move(items));
}
Value make_dict(Dict dict);
/// Keys in the given order.
Value make_dict(std::vector<std::pair<std::string, Value>> entries);

/// "str", "dict", "NoneType"
std::string type_name(const Value& value);
bool truth(const Value& value);
/// Python's ==.
bool equals(const Value& a, const Value& b);
/// Negative, 0 or positive; throws TemplateError if Python does not order the two.
int compare(const Value& a, const Value& b);
/// Python's str() and repr(). Throw TemplateError for objects: Python would show addresses.
std::string to_str(const Value& value);
std::string to_repr(const Value& value);
/// The items of an iteration: the characters of a text, the keys of a dict, none for an undefined
/// value. Consumes a generator. Throws TemplateError if it is not iterable.
Values items_of(const Value& value);
std::optional<Values> try_items_of(const Value& value);
/// nullopt if it has no length.
std::optional<int64_t> length_of(const Value& value);

/// JSON with its keys in order and exact integers. Errors: BadInput if not JSON, with the byte.
Result<Value> value_of_json(std::string_view text);

}  // namespace dsj::jinja
