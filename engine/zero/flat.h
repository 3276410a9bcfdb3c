// One flat of parameters and everything ZeRO keeps for it on this rank: working copy, fp32 master,
// gradient, optimizer states.
//
// The stage (job/layout/stage.h) says what is whole and what is sharded, and when the flat is
// gathered and reduced. A frozen flat (LoRA) has a working copy only, loaded once in the compute
// type.
//
// Nothing is held twice. The master of a whole working copy is this rank's slices of that
// copy; where parameters are sharded, the shard that a gather reads is the master. Shard, master
// and states lie where offload puts them (owned_state.h); where states leave an accelerator, so does
// the reduced gradient (host_sum.h). All memory is counted by class.
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
#include "engine/zero/host_copies.h"
#include "engine/zero/host_sum.h"
#include "engine/zero/owned_state.h"
#include "engine/zero/row_gradients.h"
#include "engine/zero/update.h"
#include "job/layout/partition.h"
#include "job/layout/stage.h"

namespace dsj::zero {

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
  bool separate_master = false;               ///< the first vector of `optimizer` is the master
  bool rows = false;                          ///< gradients travel as rows (row_gradients.h)
  ShardStoreOptions optimizer = {}, parameters = {};  ///< places of the owned state
  HostCopies* copies = nullptr;  ///< of the device; needed where state is offloaded from one
};

/// Where to write a gradient. `accumulate`: add to what is there, instead of overwriting it. `part`:
/// what is written is not the whole gradient yet; whoever asked rounds the sum (PieceSums).
struct GradView {
  at::Tensor tensor;
  bool accumulate = false;
  bool part = false;

  /// Before sums are added to it.
  void zero_if_new() const {
    if (tensor.defined() && !accumulate) tensor.zero_();
  }
};

class Flat {
 public:
  Flat(const layout::FlatLayout& layout, const FlatOptions& options,
       comm::Collectives& collectives);

  const layout::FlatLayout& layout() const { return layout_; }
  at::Device device() const { return options_.device; }
  bool frozen() const { return layout_.frozen(); }
  bool sharded_parameters() const { return stage_.shards_parameters(); }
  /// Whether this rank updates a part only.
  bool sharded_update() const { return stage_.shards_update(); }
  /// The tiles that a gather reads, in order. Empty unless the shard lies in a file.
  std::vector<int> gather_tiles() const { return owned_->parameter_tiles(); }

  // ---- parameters
  /// Frozen flats: fills this rank's part by `read(parameter, first element, values)`, rounded to
  /// the compute type. publish() follows. Error: read's.
  using Read = std::function<Status(const std::string&, int64_t, std::span<float>)>;
  Status fill_frozen(const Read& read);
  /// Starts the gather of the working copy. Called when the stage says (Gathered); where it says
  /// never, this does nothing. `exact`: in the parameters' type, not in FlatOptions::gathered.
  /// Collective: all ranks.
  void start_gather(bool exact = false);
  /// Waits for the gather in flight, if there is one.
  void finish_gather();
  /// Frees the gathered copy (sharded flats only). No view of it may be in use.
  void release();
  bool gathered() const { return working_.defined(); }
  /// A view of the working copy: one parameter in its shape, or `count` neighbours stacked on the
  /// first dimension (undefined if padding lies between them). Compute type; valid until release().
  at::Tensor weight(int slot) const;
  at::Tensor stacked_weight(int slot, int count) const;

  // ---- gradients
  /// Where backward writes a parameter's gradient (compute type). The first call of a micro-step
  /// allocates the flat's gradient.
  GradView grad(int slot);
  GradView stacked_grad(int slot, int count);
  /// Starts bringing back what earlier micro-steps summed, if this rank keeps its sum whole and it is
  /// in host memory: before backward writes to it, which else does it first.
  void fetch_gradient();
  /// This micro-step's gradient is complete: keeps it, or starts its reduction. `last`: this is the
  /// step's last micro-step. Collective when the stage says (Reduced).
  void reduce(bool last);
  /// Waits for the reduction in flight and adds its result to the shard.
  void finish_reduce();
  /// From now on gradients are reduced nowhere: each rank keeps its own sum, whole. For a 1-bit
  /// optimizer; stages 0 and 1. Call it between two steps.
  void keep_local(bool local) { local_ = local; }
  /// This rank's own gradient [numel], grad_accum. Only after keep_local(true).
  at::Tensor local_gradient() const;

