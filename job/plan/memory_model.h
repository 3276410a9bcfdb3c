// Bytes per rank by class, and elements on the wire per optimizer step, counted by walking the
// trainer's schedule. Parameters, gradients, optimizer and buckets follow the layout exactly;
// activations are an upper bound (activation_model.h). Process overhead (code, libraries, allocator
// slack) is not counted. tests/run/plan_check.py and docs/reports/plan.md compare it with
// measurements. `dsj plan` and `dsj run` call it. Pure.
#pragma once

#include <cstdint>

#include "job/plan/memory_input.h"

namespace dsj::plan {

/// Peak bytes of one rank. On the device (on a CPU: in host memory): the peak of each of five
/// classes, which may occur at different times, and `peak`, the maximum of their sum. In addition,
/// what offload keeps in host memory and in files.
struct MemoryClasses {
  int64_t parameters = 0;   ///< working copies: whole, gathered, 16-bit shards
  int64_t gradients = 0;    ///< whole or a shard
  int64_t optimizer = 0;    ///< fp32 masters and optimizer states
  int64_t buckets = 0;      ///< conversion and reduction scratch
  int64_t activations = 0;  ///< upper bound
  int64_t peak = 0;         ///< maximum over all classes together; at most the sum of the peaks
  int64_t host = 0;         ///< offload: what this rank keeps and stages in host memory
  int64_t nvme = 0;         ///< offload: in files below nvme_path
};

/// The parts of MemoryClasses::host. On a CPU there is no gradient: host memory is the device's.
struct HostClasses {
  int64_t optimizer = 0;   ///< masters and states
  int64_t parameters = 0;  ///< shards that are gathered from; in fp32 the masters
  int64_t gradients = 0;   ///< sums over micro-steps
  int64_t inputs = 0;      ///< inputs of layers (cpu_checkpointing)
  int64_t buffers = 0;     ///< staging for files and updates
  int64_t all() const { return optimizer + parameters + gradients + inputs + buffers; }
};

/// What one rank sends per optimizer step, by a ring's formulas.
struct WireCount {
  int64_t gradient_elements = 0, parameter_elements = 0;
  int64_t gradient_bytes = 0, parameter_bytes = 0;
  /// The parts that do not go to all ranks: hpZ's gathers within a group, and MiCS's reduction over
  /// the groups. MiCS's other bytes stay within a group.
  int64_t near_parameter_bytes = 0, gradient_bytes_over_groups = 0;
  /// The gradients that are sent as codes to the owner of each shard: within a group of near ranks
  /// (then between groups, counted above), or without groups to all ranks.
  int64_t near_gradient_bytes = 0, exchanged_gradient_bytes = 0;
  /// Compressed steps of a 1-bit optimizer send these instead of gradients, one bit per element;
  /// warm-up steps send gradients. 0 if it never compresses.
  int64_t momentum_elements = 0, momentum_bytes = 0;
  /// Parameters sent per step after its freeze. 0 if each rank updates all parameters.
  int64_t later_parameter_elements = 0, later_parameter_bytes = 0;
  /// Muon's matrices, sent to their owners and back in fp32, besides the gradients.
  int64_t matrix_elements = 0, matrix_bytes = 0;
  /// Attention's exchange within groups of sequence_parallel_size ranks, forward and backward.
  int64_t head_elements = 0, head_bytes = 0;
};

struct MemoryModel {
  MemoryClasses bytes;
  HostClasses host;
  WireCount wire;
  int64_t parameters = 0;            ///< of the model, including adapters
  int64_t trainable = 0;             ///< the trained ones of these
  int64_t active = 0;                ///< the ones that a single token uses
  int64_t peak_live_parameters = 0;  ///< elements gathered at a time (stage 3), with padding
  int64_t gathers = 0;               ///< flats gathered per step (stage 3)
  int stage = 0;                     ///< the stage that runs
  int64_t parameter_file = 0;        ///< offload_param's part of bytes.nvme
  /// The part of bytes.parameters that is a 4-bit base: codes and scales. 0 without one.
  int64_t packed_codes = 0, packed_scales = 0;
};

MemoryModel memory_model(const MemoryInput& input);

/// fp32 elements that only one rank has, so each rank saves its own: the errors of a 1-bit
/// optimizer, and for ZeroOneAdam the state between two synchronizations if the run reaches local
/// steps. 0 for other optimizers.
int64_t elements_apart(const MemoryInput& input);

/// Bytes of one checkpoint of the whole job, and of the exported model/.
struct DiskUse {
  int64_t checkpoint = 0;
  int64_t model = 0;
};
DiskUse disk_use(const MemoryInput& input);

/// The memory per GPU according to DeepSpeed's documentation ("Memory Requirements": mixed
/// precision, Adam, no offload), for comparison.
struct DeepSpeedEstimate {
  /// Bytes per GPU with P parameters and N ranks. Stages 1, 2: 4 P + 16 P / N. Stage 3: 18 P / N +
  /// 4 x the largest layer. Stage 0 has no formula: 0.
  int64_t model_states = 0;
  /// With overlap_comm 4.5 times both buckets, 2 bytes per element (Hugging Face's guide), else 0.
  int64_t overlap_buckets = 0;
};
DeepSpeedEstimate deepspeed_estimate(const MemoryInput& input);

}  // namespace dsj::plan
