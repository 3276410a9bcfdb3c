// Where the inputs of layers wait for their recomputation when they leave the device
// (activation_checkpointing.cpu_checkpointing): in host memory beside an accelerator, in a file
// where the device is the host. A file holds every layer's input, and two of them are in memory at
// a time: one is computed from while the next is read.
//
// One thread. put() and take() may throw StorageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/aio/block_file.h"
#include "engine/zero/offload_tier.h"
#include "job/dsconfig/resolved.h"
#include "job/layout/model_config.h"

namespace dsj::zero {

class LayerInputs {
 public:
  virtual ~LayerInputs() = default;
  /// Copies the input of layer `layer` (from 0) [N, H]. What it had put there before is gone.
  virtual void put(int layer, const at::Tensor& x) = 0;
  /// What was put, the same bits, on x's device; valid until the next call. `next`: the layer that
  /// will be taken after it, -1: none.
  virtual at::Tensor take(int layer, int next) = 0;
};

/// In host memory, page-locked where `device` is an accelerator; inputs of at most so many bytes.
std::unique_ptr<LayerInputs> layer_inputs_in_host(int64_t layers, int64_t bytes, at::Device device);

/// Bytes of a layer's place in the file, for inputs of at most so many bytes.
int64_t layer_input_place(int64_t bytes);
/// In `file`, of layers x `place` bytes. `key` and the file's path are in every error.
std::unique_ptr<LayerInputs> layer_inputs_in_file(std::unique_ptr<aio::BlockFile> file,
                                                  int64_t layers, int64_t place,
                                                  const std::string& key);

struct LayerInputsRoom {
  int64_t tokens = 0;      ///< of a micro-batch, at most
  std::string output_dir;  ///< takes the file if no nvme_path does
  at::Device device = at::kCPU;
  int rank = 0;
};
/// As cpu_checkpointing asks. The file lies below the nvme_path of offload_param, else of
/// offload_optimizer, else below the output directory; its space is taken at once. Throws
/// StorageError: the directory or the space cannot be had.
std::unique_ptr<LayerInputs> make_layer_inputs(const layout::ModelConfig& model,
                                               const dsconfig::ResolvedConfig& config,
                                               const LayerInputsRoom& room,
                                               const OffloadHost& host);

}  // namespace dsj::zero
