#include "common/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/jinja/python_text.h"
#include "common/json_depth.h"

namespace dsj::jinja {
namespace {

using std::shared_ptr;

constexpr size_t kIndexedFrom = 9;  ///< smaller dicts are searched linearly

void check_size(int depth, int64_t weight) {
  if (depth > kDepthMax)
    throw TemplateError{"values nest deeper than " + std::to_string(kDepthMax)};
  if (weight > kWeightMax) throw TemplateError{"a value grows too large"};
}

int compare_ints(int64_t a, int64_t b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

const char* kind_name(Sequence::Kind kind) {
  switch (kind) {
    case Sequence::Kind::List:
      return "list";
    case Sequence::Kind::Tuple:
      return "tuple";
    case Sequence::Kind::Range:
      return "range";
    case Sequence::Kind::Keys:
      return "dict_keys";
    case Sequence::Kind::Values:
      return "dict_values";
    case Sequence::Kind::Items:
      return "dict_items";
    case Sequence::Kind::Generator:
      break;
  }
  return "generator";
}

std::string joined_repr(const Values& items) {
  std::string out;
  for (const Value& item : items) {
    if (!out.empty()) out += ", ";
    out += to_repr(item);
  }
  return out;
}

std::string sequence_repr(const Sequence& sequence) {
  const std::string inner = joined_repr(sequence.items);
  switch (sequence.kind) {
    case Sequence::Kind::List:
      return "[" + inner + "]";
    case Sequence::Kind::Tuple:
      return "(" + inner + (sequence.items.size() == 1 ? ",)" : ")");
    case Sequence::Kind::Range:
    case Sequence::Kind::Generator:
      throw TemplateError{std::string("a ") + kind_name(sequence.kind) +
                          " is printed: make it a list first (| list)"};
    case Sequence::Kind::Keys:
    case Sequence::Kind::Values:
    case Sequence::Kind::Items:
      break;
  }
  return std::string(kind_name(sequence.kind)) + "([" + inner + "])";
}

/// Builds a Value from the events of nlohmann's parser: keys in order, exact integers.
class JsonReader {
 public:
  using number_integer_t = int64_t;
  using number_unsigned_t = uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return add(Value::none()); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) {
    if (value <= INT64_MAX) return add(static_cast<int64_t>(value));
    return add(Value::BigInt{std::make_shared<std::string>(std::to_string(value))});
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Value::BigInt{std::make_shared<std::string>(text)});
  }
  bool string(std::string& value) { return add(Value(std::move(value))); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) {
    open_.push_back({.is_dict = true});
    return true;
  }
  bool key(std::string& value) {
    open_.back().key = Value(std::move(value));
    return true;
  }
  bool end_object() {
    Value made = make_dict(std::move(open_.back().dict));
    open_.pop_back();
    return add(std::move(made));
  }
  bool start_array(size_t) {
    open_.push_back({.is_dict = false});
    return true;
  }
  bool end_array() {
    Value made = make_list(std::move(open_.back().list));
    open_.pop_back();
    return add(std::move(made));
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::json::exception&) {
    bad_byte = byte;
    return false;
  }

  size_t bad_byte = 0;
  Value result;

 private:
  struct Open {
    bool is_dict = false;
    Dict dict = {};
    Values list = {};
    Value key = {};
  };
  bool add(Value value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().is_dict) {
      open_.back().dict.set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().list.push_back(std::move(value));
    }
    return true;
  }
  std::vector<Open> open_;
};

}  // namespace

std::optional<Value> Object::attribute(std::string_view) const {
  return std::nullopt;
}

Value::Value(std::string bytes, bool markup) {
  const size_t length = code_points(bytes);
  data_ = Str{std::make_shared<const Text>(Text{std::move(bytes), length}), markup};
}

Value Value::none() {
  Value value;
  value.data_ = None{};
  return value;
}

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

