#include "engine/weights/state_dict_pickle.h"

#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>

namespace dsj::weights {
namespace {

/// So that millions of one-byte opcodes do not become gigabytes of values.
constexpr size_t kValuesMax = 1'000'000;
constexpr size_t kRankMax = 16;
constexpr char kHint[] =
    "a plain state dict is read; save it again with model.save_pretrained(DIR)";

enum class Kind {
  None,
  Bool,
  Int,
  Text,
  Tuple,
  Dict,
  OrderedDictType,
  RebuildTensor,
  StorageType,
  Storage,
  Tensor
};
/// Values refer to others by index, so that hostile nesting cannot overflow a stack.
using Ref = uint32_t;
struct Value {
  Kind kind = Kind::None;
  int64_t number = 0;      ///< Bool, Int; StorageType: its DType
  std::string text;        ///< Text
  std::vector<Ref> items;  ///< Tuple; Dict: key, value, ...; Storage, Tensor: their arguments
};

struct KnownGlobal {
  const char* name;
  Kind kind;
  DType dtype = DType::F32;
};
constexpr KnownGlobal kGlobals[] = {{"collections.OrderedDict", Kind::OrderedDictType},
                                    {"torch._utils._rebuild_tensor_v2", Kind::RebuildTensor},
                                    {"torch.FloatStorage", Kind::StorageType, DType::F32},
                                    {"torch.HalfStorage", Kind::StorageType, DType::F16},
                                    {"torch.BFloat16Storage", Kind::StorageType, DType::BF16},
                                    {"torch.DoubleStorage", Kind::StorageType, DType::F64},
                                    {"torch.LongStorage", Kind::StorageType, DType::I64},
                                    {"torch.IntStorage", Kind::StorageType, DType::I32},
                                    {"torch.ShortStorage", Kind::StorageType, DType::I16},
                                    {"torch.CharStorage", Kind::StorageType, DType::I8},
                                    {"torch.ByteStorage", Kind::StorageType, DType::U8},
                                    {"torch.BoolStorage", Kind::StorageType, DType::Bool}};

class Machine {
 public:
  Machine(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  Result<std::vector<PickledTensor>> run() {
    while (!done_) {
      if (const Status status = step(); !status) return std::unexpected(status.error());
    }
    return tensors();
  }

 private:
  std::unexpected<Error> refuse(const std::string& what) const {
    return bad_input("pickle, byte " + std::to_string(opcode_at_) + ": " + what, path_, kHint);
  }

  // ---- bytes
  Result<std::string_view> take(size_t count) {
    if (count > bytes_.size() - position_) return refuse("it ends early");
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }
  /// Little-endian, `width` bytes, unsigned.
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
    if (values_.size() >= kValuesMax) return refuse("too many values for a state dict");
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
  Result<Value*> top_dict() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) return refuse("it takes from an empty stack");
    Value& value = values_[stack_.back()];
    if (value.kind != Kind::Dict) return refuse("items for what is no dict");
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
    if (stack_.empty()) return refuse("it remembers from an empty stack");
    memo_[slot] = stack_.back();
    return {};
  }
  Status get(uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) return refuse("it recalls what it never remembered");
    stack_.push_back(found->second);
    return stack_.size() > kValuesMax ? Status(refuse("too many values")) : Status{};
  }
  Status global() {
    DSJ_TRY(const std::string module, take_line());
    DSJ_TRY(const std::string name, take_line());
    const std::string whole = module + "." + name;
    for (const KnownGlobal& known : kGlobals) {
      if (whole == known.name) return push_number(known.kind, static_cast<int64_t>(known.dtype));
    }
    return refuse("the name \"" + whole.substr(0, 100) + "\" is not part of a state dict");
  }
  Status long_integer() {
    DSJ_TRY(const uint64_t width, take_number(1));
    if (width > 8) return refuse("an integer of more than 64 bits");
    DSJ_TRY(uint64_t value, take_number(width));
    if (width > 0 && width < 8 && (value >> (8 * width - 1)) & 1)
      value |= ~uint64_t{0} << 8 * width;
    return push_number(Kind::Int, static_cast<int64_t>(value));
  }
  Status reduce() {
    DSJ_TRY(const Ref arguments, pop());
    DSJ_TRY(const Ref callable, pop());
    if (values_[arguments].kind != Kind::Tuple) return refuse("a call without a tuple");
    const auto& items = values_[arguments].items;
    if (values_[callable].kind == Kind::OrderedDictType && items.empty()) {
      return push({.kind = Kind::Dict});
    }
    if (values_[callable].kind == Kind::RebuildTensor && (items.size() == 6 || items.size() == 7)) {
      return push({.kind = Kind::Tensor, .items = items});
    }
    return refuse("a call that a state dict does not make");
  }
  Status persistent_id() {
    DSJ_TRY(const Ref id, pop());
    const Value& value = values_[id];
    const auto is = [&](size_t i, Kind kind) { return values_[value.items[i]].kind == kind; };
    if (value.kind != Kind::Tuple || value.items.size() != 5 || !is(0, Kind::Text) ||
        values_[value.items[0]].text != "storage" || !is(1, Kind::StorageType) ||
        !is(2, Kind::Text) || !is(3, Kind::Text) || !is(4, Kind::Int)) {
      return refuse("a persistent id that is no storage");
    }
    return push({.kind = Kind::Storage, .items = value.items});
  }
  /// An OrderedDict's state is its _metadata: read and ignored.
  Status build() {
    DSJ_TRY(const Ref state, pop());
    if (values_[state].kind != Kind::Dict) return refuse("state that is no dict");
    DSJ_TRY([[maybe_unused]] Value* const dict, top_dict());
    return {};
  }
  Status set_items(std::vector<Ref> items) {
    DSJ_TRY(Value* const dict, top_dict());
    if (items.size() % 2) return refuse("a key without a value");
    dict->items.insert(dict->items.end(), items.begin(), items.end());
    return {};
  }

