// Where the elements of every tensor lie in DeepSpeed's files. Numbers only, no files. Internal to engine/deepspeed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "engine/weights/safetensors.h"

namespace dsj::deepspeed {

inline constexpr char kDamagedHint[] =
    "the checkpoint is damaged: copy it again, or use an older one";

/// A parameter, in the order of the flat data.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements = 0;
};

/// A run of elements in one file.
struct Stretch {
  int64_t begin = 0, elements = 0;  ///< from the start of what it is a stretch of
  size_t file = 0;
  int64_t byte = 0;  ///< of its first element, in the file
  weights::DType dtype = weights::DType::F32;
};

/// A flat vector that lies in stretches, ascending, perhaps with gaps (padding that was cut off).
using FlatVector = std::vector<Stretch>;

/// Appends a tensor to `flat` from element `begin` on. One without elements is left out.
void append(FlatVector& flat, int64_t begin, size_t file, const weights::TensorInfo& tensor);

using StateOf = std::pair<std::string, std::string>;  ///< state, parameter

/// Every state of every parameter.
class Ranges {
 public:
  /// Elements [offset, offset + count) of the parameter are elements [at, at + count) of `flat`. Environment: they are
  /// not all there.
  Status take(const StateOf& name, int64_t offset, int64_t count, const FlatVector& flat,
              int64_t at, const std::string& path);
  /// Declares a tensor's size. check() holds take() against it.
  void declare(const StateOf& name, int64_t elements) { elements_[name] = elements; }
  std::optional<int64_t> elements(const StateOf& name) const;
  /// All names with their sizes.
  const std::map<StateOf, int64_t>& all() const { return elements_; }
  /// What holds elements [offset, offset + count): stretches whose `begin` counts from the parameter's start, cut to
  /// the range. Precondition: the range lies in the tensor, and check() passed.
  std::vector<Stretch> find(const StateOf& name, int64_t offset, int64_t count) const;
  /// Environment: the stretches of a tensor leave a gap or overlap.
  Status check(const std::string& path);

 private:
  std::map<StateOf, int64_t> elements_;
  std::map<StateOf, std::vector<Stretch>> stretches_;
};

}  // namespace dsj::deepspeed
