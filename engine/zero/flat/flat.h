// One flat of parameters with all that ZeRO keeps for it on this rank: working copy, fp32 master,
// gradient, optimizer states.
//
// The stage (job/layout/stage.h) decides which of these are sharded, and when the flat is gathered
// and reduced. A frozen flat (LoRA) has only a working copy, loaded once in the compute type. A
// packed flat (QLoRA) has codes instead, whole on every rank. It unpacks each weight when it is
// read (packed_weights.h) and never gathers.
//
// No tensor is stored twice. The master of a whole working copy is only this rank's slices. If
// parameters are sharded, the shard that a gather reads is the master. Shard, master and states are
// stored where the offload plan puts them (owned_state.h). All memory is counted by class. The
// optimizer's rule is outside this class (update_method.h).
//
// ModelState owns the flats and calls them. Not thread-safe. Collective calls are marked. A call
// that touches offloaded state may throw StorageError.
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
#include "engine/zero/flat/block_gather.h"
#include "engine/zero/flat/flat_views.h"
#include "engine/zero/flat/gradient_sum.h"
#include "engine/zero/flat/groups.h"
#include "engine/zero/flat/update.h"
#include "engine/zero/storage/host_copies.h"
#include "engine/zero/storage/owned_state.h"
#include "job/layout/partition.h"
#include "job/layout/stage.h"

namespace dsj::zero {

class PackedWeights;

struct FlatOptions {
  layout::Stage stage;                          ///< of this flat (layout::stage_of_flat)
  at::ScalarType compute = at::kFloat;          ///< of working copy and whole gradient
  std::optional<at::ScalarType> gathered = {};  ///< of copies gathered from shards, if not compute
  at::ScalarType grad_accum = at::kFloat;       ///< of the sum over micro-steps
  at::ScalarType communication = at::kFloat;    ///< of gradients on the wire
  optim::Averaging averaging;                   ///< factors before and after reduction
  at::Device device = at::kCPU;
  std::vector<optim::StateSpec> states = {};  ///< the optimizer's
  std::vector<bool> decays = {};  ///< [slot]: whether weight decay acts on it; empty: on all
  std::vector<bool> raised = {};  ///< [slot]: whether LoRA+ raises its rate; empty: none's
  bool separate_master = false;   ///< the first vector of `optimizer` is the master
  bool rows = false;              ///< gradients travel as rows (row_gradients.h)
  bool coded_gathers = false;     ///< parameters travel as codes (block_gather.h)
  bool coded_shard = false;       ///< frozen: the shard is stored only as codes
  bool coded_gradients = false;   ///< gradients travel as codes (block_reduction.h)
  ShardStoreOptions optimizer = {}, parameters = {};  ///< places of the owned state
  HostCopies* copies = nullptr;  ///< required if state is offloaded from a device
};

/// A run of owned elements: of one parameter from element `offset` on, or of any if slot is -1.
struct UpdatePart {
  int slot = -1;
  int64_t offset = 0;
  bool decays = true;                   ///< whether weight decay acts on it
  bool raised = false;                  ///< whether LoRA+ raises its rate
  std::vector<at::Tensor> states = {};  ///< tensors.states refers to it; survives a move
  UpdateSpan tensors = {};
  bool in_place = false;  ///< the tensors are not copies
};
/// The tensors of all parts; valid as long as the parts.
std::vector<UpdateSpan> tensors_of(std::span<const UpdatePart> parts);
/// Applies an elementwise update to all parts, which must be on one device. Parts whose `decays` is
/// false get no weight decay; parts whose `raised` is true are updated by `raised` unless it is
/// null. Reorders the parts.
void update_parts(const optim::Update& update, std::span<UpdatePart> parts,
                  const optim::Update* raised = nullptr);

class Flat {
 public:
  /// The groups must outlive the flat. `layout`: cut for groups.shards, or for 1 rank.
  Flat(const layout::FlatLayout& layout, const FlatOptions& options, const Groups& groups);
  ~Flat();
  Flat(const Flat&) = delete;
  Flat& operator=(const Flat&) = delete;

  const layout::FlatLayout& layout() const { return layout_; }
  at::Device device() const { return options_.device; }
  bool frozen() const { return layout_.frozen(); }
  /// The type of weight().
  at::ScalarType type() const { return options_.compute; }
  bool sharded_parameters() const { return stage_.shards_parameters(); }
  /// Whether this rank updates only its share.
  bool sharded_update() const { return stage_.shards_update(); }
  /// The tiles that a gather reads, in order. Empty unless the shard is in a file.
  std::vector<int> gather_tiles() const { return owned_->parameter_tiles(); }