  // ---- the result
  Result<std::vector<PickledTensor>> tensors() const;
  Result<PickledTensor> tensor(const std::string& name, const Value& value) const;
  std::optional<std::vector<int64_t>> integers(Ref tuple) const {
    if (values_[tuple].kind != Kind::Tuple || values_[tuple].items.size() > kRankMax) return {};
    std::vector<int64_t> numbers;
    for (const Ref item : values_[tuple].items) {
      if (values_[item].kind != Kind::Int || values_[item].number < 0) return {};
      numbers.push_back(values_[item].number);
    }
    return numbers;
  }

  const std::string_view bytes_;
  const std::string& path_;
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
    case 'R':  // REDUCE
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
    default:
      return refuse("opcode " + std::to_string(opcode) + " is none that a state dict needs");
  }
}

Result<PickledTensor> Machine::tensor(const std::string& name, const Value& value) const {
  const std::string what = "tensor \"" + name + "\": ";
  const Value& storage = values_[value.items[0]];
  const Value& offset = values_[value.items[1]];
  const auto shape = integers(value.items[2]), strides = integers(value.items[3]);
  if (storage.kind != Kind::Storage || offset.kind != Kind::Int || offset.number < 0 || !shape ||
      !strides || shape->size() != strides->size()) {
    return bad_input(what + "its storage, offset, shape and strides are expected", path_, kHint);
  }
  PickledTensor tensor{.name = name,
                       .dtype = static_cast<DType>(values_[storage.items[1]].number),
                       .storage = values_[storage.items[2]].text,
                       .storage_elements = values_[storage.items[4]].number,
                       .offset = offset.number,
                       .shape = *shape,
                       .strides = *strides};
  return tensor;
}

Result<std::vector<PickledTensor>> Machine::tensors() const {
  if (stack_.size() != 1 || !marks_.empty() || values_[stack_[0]].kind != Kind::Dict) {
    return bad_input("pickle: a dict of tensors is expected", path_, kHint);
  }
  std::vector<PickledTensor> all;
  std::set<std::string> names;
  const Value& dict = values_[stack_[0]];
  for (size_t i = 0; i < dict.items.size(); i += 2) {
    const Value &key = values_[dict.items[i]], &value = values_[dict.items[i + 1]];
    if (key.kind != Kind::Text) return bad_input("pickle: a key is no text", path_, kHint);
    if (value.kind != Kind::Tensor) {
      return bad_input("pickle: \"" + key.text + "\" is not a tensor", path_, kHint);
    }
    if (!names.insert(key.text).second) {
      return bad_input("pickle: tensor \"" + key.text + "\" is there twice", path_, kHint);
    }
    DSJ_TRY(auto one, tensor(key.text, value));
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

Result<std::vector<PickledTensor>> read_state_dict_pickle(std::string_view bytes,
                                                          const std::string& path) {
  return Machine(bytes, path).run();
}

}  // namespace dsj::weights
