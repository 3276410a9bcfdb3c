// Reads a pickle of torch.save as data: an interpreter for the opcodes that occur there. It never
// executes anything. The caller lists the allowed names; others are refused. Pure (fuzzed).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/weights/formats/dtype.h"

namespace dsj::weights {

enum class PickleKind {
  None,
  Bool,
  Int,
  Float,
  Text,
  Tuple,
  List,
  Dict,
  Object,
  Name,
  Storage,
  Tensor
};

/// Values refer to others by index, so that hostile nesting cannot overflow a stack. Lists and
/// dicts may contain themselves: callers must limit the depth.
using PickleRef = uint32_t;

struct PickleValue {
  PickleKind kind = PickleKind::None;
  int64_t number = 0;     ///< Bool, Int; Name: its index in the table; Storage: its DType
  double real = 0;        ///< Float
  std::string text = {};  ///< Text; Object: its class
  /// Tuple, List; Dict: key, value, ...; Object: the same for its state; Storage: the five parts of
  /// the persistent id; Tensor: the arguments of _rebuild_tensor_v2.
  std::vector<PickleRef> items = {};
};

/// The effect of calling a name. Nothing is executed: each is a rule on values.
enum class PickleRule {
  Storage,          ///< a typed storage, for persistent ids
  RebuildTensor,    ///< a tensor of a storage, offset, shape and strides
  RebuildFromType,  ///< (name, type, arguments, state): as if the name were called
  EmptyDict,        ///< a dict, ignoring arguments: OrderedDict, defaultdict
  First,            ///< its first argument: torch.Size, an enum of an int, a parameter of a tensor
  Object,           ///< an instance of a class: its attributes, as a dict
  Constant          ///< only referenced, not called
};

struct PickleName {
  const char* name;  ///< "collections.OrderedDict"
  PickleRule rule;
  DType dtype = DType::F32;  ///< Storage
};

struct Pickle {
  std::vector<PickleValue> values;
  PickleRef root = 0;
  const PickleValue& at(PickleRef ref) const { return values[ref]; }
  /// A dict's value by its text key, the last of equal keys; nullptr if there is none, or if `dict`
  /// is neither a Dict nor an Object.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
};

inline constexpr int64_t kPickleBytesMax = 64 << 20;

/// The names of a state dict: collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch's
/// typed storages.
std::span<const PickleName> state_dict_names();

/// Reads protocols 2 and 3. `what`: the expected kind of file, for messages ("a state dict");
/// `hint`: what to do. Errors, with the opcode's byte or the name: an unlisted name, damage.
Result<Pickle> read_pickle(std::string_view bytes, std::span<const PickleName> names,
                           const std::string& what, const std::string& path,
                           const std::string& hint);

/// One tensor of a pickle: a view of a storage in the archive.
struct PickledTensor {
  std::string name;
  DType dtype = DType::F32;
  std::string storage;           ///< the name of its file below data/
  int64_t storage_elements = 0;  ///< according to the pickle
  int64_t offset = 0;            ///< elements from the storage's start
  std::vector<int64_t> shape, strides;
};

/// `value`: of kind Tensor. `name`: for messages. Error: its parts are invalid.
Result<PickledTensor> pickled_tensor(const Pickle& pickle, const PickleValue& value,
                                     const std::string& name, const std::string& path,
                                     const std::string& hint);

/// The numbers of a tuple or list, at most 16, none negative; otherwise nullopt.
std::optional<std::vector<int64_t>> extents_of(const Pickle& pickle, const PickleValue& tuple);

}  // namespace dsj::weights