  // ---- update
  /// Adds the squares of the reduced gradient that this rank updates, which may be the whole, to sum
  /// [] (double, on the device). The gradient is as averaging left it: grad_scale is not applied
  /// yet.
  void add_grad_squares(const at::Tensor& sum) const;
  /// [slot]: whether this rank's part of the reduced gradient has an infinity or a NaN.
  std::vector<bool> bad_gradients() const;
  /// LAMB's first pass over the owned elements: updates the moments, and adds each parameter's sums
  /// to `sums` [slots, 2] double. The gradient is no more: step() may find the direction in its place.
  void lamb_moments(const optim::Update& update, const at::Tensor& sums);
  /// Applies the optimizer to the owned elements. `update.grad_scale` carries averaging, loss scale
  /// and clipping. `coefficients`: LAMB's, [slots] double; undefined for other optimizers, which
  /// take all elements in one call, or in two where some have no weight decay.
  void step(const optim::Update& update, const at::Tensor& coefficients = {});
  /// Calls `run` for each run of one parameter that this rank updates, from element `offset` on.
  /// `writes`: it may write states and parameter, and must write span.low where there is one.
  /// span.grad is undefined where there is no gradient.
  using UpdateRun = std::function<void(int slot, int64_t offset, const UpdateSpan& span)>;
  void for_owned(bool writes, const UpdateRun& run);
  /// One of the optimizer's states, whole: [numel] fp32, a copy. `state` as below, not the master.
  /// Collective: all ranks.
  at::Tensor gather_state(int state);
  /// Stages 0 and 1: from now on this rank updates every element by itself, as at stage 0, with the
  /// states that it gathers from their owners. Collective: all ranks.
  void take_whole();
  /// The same, or back to the stage's share. What is owned is undefined until load_state().
  void own(bool whole);
  /// Drops the gradient. The next micro-step starts from nothing.
  void clear_grad();

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
  /// What this rank updates, in flat order.
  std::vector<layout::Range> ranges() const;
  std::unique_ptr<OwnedState> make_owned(bool whole) const;
  /// `whole`: of the whole flat, else of the stage's share.
  void replace_owned(bool whole, std::unique_ptr<OwnedState> owned);
  /// A vector of the owned state, by its index there: [numel] fp32. Collective: all ranks.
  at::Tensor gather_vector(size_t index);
  /// Starts a reduction by rows. False: dense is less.
  bool start_rows(const at::Tensor& source, comm::Label label);
  /// The tensor of the device that holds the sum over micro-steps; undefined while there is none.
  at::Tensor& sum();
  /// Starts bringing the sum back from host memory, if it lies there.
  void fetch_sum();
  /// Adds the result of a reduction to the sum, or makes it the sum.
  void add_reduced(at::Tensor out);
  /// The current lane waits for what was fetched.
  void sum_arrived() {
    if (away_) away_->arrived();
  }
  /// The sum leaves the device, if the states did. `last`: it is complete.
  void send_sum(bool last);
  /// The reduced gradient, wherever it lies. In host memory: the host waits for it.
  at::Tensor gradient() const;
  bool gradient_by_flat_offset() const { return local_ || !stage_.shards_update(); }
  /// The part of `span` that lies in `run`; nullopt: none.
  static std::optional<Span> overlap(const Span& span, const OwnedRun& run);
  /// The fp32 master of a span, wherever it lies.
  at::Tensor master(const Span& span, const OwnedRun& run) const;
  /// A run of owned elements: of one parameter from `offset` on, or of any (slot -1).
  struct UpdatePart {
    int slot = -1;
    int64_t offset = 0;
    bool decays = true;
    std::vector<at::Tensor> states;  ///< what tensors.states refers to; moving keeps it
    UpdateSpan tensors = {};
    bool in_place = false;  ///< the tensors are no copies
  };
  using UpdateParts = std::function<void(std::span<UpdatePart> parts)>;
  /// Calls f for runs of the owned elements, as many at once as lie on one device. `by_slot`: each
  /// run is of one parameter. `applies`: f writes the parameters too. Tensors that lie elsewhere are
  /// copied to the states' device, and back: one run at a time.
  void update_runs(bool by_slot, bool applies, const UpdateParts& f);
  /// Lets f update a part whose tensors do not lie together, by copies where its states are.
  void update_elsewhere(UpdatePart part, bool applies, const UpdateParts& f);
  UpdatePart part_of(const OwnedRun& run, const Span& span, bool copies) const;
  /// f on a run whose master or states have 16 bits: on fp32 copies, piece by piece. What is kept is
  /// rounded once, to nearest even, when f is done.
  static void update_widened(const UpdatePart& part, bool applies, const UpdateParts& f);
  /// LAMB's direction lies where the gradient was, if that is fp32 and no copy: after the first pass
  /// nobody needs it.
  static void put_direction(UpdatePart& part);
  Status visit_state(const std::vector<layout::Range>& ranges, Access access, bool all,
                     const VisitState& visit);
  /// What this rank saves: a flat that every rank has whole is dealt among them.
  std::vector<layout::Range> saved_ranges() const;
  /// Copies this rank's shard into its slices of the working copy, for the gather to spread. From the
  /// host to a device: on the current lane, and the host goes on.
  void fill_own_slices();
  /// Waits until no copy to the device reads the shard any more: before the host writes it.
  void finish_shard_copies();
  at::Tensor at_slot(const at::Tensor& whole, int slot) const;
  /// `count` neighbours as one tensor: rows stacked on the first dimension.
  at::Tensor at_slots(const at::Tensor& whole, int first, int count) const;
  bool contiguous(int slot, int count) const;
  void ensure_grad();
  at::Tensor make(int64_t numel, at::ScalarType type, memory::Class klass) const;

