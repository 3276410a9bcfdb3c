// One flat of parameters and everything ZeRO keeps for it on this rank: working copy, fp32 master,
// gradient, optimizer states.
//
// The stage (job/layout/stage.h) says what is whole and what is sharded, and when the flat is
// gathered and reduced. A frozen flat (LoRA) has a working copy only, loaded once in the compute
// type. A packed one (QLoRA) has codes in its place on every rank, and unpacks a weight where it is
// read (packed_weights.h): there is nothing to gather.
//
// Nothing is held twice. The master of a whole working copy is this rank's slices of that
// copy; where parameters are sharded, the shard that a gather reads is the master. Shard, master
// and states lie where offload puts them (owned_state.h). All memory is counted by class. Which
// optimizer updates it is no business of a flat's (update_method.h).
//
// ModelState owns the flats and calls them. Not thread-safe. A call that is collective says so. A
// call that touches offloaded state may throw StorageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/averaging.h"
#include "engine/optim/optimizer.h"
#include "engine/zero/block_gather.h"
#include "engine/zero/flat_views.h"
#include "engine/zero/gradient_sum.h"
#include "engine/zero/groups.h"
#include "engine/zero/host_copies.h"
#include "engine/zero/owned_state.h"
#include "engine/zero/update.h"
#include "job/layout/partition.h"
#include "job/layout/stage.h"

namespace dsj::zero {

class PackedWeights;

struct FlatOptions {
  layout::Stage stage;                          ///< of this flat (layout::stage_of_flat)
  at::ScalarType compute = at::kFloat;          ///< of working copy and whole gradient
  std::optional<at::ScalarType> gathered = {};  ///< of a copy gathered from shards; unset: compute
  at::ScalarType grad_accum = at::kFloat;       ///< of the sum over micro-steps
  at::ScalarType communication = at::kFloat;    ///< of gradients on the wire
  optim::Averaging averaging;                   ///< factors before and after reduction
  at::Device device = at::kCPU;
  std::vector<optim::StateSpec> states = {};  ///< what the optimizer keeps
  std::vector<bool> decays = {};  ///< [slot]: whether weight decay acts on it; empty: on all
  bool separate_master = false;   ///< the first vector of `optimizer` is the master
  bool rows = false;              ///< gradients travel as rows (row_gradients.h)
  bool coded_gathers = false;     ///< parameters travel as codes (block_gather.h)
  bool coded_shard = false;       ///< frozen: the shard is kept as codes, and nowhere else
  bool coded_gradients = false;   ///< gradients travel as codes (block_reduction.h)
  ShardStoreOptions optimizer = {}, parameters = {};  ///< places of the owned state
  HostCopies* copies = nullptr;  ///< of the device; needed where state is offloaded from one
};

/// A run of owned elements: of one parameter from element `offset` on, or of any (slot -1).
struct UpdatePart {
  int slot = -1;
  int64_t offset = 0;
  bool decays = true;                   ///< whether weight decay acts on it
  std::vector<at::Tensor> states = {};  ///< what tensors.states refers to; moving keeps it
  UpdateSpan tensors = {};
  bool in_place = false;  ///< the tensors are no copies
};
/// The tensors of all parts; valid as long as these.
std::vector<UpdateSpan> tensors_of(std::span<const UpdatePart> parts);
/// Applies an elementwise update to all parts, which lie on one device; without weight decay where it
/// does not act. Changes their order.
void update_parts(const optim::Update& update, std::span<UpdatePart> parts);

class Flat {
 public:
  /// What `groups` names outlives it. `layout`: cut for groups.shards, or for 1 rank.
  Flat(const layout::FlatLayout& layout, const FlatOptions& options, const Groups& groups);
  ~Flat();
  Flat(const Flat&) = delete;
  Flat& operator=(const Flat&) = delete;

  const layout::FlatLayout& layout() const { return layout_; }
  at::Device device() const { return options_.device; }
  bool frozen() const { return layout_.frozen(); }
  /// Of weight().
  at::ScalarType type() const { return options_.compute; }
  bool sharded_parameters() const { return stage_.shards_parameters(); }
  /// Whether this rank updates a part only.
  bool sharded_update() const { return stage_.shards_update(); }
  /// The tiles that a gather reads, in order. Empty unless the shard lies in a file.
  std::vector<int> gather_tiles() const { return owned_->parameter_tiles(); }

