// Bytes per rank by class, and elements on the wire per optimizer step, counted by walking the
// schedule that the trainer walks. Parameters, gradients, optimizer and buckets follow the layout
// exactly; activations are an upper bound (activation_model.h). Process overhead (code, libraries,
// allocator slack) is not counted. tests/run/plan_check.py and docs/reports/plan.md compare it with
// measurements. Called by `dsj plan` and `dsj run`. Pure.
#pragma once

#include <cstdint>

#include "job/plan/memory_input.h"

namespace dsj::plan {

/// Peak bytes of one rank. On the device (on a CPU: in host memory) the peak of each of five
/// classes, which need not fall together, and `peak`, the most at any moment. Beside it what
/// offload keeps in host memory and in files.
struct MemoryClasses {
  int64_t parameters = 0;   ///< working copies: whole, gathered, 16-bit shards
  int64_t gradients = 0;    ///< whole or sharded
  int64_t optimizer = 0;    ///< fp32 masters and optimizer states
  int64_t buckets = 0;      ///< conversion and reduction scratch
  int64_t activations = 0;  ///< upper bound
  int64_t peak = 0;         ///< of all classes together; at most their sum
  int64_t host = 0;         ///< offload: what this rank keeps and stages in host memory
  int64_t nvme = 0;         ///< offload: in files below nvme_path
};

/// What MemoryClasses::host is made of. On a CPU, host memory is the device's: there is no gradient.
struct HostClasses {
  int64_t optimizer = 0;   ///< masters and states
  int64_t parameters = 0;  ///< shards that gathers read; in fp32 the masters
  int64_t gradients = 0;   ///< sums over the micro-steps
  int64_t inputs = 0;      ///< of layers (cpu_checkpointing)
  int64_t buffers = 0;     ///< through which files and updates pass
  int64_t all() const { return optimizer + parameters + gradients + inputs + buffers; }
};

/// What one rank sends per optimizer step, by the formulas of a ring.
struct WireCount {
  int64_t gradient_elements = 0, parameter_elements = 0;
  int64_t gradient_bytes = 0, parameter_bytes = 0;
  /// Of these, what does not go to all ranks: hpZ's gathers within a group, and the sum of MiCS's
  /// groups, which goes from group to group. MiCS's other bytes go within a group.
  int64_t near_parameter_bytes = 0, gradient_bytes_over_groups = 0;
  /// Of these, gradients that go as codes, each rank's part to it: within a group of near ranks (and
  /// then from group to group, as counted above), or where there are no groups to all ranks.
  int64_t near_gradient_bytes = 0, exchanged_gradient_bytes = 0;
  /// A 1-bit optimizer's compressed steps send these in place of the gradients, a bit per element;
  /// its warm-up steps send gradients. 0: it never compresses.
  int64_t momentum_elements = 0, momentum_bytes = 0;
  /// The parameters that travel behind its freeze, in a step. None where each rank updates all.
  int64_t later_parameter_elements = 0, later_parameter_bytes = 0;
  /// Muon's matrices on the way to their owners and back, in fp32; besides the gradients.
  int64_t matrix_elements = 0, matrix_bytes = 0;
  /// What attention exchanges within groups of sequence_parallel_size ranks, forward and backward.
  int64_t head_elements = 0, head_bytes = 0;
};

struct MemoryModel {
  MemoryClasses bytes;
  HostClasses host;
  WireCount wire;
  int64_t parameters = 0;            ///< of the model, adapters included
  int64_t trainable = 0;             ///< of these, trained
  int64_t active = 0;                ///< of these, those that one token passes
  int64_t peak_live_parameters = 0;  ///< elements gathered at a time (stage 3), padding included
  int64_t gathers = 0;               ///< flats gathered per step (stage 3)
  int stage = 0;                     ///< the stage that runs
  int64_t parameter_file = 0;        ///< offload_param's part of bytes.nvme
  /// Of bytes.parameters, a base in 4 bits: its codes, and their scales. 0: there is none.
  int64_t packed_codes = 0, packed_scales = 0;
};

MemoryModel memory_model(const MemoryInput& input);

/// fp32 elements that each rank saves for itself alone: the errors of a 1-bit optimizer and, for
/// ZeroOneAdam, what its ranks hold between two meetings, if the run comes to them. 0 for all other
/// optimizers.
int64_t elements_apart(const MemoryInput& input);

/// Bytes of one checkpoint of the whole job, and of model/ as it is exported.
struct DiskUse {
  int64_t checkpoint = 0;
  int64_t model = 0;
};
DiskUse disk_use(const MemoryInput& input);

/// What DeepSpeed's documentation ("Memory Requirements": mixed precision, Adam, no offload) says
/// that its GPUs need, for comparison.
struct DeepSpeedEstimate {
  /// Bytes per GPU with P parameters and N ranks. Stages 1, 2: 4 P + 16 P / N. Stage 3: 18 P / N +
  /// 4 x the largest layer. Stage 0: 0, it has no formula.
  int64_t model_states = 0;
  /// With overlap_comm 4.5 times both buckets at 2 bytes an element (Hugging Face's guide), else 0.
  int64_t overlap_buckets = 0;
};
DeepSpeedEstimate deepspeed_estimate(const MemoryInput& input);

}  // namespace dsj::plan