const std::string& Value::why() const {
  static const std::string kUnknown = "a value is undefined";
  const auto& why = std::get<Undefined>(data_).why;
  return why ? *why : kUnknown;
}

Value Value::marked(bool markup) const {
  Value value = *this;
  std::get<Str>(value.data_).markup = markup;
  return value;
}

const Sequence* Value::sequence() const {
  const auto* found = std::get_if<shared_ptr<const Sequence>>(&data_);
  return found ? found->get() : nullptr;
}
const Dict* Value::dict() const {
  const auto* found = std::get_if<shared_ptr<const Dict>>(&data_);
  return found ? found->get() : nullptr;
}
Object* Value::object() const {
  const auto* found = std::get_if<shared_ptr<Object>>(&data_);
  return found ? found->get() : nullptr;
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (sequence()) return sequence() == other.sequence();
  if (dict()) return dict() == other.dict();
  if (object()) return object() == other.object();
  return equals(*this, other);
}

int Value::depth() const {
  if (const Sequence* found = sequence()) return found->depth;
  if (const Dict* found = dict()) return found->depth();
  if (const Object* found = object()) return found->depth();
  return 0;
}

int64_t Value::weight() const {
  if (is_str()) return 1 + static_cast<int64_t>(bytes().size() / 16);
  if (const Sequence* found = sequence()) return found->weight;
  if (const Dict* found = dict()) return found->weight();
  return 1;
}

std::optional<size_t> Dict::place_of(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].first.is_str() && entries_[i].first.bytes() == key) return i;
  }
  return std::nullopt;
}

const Value* Dict::named(std::string_view key) const {
  const auto place = place_of(key);
  return place ? &entries_[*place].second : nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_str()) return named(key.bytes());
  for (const auto& [name, value] : entries_) {
    if (!name.is_str() && equals(name, key)) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  weight_ += key.weight() + value.weight();
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);  // nobody else refers to the dict yet
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() < kIndexedFrom) return;
  const auto add = [this](size_t i) {
    const Value& name = entries_[i].first;
    if (name.is_str()) index_.emplace(name.bytes(), i);  // the bytes lie on the heap and stay there
  };
  if (entries_.size() > kIndexedFrom) return add(entries_.size() - 1);
  for (size_t i = 0; i < entries_.size(); ++i) add(i);
}

Value make_sequence(Values items, Sequence::Kind kind) {
  auto made = std::make_shared<Sequence>();
  for (const Value& item : items) {
    made->depth = std::max(made->depth, item.depth() + 1);
    made->weight += item.weight();
  }
  check_size(made->depth, made->weight);
  made->kind = kind;
  made->items = std::move(items);
  return Value(shared_ptr<const Sequence>(std::move(made)));
}

Value make_dict(Dict dict) {
  check_size(dict.depth(), dict.weight());
  return Value(shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict))));
}

Value make_dict(std::vector<std::pair<std::string, Value>> entries) {
  Dict dict;
  for (auto& [name, value] : entries) dict.set(Value(std::move(name)), std::move(value));
  return make_dict(std::move(dict));
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int() || value.is_big()) return "int";
  if (value.is_float()) return "float";
  if (value.is_str()) return value.is_markup() ? "Markup" : "str";
  if (const Sequence* sequence = value.sequence()) return kind_name(sequence->kind);
  if (value.dict()) return "dict";
  return value.object()->type_name();
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_int()) return value.as_int() != 0;
  if (value.is_float()) return value.as_double() != 0;
  if (value.is_str()) return !value.bytes().empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->kind == Sequence::Kind::Generator || !sequence->items.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->entries().empty();
  return true;
}