  // ---- parameters
  /// Fills a frozen flat: this rank's part by `read(parameter, first element, values)`, rounded to
  /// the compute type; all of it if packed. Call publish() afterwards. Errors: those of `read`.
  using Read = std::function<Status(const std::string&, int64_t, std::span<float>)>;
  Status fill_frozen(const Read& read);
  /// Starts to gather the working copy. Called when the stage says so (Gathered); does nothing if
  /// the stage never gathers. `exact`: gathers in the parameters' type, not in
  /// FlatOptions::gathered, and not as codes, unless the flat is stored only as codes. hpZ: gathers
  /// within this rank's near group if that holds a current second copy. Collective: all ranks.
  void start_gather(bool exact = false);
  /// Waits for the gather in flight, if there is one.
  void finish_gather();
  /// Frees the gathered copy (sharded flats only). No view of it may be in use.
  void release();
  bool gathered() const { return working_.defined(); }
  /// A view of the working copy in the compute type, valid until release(): one parameter in its
  /// shape, or `count` neighbours stacked on the first dimension (undefined if padding separates
  /// them). A packed flat returns a new tensor at each call.
  at::Tensor weight(int slot) const { return stacked_weight(slot, 1); }
  at::Tensor stacked_weight(int slot, int count) const;

  // ---- gradients (gradient_sum.h)
  GradientSum& gradient() { return gradient_; }
  const GradientSum& gradient() const { return gradient_; }
  GradView grad(int slot) { return gradient_.view(slot, 1); }
  GradView stacked_grad(int slot, int count) { return gradient_.view(slot, count); }

  // ---- update
  /// Calls f for runs of the owned elements, at once for all runs on one device. `by_slot`: a run
  /// is within one parameter; else it is as long as possible. `writes`: f may write states and
  /// parameters, and must write tensors.low if defined; after all runs the gather of a whole
  /// working copy starts. If false, f may write only states. Tensors elsewhere are copied to the
  /// states' device and back, one run at a time. tensors.grad is the gradient after averaging;
  /// undefined if there is no gradient.
  using UpdateParts = std::function<void(std::span<UpdatePart> parts)>;
  void update_runs(bool by_slot, bool writes, const UpdateParts& f);
  /// The same by parameter, one run at a time, starting at its element `offset`.
  using UpdateRun = std::function<void(int slot, int64_t offset, const UpdateSpan& span)>;
  void for_owned(bool writes, const UpdateRun& run);
  /// Applies an elementwise update to the owned elements.
  void step(const optim::Update& update, const optim::Update* raised = nullptr);
  /// Gathers one optimizer state (not the master): a copy [numel] fp32. `state`: index as below.
  /// Collective: all ranks.
  at::Tensor gather_state(int state);
  /// Stages 0 and 1: from now on this rank updates every element itself, as at stage 0, with states
  /// gathered from their owners. Collective: all ranks.
  void take_whole();
  /// Owns the whole flat, or the stage's share. Owned state is undefined until load_state().
  void own(bool whole);

  // ---- state
  /// States are numbered: 0 is the fp32 master, then the optimizer's states in their order.
  static constexpr int kMaster = 0;
  int state_count() const { return 1 + static_cast<int>(options_.states.size()); }
  const std::string& state_name(int state) const;
  /// A run of one parameter's state in host memory.
  struct HostRange {
    std::string parameter;
    int64_t offset = 0;  ///< elements from the parameter's start
    std::span<float> data;
    bool stays = false;  ///< data is the state itself, valid and unchanged until the next update
  };
  using VisitState = std::function<Status(int state, const HostRange&)>;
  /// Calls `visit` for each run of each state that this rank owns. The data is in host memory and
  /// valid only during the call, unless `stays`. State in a file is visited one tile at a time.
  /// Runs of different ranks do not overlap: ranks divide a whole master among themselves. Stops at
  /// the first error and returns it.
  Status save_state(const VisitState& visit);
  /// The same for the masters only.
  Status visit_masters(const VisitState& visit);
  /// The same for restoring: `visit` fills the data. `all`: master and optimizer states; else only
  /// the master. Every rank reads all that it updates, which may be the whole flat.
  Status load_state(bool all, const VisitState& visit);
  /// Refreshes the working copy after the master was written. Collective on all ranks unless the
  /// parameters are sharded.
  void publish();

