// Stores the inputs of layers until their recomputation when they leave the device
// (activation_checkpointing.cpu_checkpointing): in host memory for an accelerator, in a file if the
// device is the CPU. The file holds every layer's input. Two inputs are in memory at a time: one in
// use, the next being read.
//
// One thread. put() and take() may throw StorageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/aio/block_file.h"
#include "engine/zero/storage/offload_tier.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/model_config.h"

namespace dsj::zero {

class LayerInputs {
 public:
  virtual ~LayerInputs() = default;
  /// Stores the input [N, H] of layer `layer` (from 0), replacing the layer's previous input.
  virtual void put(int layer, const at::Tensor& x) = 0;
  /// Returns the stored input, bit for bit, on its original device; valid until the next call.
  /// `next`: the layer that will be taken next, or -1.
  virtual at::Tensor take(int layer, int next) = 0;
};

/// In host memory, page-locked if `device` is an accelerator. `bytes`: the largest input.
std::unique_ptr<LayerInputs> layer_inputs_in_host(int64_t layers, int64_t bytes, at::Device device);

/// The space of one layer in the file, in bytes, for inputs of at most `bytes`.
int64_t layer_input_place(int64_t bytes);
/// In `file`, which has layers x `place` bytes. Errors name `key` and the file's path.
std::unique_ptr<LayerInputs> layer_inputs_in_file(std::unique_ptr<aio::BlockFile> file,
                                                  int64_t layers, int64_t place,
                                                  const std::string& key);

struct LayerInputsRoom {
  int64_t tokens = 0;      ///< largest micro-batch
  std::string output_dir;  ///< for the file if there is no nvme_path
  at::Device device = at::kCPU;
  int rank = 0;
};
/// Makes the store that cpu_checkpointing asks for. A file is created under the nvme_path of
/// offload_param, else of offload_optimizer, else under the output directory; its space is reserved
/// at once. Throws StorageError if the directory or the space is not available.
std::unique_ptr<LayerInputs> make_layer_inputs(const layout::ModelConfig& model,
                                               const dsconfig::ResolvedConfig& config,
                                               const LayerInputsRoom& room,
                                               const OffloadHost& host);

}  // namespace dsj::zero