bool equals(const Value& a, const Value& b) {
  if (a.is_big() || b.is_big()) return a.is_big() && b.is_big() && a.digits() == b.digits();
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.is_str() && b.is_str()) return a.bytes() == b.bytes();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (const Sequence* x = a.sequence(), *y = b.sequence(); x && y) {
    if (x == y) return true;
    if (x->kind != y->kind || !x->has_places()) return false;
    return std::ranges::equal(x->items, y->items, equals);
  }
  if (const Dict* x = a.dict(), *y = b.dict(); x && y) {
    if (x == y) return true;
    if (x->entries().size() != y->entries().size()) return false;
    return std::ranges::all_of(x->entries(), [y](const Dict::Entry& entry) {
      const Value* other = y->find(entry.first);
      return other && equals(entry.second, *other);
    });
  }
  return a.object() != nullptr && a.object() == b.object();
}

int compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number() && !a.is_big() && !b.is_big()) {
    if (a.is_int() && b.is_int()) return compare_ints(a.as_int(), b.as_int());
    return a.as_double() < b.as_double() ? -1 : a.as_double() > b.as_double() ? 1 : 0;
  }
  if (a.is_str() && b.is_str()) return a.bytes().compare(b.bytes());
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x && y && x->kind == y->kind && x->kind <= Sequence::Kind::Tuple) {
    for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
      if (!equals(x->items[i], y->items[i])) return compare(x->items[i], y->items[i]);
    }
    return compare_ints(std::ssize(x->items), std::ssize(y->items));
  }
  for (const Value* one : {&a, &b}) {
    if (one->is_undefined()) throw TemplateError{one->why()};
  }
  throw TemplateError{type_name(a) + " and " + type_name(b) + " cannot be compared"};
}

std::string to_str(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_str()) return value.bytes();
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.as_int() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.as_int());
  if (value.is_big()) return value.digits();
  if (value.is_float()) return float_repr(value.as_double());
  if (value.is_str()) {
    const std::string quoted = text_repr(value.bytes());
    return value.is_markup() ? "Markup(" + quoted + ")" : quoted;
  }
  if (const Sequence* sequence = value.sequence()) return sequence_repr(*sequence);
  if (const Dict* dict = value.dict()) {
    std::string out = "{";
    for (const auto& [key, entry] : dict->entries()) {
      if (out.size() > 1) out += ", ";
      out += to_repr(key) + ": " + to_repr(entry);
    }
    return out + "}";
  }
  throw TemplateError{"a value of type " + type_name(value) + " has no text"};
}

std::optional<Values> try_items_of(const Value& value) {
  if (value.is_undefined()) return Values{};
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind != Sequence::Kind::Generator) return sequence->items;
    const auto first = sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->taken);
    sequence->taken = sequence->items.size();
    return Values(first, sequence->items.end());
  }
  Values items;
  if (value.is_str()) {
    const std::string& bytes = value.bytes();
    items.reserve(value.text().length);
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = character_bytes(bytes[at]);
      items.emplace_back(bytes.substr(at, length));
      at += length;
    }
    return items;
  }
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, entry] : dict->entries()) items.push_back(key);
    return items;
  }
  return std::nullopt;
}

Values items_of(const Value& value) {
  if (auto items = try_items_of(value)) return std::move(*items);
  throw TemplateError{"a value of type " + type_name(value) + " is not iterable"};
}

std::optional<int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_str()) return static_cast<int64_t>(value.text().length);
  if (const Dict* dict = value.dict()) return std::ssize(dict->entries());
  const Sequence* sequence = value.sequence();
  if (!sequence || sequence->kind == Sequence::Kind::Generator) return std::nullopt;
  return std::ssize(sequence->items);
}

Result<Value> value_of_json(std::string_view text) {
  if (json_depth(text) >= static_cast<size_t>(kDepthMax)) {
    return bad_input("nests deeper than " + std::to_string(kDepthMax) + " levels");
  }
  JsonReader reader;
  if (!nlohmann::json::sax_parse(text, &reader)) {
    return bad_input("is not JSON at byte " + std::to_string(reader.bad_byte));
  }
  return std::move(reader.result);
}

}  // namespace dsj::jinja
