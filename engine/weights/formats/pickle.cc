#include "engine/weights/formats/pickle.h"

#include <bit>
#include <cstring>
#include <map>
#include <optional>

namespace dsj::weights {
namespace {

using Kind = PickleKind;
using Ref = PickleRef;
using Value = PickleValue;

/// Prevents millions of one-byte opcodes from becoming gigabytes of values.
constexpr size_t kValuesMax = 1'000'000;

constexpr PickleName kStateDictNames[] = {
    {"collections.OrderedDict", PickleRule::EmptyDict},
    {"torch._utils._rebuild_tensor_v2", PickleRule::RebuildTensor},
    {"torch.FloatStorage", PickleRule::Storage, DType::F32},
    {"torch.HalfStorage", PickleRule::Storage, DType::F16},
    {"torch.BFloat16Storage", PickleRule::Storage, DType::BF16},
    {"torch.DoubleStorage", PickleRule::Storage, DType::F64},
    {"torch.LongStorage", PickleRule::Storage, DType::I64},
    {"torch.IntStorage", PickleRule::Storage, DType::I32},
    {"torch.ShortStorage", PickleRule::Storage, DType::I16},
    {"torch.CharStorage", PickleRule::Storage, DType::I8},
    {"torch.ByteStorage", PickleRule::Storage, DType::U8},
    {"torch.BoolStorage", PickleRule::Storage, DType::Bool}};

class Machine {
 public:
  Machine(std::string_view bytes, std::span<const PickleName> names, const std::string& what,
          const std::string& path, const std::string& hint)
      : bytes_(bytes), names_(names), what_(what), path_(path), hint_(hint) {}

  Result<Pickle> run() {
    while (!done_) DSJ_TRY_STATUS(step());
    if (stack_.size() != 1 || !marks_.empty()) return refuse("it does not end with one value");
    return Pickle{std::move(values_), stack_[0]};
  }

 private:
  std::unexpected<Error> refuse(const std::string& what) const {
    return bad_input("pickle, byte " + std::to_string(opcode_at_) + ": " + what, path_, hint_);
  }

  // ---- bytes
  Result<std::string_view> take(size_t count) {
    if (count > bytes_.size() - position_) return refuse("it ends early");
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }
  /// Reads a little-endian unsigned number of `width` bytes.
  Result<uint64_t> take_number(size_t width) {
    DSJ_TRY(const auto raw, take(width));
    uint64_t value = 0;
    std::memcpy(&value, raw.data(), width);
    return value;
  }
  Result<std::string> take_line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) return refuse("it ends early");
    std::string line(bytes_.substr(position_, end - position_));
    position_ = end + 1;
    return line;
  }