  const layout::FlatLayout layout_;
  const FlatOptions options_;
  comm::Collectives& collectives_;
  layout::Stage stage_;  ///< options_.stage, or stage 0 once this rank owns the whole flat
  std::vector<Span> spans_;
  std::vector<Span> groups_;  ///< spans_, cut where weight decay begins or ends
  int owner_ = 0;  ///< this rank's index in the layout's world (0 when nothing is sharded)

  at::Tensor working_;  ///< [numel] compute
  std::unique_ptr<OwnedState> owned_;
  at::Tensor grad_;                ///< [numel] compute: of this micro-step, or the sum
  at::Tensor grad_whole_;          ///< [numel] grad_accum: the sum, if of another type
  at::Tensor grad_shard_;          ///< [shard] grad_accum: the reduced sum
  std::vector<bool> written_;      ///< [slot]: this micro-step wrote it already
  bool local_ = false;             ///< see keep_local()
  bool last_ = false;              ///< the reduction in flight is of the last micro-step
  bool directed_ = false;          ///< lamb_moments() has put directions in the gradient's place
  std::unique_ptr<HostSum> away_;  ///< the sum leaves the device
  at::Tensor squares_;             ///< [] double, on the device: of the sum that has left
  device::MarkPtr shard_copied_;   ///< the last copy of the shard to the device
  comm::WorkPtr gather_;
  std::vector<comm::WorkPtr> reduce_;
  at::Tensor reduce_out_;               ///< [shard] communication: the reduction in flight
  std::unique_ptr<RowGradients> rows_;  ///< it goes by rows
};

}  // namespace dsj::zero