 private:
  /// A run of owned elements, with its offsets in the flat and in shard storage.
  struct Span {
    int64_t flat_offset, shard_offset, numel;
    bool decays = true, raised = false;  ///< valid for the spans in groups_ only
  };
  /// Splits `span` into runs of one group each. Padding belongs to the slot before it.
  std::vector<Span> split_by_group(const Span& span) const;
  bool decays(int slot) const { return options_.decays.empty() || options_.decays[slot]; }
  bool raised(int slot) const { return !options_.raised.empty() && options_.raised[slot]; }
  std::vector<layout::Range> ranges() const {
    return update_ranges(layout_, stage_.shards_update(), owner_);
  }
  at::ScalarType gathered_type() const { return options_.gathered.value_or(options_.compute); }
  std::unique_ptr<OwnedState> make_owned(bool whole) const;
  /// `whole`: replaces the state of the whole flat, else of the stage's share.
  void replace_owned(bool whole, std::unique_ptr<OwnedState> owned);
  /// Gathers a vector of the owned state by its index there: [numel] fp32. Collective: all ranks.
  at::Tensor gather_vector(size_t index);
  /// The part of `span` within `run`; nullopt if they do not overlap.
  static std::optional<Span> overlap(const Span& span, const OwnedRun& run);
  /// The fp32 master of a span, wherever it is stored.
  at::Tensor master(const Span& span, const OwnedRun& run) const;
  /// Lets f update a part whose tensors are on different devices, by copies where its states are.
  void update_elsewhere(UpdatePart part, bool writes, const UpdateParts& f);
  UpdatePart part_of(const OwnedRun& run, const Span& span, bool copies) const;
  /// Calls f on a run whose master or states have 16 bits, with fp32 copies, piece by piece.
  /// Afterwards rounds the copies once, to nearest even, into the stored tensors.
  static void update_widened(const UpdatePart& part, bool writes, const UpdateParts& f);
  Status visit_state(const std::vector<layout::Range>& ranges, Access access, bool all,
                     const VisitState& visit);
  /// What this rank saves. Ranks divide a flat that every rank has whole.
  std::vector<layout::Range> saved_ranges() const;
  /// hpZ: keeps this rank's part of the gathered copy, if it has no current one.
  void keep_second();
  /// Copies this rank's shard into its slices of the working copy before a gather. From host to
  /// device it copies on the current lane and does not block the host.
  void fill_own_slices();
  /// Waits until no copy to the device reads the shard. Call it before the host writes the shard.
  void finish_shard_copies();
  bool gathering() const { return gather_ || (codes_ && codes_->in_flight()); }
  at::Tensor make(int64_t numel, at::ScalarType type, memory::Class klass) const;

  const layout::FlatLayout layout_;
  const FlatOptions options_;
  const Groups rank_groups_;
  layout::Stage stage_;  ///< options_.stage, or stage 0 while this rank owns the whole flat
  std::vector<Span> spans_;
  std::vector<Span> groups_;  ///< spans_, split where weight decay or the rate changes
  int owner_ = 0;             ///< this rank in groups_.shards (0 when nothing is sharded)

  at::Tensor working_;  ///< [numel] compute; undefined if packed_ is set
  std::unique_ptr<PackedWeights> packed_;
  std::unique_ptr<OwnedState> owned_;
  GradientSum gradient_;
  device::MarkPtr shard_copied_;  ///< the last copy of the shard to the device
  comm::WorkPtr gather_;
  std::optional<BlockGather> codes_;  ///< set if parameters may travel as codes
  at::Tensor coded_shard_;            ///< [1, bytes]: the frozen shard as codes
  bool exact_ = false;                ///< the gather in flight, or the last one, is exact
  at::Tensor second_;                 ///< hpZ: [numel / near ranks], as gathered; else undefined
  bool second_is_fresh_ = false;
};

/// Gathers one flat at a time. Each rank then calls visit(slot, whole tensor on the host, compute
/// type) for the parameters for which its here(slot) is true. Collective: all ranks pass the same
/// flats; here() may differ between ranks.
void visit_weights(const std::vector<Flat*>& flats,
                   const std::function<bool(const layout::Slot&)>& here,
                   const std::function<void(const layout::Slot&, const at::Tensor&)>& visit);

}  // namespace dsj::zero