  // ---- stack
  Status push(Value value) {
    if (values_.size() >= kValuesMax) return refuse("too many values for " + what_);
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Ref>(values_.size() - 1));
    return {};
  }
  Status push_number(Kind kind, int64_t number) { return push({.kind = kind, .number = number}); }
  Result<Ref> pop() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) return refuse("it takes from an empty stack");
    const Ref top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Result<std::vector<Ref>> pop_to_mark() {
    if (marks_.empty()) return refuse("a mark is missing");
    const size_t from = marks_.back();
    marks_.pop_back();
    std::vector<Ref> items(stack_.begin() + static_cast<int64_t>(from), stack_.end());
    stack_.resize(from);
    return items;
  }
  Result<Value*> top(Kind kind, const char* what) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) return refuse("it takes from an empty stack");
    Value& value = values_[stack_.back()];
    if (value.kind != kind) return refuse(std::string("items for something that is not a ") + what);
    return &value;
  }

  // ---- opcodes
  Status step();
  Status tuple(size_t count) {
    Value value{.kind = Kind::Tuple};
    value.items.resize(count);
    for (size_t i = count; i-- > 0;) {
      DSJ_TRY(value.items[i], pop());
    }
    return push(std::move(value));
  }
  Status text(size_t length_bytes) {
    DSJ_TRY(const uint64_t length, take_number(length_bytes));
    if (length > bytes_.size()) return refuse("a text is longer than the file");
    DSJ_TRY(const auto raw, take(length));
    return push({.kind = Kind::Text, .text = std::string(raw)});
  }
  Status put(uint64_t slot) {
    if (stack_.empty()) return refuse("it memoizes from an empty stack");
    memo_[slot] = stack_.back();
    return {};
  }
  Status get(uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) return refuse("it reads an unset memo entry");
    stack_.push_back(found->second);
    return stack_.size() > kValuesMax ? Status(refuse("too many values")) : Status{};
  }
  Status global() {
    DSJ_TRY(const std::string module, take_line());
    DSJ_TRY(const std::string name, take_line());
    const std::string whole = module + "." + name;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (whole == names_[i].name) return push_number(Kind::Name, static_cast<int64_t>(i));
    }
    return refuse("the name \"" + whole.substr(0, 100) + "\" is not part of " + what_);
  }
  Status long_integer() {
    DSJ_TRY(const uint64_t width, take_number(1));
    if (width > 8) return refuse("an integer of more than 64 bits");
    DSJ_TRY(uint64_t value, take_number(width));
    if (width > 0 && width < 8 && (value >> (8 * width - 1)) & 1)
      value |= ~uint64_t{0} << 8 * width;
    return push_number(Kind::Int, static_cast<int64_t>(value));
  }
  Status real() {
    DSJ_TRY(const auto raw, take(8));  // big-endian
    uint64_t bits = 0;
    for (const char byte : raw) bits = bits << 8 | static_cast<unsigned char>(byte);
    return push({.kind = Kind::Float, .real = std::bit_cast<double>(bits)});
  }
  /// nullptr if it is not a name.
  const PickleName* name_of(Ref ref) const {
    const Value& value = values_[ref];
    return value.kind == Kind::Name ? &names_[static_cast<size_t>(value.number)] : nullptr;
  }
  Status reduce() {
    DSJ_TRY(const Ref arguments, pop());
    DSJ_TRY(const Ref callable, pop());
    return call(callable, arguments, true);
  }
  Status call(Ref callable, Ref arguments, bool may_redirect) {
    if (values_[arguments].kind != Kind::Tuple) return refuse("a call without a tuple");
    const auto& items = values_[arguments].items;
    const PickleName* name = name_of(callable);
    switch (name == nullptr ? PickleRule::Constant : name->rule) {
      case PickleRule::EmptyDict:
        // defaultdict's argument is the name of its factory.
        if (items.size() > 1 || (items.size() == 1 && name_of(items[0]) == nullptr)) break;
        return push({.kind = Kind::Dict});
      case PickleRule::RebuildTensor:
        if (items.size() != 6 && items.size() != 7) break;
        return push({.kind = Kind::Tensor, .items = items});
      case PickleRule::RebuildFromType:
        if (items.size() != 4 || !may_redirect) break;
        return call(items[0], items[2], false);
      case PickleRule::First:
        if (items.empty()) break;
        stack_.push_back(items[0]);
        return {};
      case PickleRule::Object:
        if (!items.empty()) break;
        return push({.kind = Kind::Object, .text = name->name});
      case PickleRule::Storage:
      case PickleRule::Constant:
        break;
    }
    return refuse("a call that " + what_ + " does not make");
  }
  Status persistent_id() {
    DSJ_TRY(const Ref id, pop());
    const Value& value = values_[id];
    const auto is = [&](size_t i, Kind kind) { return values_[value.items[i]].kind == kind; };
    if (value.kind != Kind::Tuple || value.items.size() != 5 || !is(0, Kind::Text) ||
        values_[value.items[0]].text != "storage" || !is(1, Kind::Name) ||
        name_of(value.items[1])->rule != PickleRule::Storage || !is(2, Kind::Text) ||
        !is(3, Kind::Text) || !is(4, Kind::Int)) {
      return refuse("a persistent id that is not a storage");
    }
    const auto dtype = static_cast<int64_t>(name_of(value.items[1])->dtype);
    return push({.kind = Kind::Storage, .number = dtype, .items = value.items});
  }
  /// An OrderedDict's state is its _metadata, which is ignored.
  Status build() {
    DSJ_TRY(const Ref state, pop());
    if (values_[state].kind != Kind::Dict) return refuse("state that is not a dict");
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) return refuse("it takes from an empty stack");
    Value& value = values_[stack_.back()];
    if (value.kind == Kind::Object)
      value.items = values_[state].items;
    else if (value.kind != Kind::Dict)
      return refuse("state for a value without state");
    return {};
  }
  Status set_items(std::vector<Ref> items) {
    DSJ_TRY(Value* const dict, top(Kind::Dict, "dict"));
    if (items.size() % 2) return refuse("a key without a value");
    dict->items.insert(dict->items.end(), items.begin(), items.end());
    return {};
  }
  Status append(const std::vector<Ref>& items) {
    DSJ_TRY(Value* const list, top(Kind::List, "list"));
    list->items.insert(list->items.end(), items.begin(), items.end());
    return {};
  }

  const std::string_view bytes_;
  const std::span<const PickleName> names_;
  const std::string &what_, &path_, &hint_;
  size_t position_ = 0, opcode_at_ = 0;
  bool done_ = false;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, Ref> memo_;
};