  // ---- parameters
  /// Frozen flats: fills this rank's part by `read(parameter, first element, values)`, rounded to
  /// the compute type; packed ones: all of it. publish() follows. Error: read's.
  using Read = std::function<Status(const std::string&, int64_t, std::span<float>)>;
  Status fill_frozen(const Read& read);
  /// Starts the gather of the working copy. Called when the stage says (Gathered); where it says
  /// never, this does nothing. `exact`: in the parameters' type, not in FlatOptions::gathered, and not as
  /// codes unless these are all there is.
  /// With hpZ it comes from this rank's own group if that has a second copy of the present values.
  /// Collective: all ranks.
  void start_gather(bool exact = false);
  /// Waits for the gather in flight, if there is one.
  void finish_gather();
  /// Frees the gathered copy (sharded flats only). No view of it may be in use.
  void release();
  bool gathered() const { return working_.defined(); }
  /// A view of the working copy: one parameter in its shape, or `count` neighbours stacked on the
  /// first dimension (undefined if padding lies between them). Compute type; valid until release(). Of
  /// a packed flat a tensor of its own, which is made anew for each call.
  at::Tensor weight(int slot) const { return stacked_weight(slot, 1); }
  at::Tensor stacked_weight(int slot, int count) const;

  // ---- gradients (gradient_sum.h)
  GradientSum& gradient() { return gradient_; }
  const GradientSum& gradient() const { return gradient_; }
  GradView grad(int slot) { return gradient_.view(slot, 1); }
  GradView stacked_grad(int slot, int count) { return gradient_.view(slot, count); }

  // ---- update
  /// Calls f for runs of the owned elements, as many at once as lie on one device. `by_slot`: each
  /// run is of one parameter; else they are as long as they can be. `writes`: f may write states and
  /// parameters, and must write tensors.low where there is one; when all runs are done, the gather of a
  /// whole working copy starts. Else f may write states alone.
  /// Tensors that lie elsewhere are copied to the states' device, and back: one run at a time.
  /// tensors.grad is the gradient as averaging left it, undefined where there is none.
  using UpdateParts = std::function<void(std::span<UpdatePart> parts)>;
  void update_runs(bool by_slot, bool writes, const UpdateParts& f);
  /// The same by parameter, one run at a time: from its element `offset` on.
  using UpdateRun = std::function<void(int slot, int64_t offset, const UpdateSpan& span)>;
  void for_owned(bool writes, const UpdateRun& run);
  /// Applies an elementwise update to the owned elements.
  void step(const optim::Update& update);
  /// One of the optimizer's states, whole: [numel] fp32, a copy. `state` as below, not the master.
  /// Collective: all ranks.
  at::Tensor gather_state(int state);
  /// Stages 0 and 1: from now on this rank updates every element by itself, as at stage 0, with the
  /// states that it gathers from their owners. Collective: all ranks.
  void take_whole();
  /// The same, or back to the stage's share. What is owned is undefined until load_state().
  void own(bool whole);

  // ---- state
  /// The state of the owned elements, by index: 0 is the fp32 master, then the optimizer's states
  /// in their order.
  static constexpr int kMaster = 0;
  int state_count() const { return 1 + static_cast<int>(options_.states.size()); }
  const std::string& state_name(int state) const;
  /// A run of one parameter's state in host memory.
  struct HostRange {
    std::string parameter;
    int64_t offset = 0;  ///< elements from the parameter's start
    std::span<float> data;
    bool stays = false;  ///< it is the state itself: valid and unchanged until the next update
  };
  using VisitState = std::function<Status(int state, const HostRange&)>;
  /// Calls `visit` for each run of each state that this rank owns. The data is host memory, valid
  /// during the call only, unless it stays; state in a file comes a tile at a time. The runs of
  /// different ranks do not overlap (a whole master is dealt among the ranks). Stops at the first
  /// error and returns it.
  Status save_state(const VisitState& visit);
  /// The same of the masters alone.
  Status visit_masters(const VisitState& visit);
  /// The same for reading back: `visit` fills the data. `all`: master and optimizer states; else
  /// the master alone. Every rank reads what it updates, which may be the whole.
  Status load_state(bool all, const VisitState& visit);
  /// Refreshes the working copy after the master was written. Collective: all ranks, unless the
  /// parameters are sharded.
  void publish();

