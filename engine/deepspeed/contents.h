// The files of a checkpoint, the elements that each must have, and their positions in it. Positions
// are read from a file only when one of its values is read: with many ranks, a rank opens only the
// files that it needs. Internal to engine/deepspeed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/deepspeed/model_states.h"
#include "engine/deepspeed/optim_states.h"
#include "engine/deepspeed/ranges.h"
#include "engine/deepspeed/saved_file.h"

namespace dsj::deepspeed {

/// The state that is the parameter's own values in fp32.
inline constexpr char kMaster[] = "master";

/// The form of a file's tensors.
enum class Form {
  Partition,  ///< stages 1 and 2: a rank's part of each group
  Shard,      ///< stage 3: a rank's share of each parameter
  Fragments,  ///< a rank's share of each frozen parameter
  Tensor,     ///< universal: one state of one parameter
  Known,      ///< already read
};

struct PartFile {
  std::string path;
  Form form = Form::Known;
  FlatOf tensor;                     ///< for Tensor
  std::optional<Contents> contents;  ///< set once it is read
};

struct Placed {
  OptimStates optim;  ///< rank 0's; all ranks' have the same form
  std::vector<Parameter> trained, frozen;
  std::map<StateOf, Dealt> tensors;
  std::vector<PartFile> files;  ///< indexed by Dealt and Share
};

/// The error that the checkpoint is damaged, with the reason.
std::unexpected<Error> damaged(const std::string& what, const std::string& path);

/// Reads a file's content. Environment, with file and tensor: rank 0's file contradicts it.
Result<Contents> read_contents(const Placed& placed, size_t file, const SavedFile& saved);
/// Environment: `contents` lacks an element that the file must have.
Status check_contents(const Placed& placed, size_t file, const Contents& contents);

// ---- for placing, which reads the files of rank 0
Contents partition_of(const OptimStates& optim);
Result<Contents> shard_of(const OptimStates& optim, const std::string& path);
/// The total number of elements of a rank's sub-groups.
int64_t shard_elements(const OptimStates& optim);
/// The values of a frozen parameter in a rank's model file: a share, or all of them if there is one
/// file. BadInput: the file lacks them.
Result<weights::TensorInfo> frozen_tensor(const ModelStates& model, const Parameter& parameter,
                                          const std::string& path);
Result<Contents> fragments_of(const std::vector<Parameter>& frozen, const ModelStates& model,
                              const std::string& path);
/// A file of a universal checkpoint. Stages 1 and 2 save {"param": tensor, "cat_dim": 0}, stage 3 a
/// flat tensor.
Result<weights::TensorInfo> universal_tensor(const SavedFile& file, const std::string& state);
/// Environment: the tensor's size is not the parameter's.
Status check_whole(const std::string& state, const std::string& parameter, int64_t elements,
                   const weights::TensorInfo& tensor, const std::string& path);

}  // namespace dsj::deepspeed
