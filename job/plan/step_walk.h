// The memory of one rank at each action of a step, by class: the memory model's walk over the
// schedule. The model adds what the rank holds before the step. Pure.
// Tested by: tests/job/plan/memory_model_test.cc
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "job/layout/partition.h"
#include "job/layout/schedule.h"
#include "job/layout/stage.h"
#include "job/layout/units.h"
#include "job/plan/activation_model.h"
#include "job/plan/autocast_plan.h"
#include "job/plan/memory_input.h"
#include "job/plan/row_plan.h"
#include "job/plan/zero_plan.h"

namespace dsj::plan {

struct Gauge {
  int64_t live = 0, peak = 0;
  Gauge* all = nullptr;  ///< the total that includes this one
  void add(int64_t bytes) {
    live += bytes;
    peak = std::max(peak, live);
    if (all) all->add(bytes);
  }
};

class StepWalk {
 public:
  /// The references must outlive it. `local`: gradients stay on their ranks (1-bit optimizers).
  StepWalk(const MemoryInput& input, const std::vector<layout::UnitSpec>& units,
           const layout::FlatPlan& plan, const layout::Stage& stage,
           const layout::Schedule& schedule, bool local = false);

  void visit(const layout::Action& action);
  /// After the last action: finishes reductions and copies.
  void finish();
  /// The scratch of the update.
  void update(int64_t bucket_bytes) { use(0, bucket_bytes); }

  Gauge parameters, gradients, optimizer, buckets, activations, all;
  int64_t reduced_elements = 0, reduced_bytes = 0;  ///< sent by one rank
  int64_t bytes_over_groups = 0;                    ///< the part of these between groups
  // The part of these that are codes of gradients: within a group, and without groups to all ranks.
  // Codes between groups count in bytes_over_groups.
  int64_t near_bytes = 0, exchanged_bytes = 0;

 private:
  struct FlatState {
    bool grad = false, whole = false, shard = false;
    int64_t bucket = 0, gradient_in_flight = 0;
    bool last = false;
    int64_t codes = 0;    ///< bytes of the messages of a gather
    bool second = false;  ///< the group holds a current second copy (hpZ)
    bool leaves = false;  ///< the gradient's sum is offloaded (engine/zero/flat/host_sum.h)
    bool there = false;   ///< that sum is in host memory
  };

  const layout::Stage& stage_of(int flat) const {
    return layout::stage_of_flat(stage_, plan_.is_persisted(flat));
  }
  int64_t numel(int flat) const { return plan_.flats[flat].numel(); }
  int64_t shard(int flat) const { return plan_.flats[flat].shard_numel(); }
  /// Bytes of a gathered copy.
  int64_t gathered(int flat) const { return numel(flat) * bytes_of(types_[flat].gathered); }
  /// Bytes of the messages of a gather, from all ranks. 0 if parameters are not sent as codes.
  int64_t gather_codes(int flat) const;
  bool reduces_codes(int flat) const {
    return input_.config.zero.quantized_gradients && stage_of(flat).shards_parameters();
  }
  void gather(int flat);
  /// The scratch while the device encodes or decodes a flat.
  void code(int flat);
  /// Completes the gathers that a unit waits for.
  void arrive(int unit);
  int64_t wire_of(int flat) const { return bytes_of(types_[flat].wire); }
  /// Bytes of the copies that the unit's products make of its weights, and of a piece of a weight's
  /// gradient before it is widened.
  int64_t copies(int unit) const { return copies_[unit]; }
  int64_t gradient_piece(int unit) const;
  /// Scratch for the head's gradient if earlier micro-steps have left one.
  int64_t head_sum(int unit) const;
  /// The same for a layer's MLP, and for the projection to the inputs of layers.
  int64_t mlp_sums(int unit) const;
  /// Counts bytes that are alive only during one action.
  void use(int64_t activation_bytes, int64_t bucket_bytes);
  bool drops(int unit) const;
  /// The activations of this unit's layer.
  const ActivationModel& layer(int unit) const {
    const LayerModels& models = models_[static_cast<size_t>(kinds_.of[unit - 1])];
    return drops(unit) ? models.dropping : models.all;
  }
  /// Whether the layer computes only the outputs of tokens with a target.
  bool gives_targets(int unit) const { return unit == input_.model.num_layers && !drops(unit); }
  int64_t kept(int unit) const;
  /// The units before the layers (layout::UnitSpec::before_layers).
  void forward_before_layers(int unit);
  void backward_before_layers(int unit, int64_t sums);
  /// Counts the gradients of keys and values that layers share (engine/models/unit/carried.h): from the
  /// first layer that gives one to the layer that computed them.
  void share_keys(int unit);
  /// Whether backward reads the embedding's result, which layer_inputs_backward() does.
  bool keeps_embedded() const { return input_.model.layer_input > 0 && lowest_ == 0; }
  void forward(int unit);
  void backward(int unit);
  void write_gradients(int unit);
  void reduce(int flat, bool last);
  void reduce_as_codes(int flat, bool last);
  void start_reduction(int flat, bool last);
  /// A reduction of a flat as rows: the most that its tokens can touch.
  RowCost rows_of(int flat, const layout::Stage& stage) const;
  void count_wire(const RowCost& cost, bool sends_rows);
  /// Bytes that a reduction as codes sends in each of its two hops, and keeps until its end.
  struct CodeCost {
    int64_t near = 0, rail = 0;  ///< sent
    int64_t messages = 0;        ///< of the first hop, sent and received
    int64_t finishing = 0;       ///< more than these, while it ends
  };
  CodeCost code_cost(int flat) const;
  /// The reduction of a flat over MiCS's groups.
  void count_over_groups(int flat);
  void finish_first();
  /// Brings the offloaded sum of earlier micro-steps back.
  void fetch(int flat);
  void leave(int flat, int64_t bytes);
  void keep_leaving(size_t count);

  const MemoryInput& input_;
  const std::vector<layout::UnitSpec>& units_;
  const layout::FlatPlan& plan_;
  const layout::Stage& stage_;
  const RankGroups groups_;
  const bool local_;  ///< gradients stay on their ranks
  const int64_t compute_, accumulate_;
  std::vector<FlatTypes> types_;  ///< [flat]
  std::vector<int64_t> copies_;   ///< [unit] bytes
  const size_t overlap_;
  const std::vector<int> order_;
  /// For layers that process all tokens, and for those that drop some.
  struct LayerModels {
    ActivationModel all, dropping;
  };
  static std::vector<LayerModels> models_of(const MemoryInput& input);
  const layout::LayerKinds kinds_;
  const std::vector<LayerModels> models_;               ///< [kind]
  const ActivationModel& activation_ = models_[0].all;  ///< the parts that no layer changes
  std::vector<FlatState> flats_;
  std::deque<int> reducing_;
  std::deque<int64_t> leaving_;  ///< bytes of sums that are being copied
  int64_t micro_step_ = 0;
  const int head_, lowest_;
  std::set<int64_t> given_;  ///< layers whose keys have a gradient in this micro-step
};

}  // namespace dsj::plan