 private:
  /// A run of owned elements: its place in the flat and in shard storage.
  struct Span {
    int64_t flat_offset, shard_offset, numel;
    bool decays = true;  ///< of spans of one group only (groups_)
  };
  /// `span` as runs of one group each. Padding belongs to the slot before it.
  std::vector<Span> split_by_group(const Span& span) const;
  bool decays(int slot) const { return options_.decays.empty() || options_.decays[slot]; }
  std::vector<layout::Range> ranges() const {
    return update_ranges(layout_, stage_.shards_update(), owner_);
  }
  at::ScalarType gathered_type() const { return options_.gathered.value_or(options_.compute); }
  std::unique_ptr<OwnedState> make_owned(bool whole) const;
  /// `whole`: of the whole flat, else of the stage's share.
  void replace_owned(bool whole, std::unique_ptr<OwnedState> owned);
  /// A vector of the owned state, by its index there: [numel] fp32. Collective: all ranks.
  at::Tensor gather_vector(size_t index);
  /// The part of `span` that lies in `run`; nullopt: none.
  static std::optional<Span> overlap(const Span& span, const OwnedRun& run);
  /// The fp32 master of a span, wherever it lies.
  at::Tensor master(const Span& span, const OwnedRun& run) const;
  /// Lets f update a part whose tensors do not lie together, by copies where its states are.
  void update_elsewhere(UpdatePart part, bool writes, const UpdateParts& f);
  UpdatePart part_of(const OwnedRun& run, const Span& span, bool copies) const;
  /// f on a run whose master or states have 16 bits: on fp32 copies, piece by piece. What is kept is
  /// rounded once, to nearest even, when f is done.
  static void update_widened(const UpdatePart& part, bool writes, const UpdateParts& f);
  Status visit_state(const std::vector<layout::Range>& ranges, Access access, bool all,
                     const VisitState& visit);
  /// What this rank saves: a flat that every rank has whole is dealt among them.
  std::vector<layout::Range> saved_ranges() const;
  /// hpZ: keeps this rank's part of what was gathered, if it has none of the present values.
  void keep_second();
  /// Copies this rank's shard into its slices of the working copy, for the gather to spread. From the
  /// host to a device: on the current lane, and the host goes on.
  void fill_own_slices();
  /// Waits until no copy to the device reads the shard any more: before the host writes it.
  void finish_shard_copies();
  bool gathering() const { return gather_ || (codes_ && codes_->in_flight()); }
  at::Tensor make(int64_t numel, at::ScalarType type, memory::Class klass) const;

  const layout::FlatLayout layout_;
  const FlatOptions options_;
  const Groups rank_groups_;
  layout::Stage stage_;  ///< options_.stage, or stage 0 once this rank owns the whole flat
  std::vector<Span> spans_;
  std::vector<Span> groups_;  ///< spans_, cut where weight decay begins or ends
  int owner_ = 0;             ///< this rank in groups_.shards (0 when nothing is sharded)

  at::Tensor working_;  ///< [numel] compute; undefined where packed_ is there
  std::unique_ptr<PackedWeights> packed_;
  std::unique_ptr<OwnedState> owned_;
  GradientSum gradient_;
  device::MarkPtr shard_copied_;  ///< the last copy of the shard to the device
  comm::WorkPtr gather_;
  std::optional<BlockGather> codes_;  ///< where parameters may travel as codes
  at::Tensor coded_shard_;            ///< [1, bytes]: the frozen shard as codes
  bool exact_ = false;                ///< gather_ is, or the last one was
  at::Tensor second_;                 ///< hpZ: [numel / near ranks], as gathered; undefined: none
  bool second_is_fresh_ = false;
};

/// Gathers one flat at a time. Then each rank calls visit(slot, whole tensor on the host, compute
/// type) for the parameters for which here(slot) holds on it. Collective: the same flats on all
/// ranks, each parameter on any of them.
void visit_weights(const std::vector<Flat*>& flats,
                   const std::function<bool(const layout::Slot&)>& here,
                   const std::function<void(const layout::Slot&, const at::Tensor&)>& visit);

}  // namespace dsj::zero