Status Machine::step() {
  opcode_at_ = position_;
  DSJ_TRY(const uint64_t opcode, take_number(1));
  auto with_number = [&](size_t width, auto then) -> Status {
    DSJ_TRY(const uint64_t number, take_number(width));
    return then(number);
  };
  switch (static_cast<char>(opcode)) {
    case '\x80':  // PROTO
      return with_number(1, [&](uint64_t version) -> Status {
        if (version == 2 || version == 3) return {};
        return refuse("protocol " + std::to_string(version) + ", 2 and 3 are read");
      });
    case '.':  // STOP
      done_ = true;
      return {};
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return marks_.size() > kValuesMax ? Status(refuse("too many marks")) : Status{};
    case '}':  // EMPTY_DICT
      return push({.kind = Kind::Dict});
    case ')':  // EMPTY_TUPLE
      return push({.kind = Kind::Tuple});
    case ']':  // EMPTY_LIST
      return push({.kind = Kind::List});
    case '\x85':  // TUPLE1
      return tuple(1);
    case '\x86':  // TUPLE2
      return tuple(2);
    case '\x87':  // TUPLE3
      return tuple(3);
    case 't': {  // TUPLE
      DSJ_TRY(auto items, pop_to_mark());
      return push({.kind = Kind::Tuple, .items = std::move(items)});
    }
    case 'N':  // NONE
      return push_number(Kind::None, 0);
    case '\x88':  // NEWTRUE
    case '\x89':  // NEWFALSE
      return push_number(Kind::Bool, static_cast<char>(opcode) == '\x88');
    case 'K':  // BININT1
      return with_number(1, [&](uint64_t n) { return push_number(Kind::Int, int64_t(n)); });
    case 'M':  // BININT2
      return with_number(2, [&](uint64_t n) { return push_number(Kind::Int, int64_t(n)); });
    case 'J':  // BININT
      return with_number(
          4, [&](uint64_t n) { return push_number(Kind::Int, static_cast<int32_t>(n)); });
    case '\x8a':  // LONG1
      return long_integer();
    case 'G':  // BINFLOAT
      return real();
    case 'X':  // BINUNICODE
      return text(4);
    case 'q':  // BINPUT
      return with_number(1, [&](uint64_t slot) { return put(slot); });
    case 'r':  // LONG_BINPUT
      return with_number(4, [&](uint64_t slot) { return put(slot); });
    case 'h':  // BINGET
      return with_number(1, [&](uint64_t slot) { return get(slot); });
    case 'j':  // LONG_BINGET
      return with_number(4, [&](uint64_t slot) { return get(slot); });
    case 'c':  // GLOBAL
      return global();
    case 'R':     // REDUCE
    case '\x81':  // NEWOBJ
      return reduce();
    case 'Q':  // BINPERSID
      return persistent_id();
    case 'b':  // BUILD
      return build();
    case 's': {  // SETITEM
      DSJ_TRY(const Ref value, pop());
      DSJ_TRY(const Ref key, pop());
      return set_items({key, value});
    }
    case 'u': {  // SETITEMS
      DSJ_TRY(auto items, pop_to_mark());
      return set_items(std::move(items));
    }
    case 'a': {  // APPEND
      DSJ_TRY(const Ref item, pop());
      return append({item});
    }
    case 'e': {  // APPENDS
      DSJ_TRY(const auto items, pop_to_mark());
      return append(items);
    }
    default:
      return refuse("opcode " + std::to_string(opcode) + " is none that " + what_ + " needs");
  }
}

}  // namespace

const PickleValue* Pickle::find(const PickleValue& dict, std::string_view key) const {
  if (dict.kind != Kind::Dict && dict.kind != Kind::Object) return nullptr;
  const PickleValue* found = nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& name = at(dict.items[i]);
    if (name.kind == Kind::Text && name.text == key) found = &at(dict.items[i + 1]);
  }
  return found;
}

std::span<const PickleName> state_dict_names() {
  return kStateDictNames;
}

Result<Pickle> read_pickle(std::string_view bytes, std::span<const PickleName> names,
                           const std::string& what, const std::string& path,
                           const std::string& hint) {
  return Machine(bytes, names, what, path, hint).run();
}

std::optional<std::vector<int64_t>> extents_of(const Pickle& pickle, const PickleValue& tuple) {
  if ((tuple.kind != Kind::Tuple && tuple.kind != Kind::List) ||
      tuple.items.size() > kDimensionsMax)
    return {};
  std::vector<int64_t> numbers;
  for (const Ref item : tuple.items) {
    const Value& value = pickle.at(item);
    if (value.kind != Kind::Int || value.number < 0) return {};
    numbers.push_back(value.number);
  }
  return numbers;
}

Result<PickledTensor> pickled_tensor(const Pickle& pickle, const PickleValue& value,
                                     const std::string& name, const std::string& path,
                                     const std::string& hint) {
  const auto part = [&](size_t i) -> const Value& { return pickle.at(value.items[i]); };
  const bool tensor = value.kind == Kind::Tensor && value.items.size() >= 6;
  const auto shape = tensor ? extents_of(pickle, part(2)) : std::nullopt;
  const auto strides = tensor ? extents_of(pickle, part(3)) : std::nullopt;
  if (!shape || !strides || part(0).kind != Kind::Storage || part(1).kind != Kind::Int ||
      part(1).number < 0 || shape->size() != strides->size()) {
    return bad_input("tensor \"" + name + "\": its storage, offset, shape and strides are expected",
                     path, hint);
  }
  const Value& storage = part(0);
  return PickledTensor{.name = name,
                       .dtype = static_cast<DType>(storage.number),
                       .storage = pickle.at(storage.items[2]).text,
                       .storage_elements = pickle.at(storage.items[4]).number,
                       .offset = part(1).number,
                       .shape = *shape,
                       .strides = *strides};
}

}  // namespace dsj::weights
