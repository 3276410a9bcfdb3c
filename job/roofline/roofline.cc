#include "job/roofline/roofline.h"

#include <algorithm>
#include <deque>

#include "job/layout/schedule.h"
#include "job/plan/zero_plan.h"
#include "job/roofline/state_work.h"
#include "job/roofline/unit_work.h"

namespace dsj::roofline {
namespace {

using layout::Action;

/// Rows of equal length, with the number of tokens that the plan counts.
Batch batch_of(const plan::MemoryInput& input) {
  const plan::MicroBatchTokens most = plan::micro_batch_tokens(input);
  const int64_t rows = std::max<int64_t>(1, input.config.micro_batch_size);
  Batch batch{.lengths = {}, .targets = std::clamp<int64_t>(most.targets, 1, most.tokens)};
  for (int64_t row = 0; row < rows; ++row)
    batch.lengths.push_back(most.tokens * (row + 1) / rows - most.tokens * row / rows);
  std::erase(batch.lengths, 0);
  return batch;
}

enum PartOf {
  kProducts,
  kAttention,
  kOurs,
  kPasses,
  kLaunches,
  kCollectives,
  kCopies,
  kHostUpdate
};

/// Two steps, of which the second counts: what the first leaves on the links is then there.
class Walk {
 public:
  Walk(const plan::MemoryInput& input, const Gpu& gpu, int gpus_per_machine)
      : input_(input),
        config_(input.config),
        gpu_(gpu),
        groups_(plan::rank_groups(config_, input.world)),
        gpus_per_machine_(gpus_per_machine),
        batch_(batch_of(input)),
        units_(layout::units_of(input.model, input.lora)),
        plan_(plan::plan_flats(units_, config_, input.world)),
        stage_(plan::effective_stage(config_, input.world)),
        offload_(plan::plan_offload(plan_, config_, input.world)),
        schedule_(layout::make_schedule(units_, plan_, plan::schedule_limits(config_, input.world),
                                        config_.gradient_accumulation_steps)),
        lowest_(layout::lowest_trainable(units_)),
        work_(input_.model, units_, plan_, input.lora),
        order_(layout::reductions(schedule_)),
        copied_(plan_.flats.size(), 0),
        gathered_(plan_.flats.size(), 0),
        second_(plan_.flats.size(), false),
        sums_(plan_.flats.size()) {}

  Roofline run() {
    step();
    const double begin = now_;
    out_ = fresh();
    step();
    out_.seconds = now_ - begin;
    out_.tokens =
        static_cast<double>(batch_.tokens() * input_.world * config_.gradient_accumulation_steps);
    out_.share_of_peak = out_.needed_flops / out_.seconds / gpu_.flops;
    // Transfers are hidden as far as the compute stream did not wait for them.
    part(kCollectives).hidden = std::max(0.0, part(kCollectives).seconds - waited_);
    part(kCopies).hidden = std::max(0.0, part(kCopies).seconds - waited_for_copies_);
    for (const Part& one : out_.parts) out_.launches += one.launches;
    const auto shown = [](const Part& a) { return a.seconds - a.hidden; };
    out_.bound = std::ranges::max(out_.parts, {}, shown).name;
    return out_;
  }

 private:
  static Roofline fresh() {
    Roofline out;
    for (const char* name :
         {"matrix products", "attention", "our kernels", "libtorch's passes", "launches",
          "collectives", "copies to and from the host", "update in host memory"})
      out.parts.push_back({name});
    return out;
  }
  Part& part(PartOf which) { return out_.parts[which]; }

  /// Runs operations one after another on the compute stream.
  void queue(const Ops& ops, bool needed = true) {
    for (const Op& op : ops) {
      const bool product = op.kind == Kind::Product, attention = op.kind == Kind::Attention;
      Part& of = part(product                 ? kProducts
                      : attention             ? kAttention
                      : op.kind == Kind::Ours ? kOurs
                                              : kPasses);
      const double share = attention ? gpu_.attention_share : gpu_.product_share;
      const double flops = static_cast<double>(op.flops), bytes = static_cast<double>(op.bytes);
      const double work =
          std::max(flops / (gpu_.flops * share), bytes / (gpu_.bandwidth * gpu_.bandwidth_share));
      const double least = kLaunch * static_cast<double>(op.launches);
      of.seconds += work;
      of.flops += flops;
      of.bytes += bytes;
      of.launches += op.launches;
      if (needed) out_.needed_flops += flops;
      part(kLaunches).seconds += least;  // hidden as far as it overlaps the work
      part(kLaunches).hidden += std::min(least, work);
      now_ += std::max(work, least);
    }
  }
  /// Starts a collective after the queued compute work and not before `from`. Returns its end.
  /// `ranks`: the number of consecutive ranks that take part.
  double send(int ranks, int64_t bytes, int64_t calls, double from = 0) {
    if (calls == 0) return std::max(now_, from);
    const double link = ranks > gpus_per_machine_ ? std::min(gpu_.link, gpu_.network) : gpu_.link;
    const double seconds = static_cast<double>(bytes) / (link * gpu_.link_share) +
                           kCollective * static_cast<double>(calls);
    part(kCollectives).seconds += seconds;
    part(kCollectives).bytes += static_cast<double>(bytes);
    part(kCollectives).launches += calls;
    busy_until_ = std::max({busy_until_, now_, from}) + seconds;
    return busy_until_;
  }
  void wait(double until) {
    waited_ += std::max(0.0, until - now_);
    now_ = std::max(now_, until);
  }
  /// Starts a copy between device and host after the queued compute work. Returns its end.
  double copy(int64_t bytes) {
    const double seconds = static_cast<double>(bytes) / (gpu_.host_link * gpu_.link_share);
    part(kCopies).seconds += seconds;
    part(kCopies).bytes += static_cast<double>(bytes);
    if (bytes > 0) copying_until_ = std::max(copying_until_, now_) + seconds;
    return bytes > 0 ? copying_until_ : now_;
  }
  void wait_for_copy(double until) {
    waited_for_copies_ += std::max(0.0, until - now_);
    now_ = std::max(now_, until);
  }

  FlatState state_of(int flat) const {
    return {plan_.flats[flat],
            layout::stage_of_flat(stage_, plan_.is_persisted(flat)),
            config_,
            groups_.shards,
            static_cast<int>(dsconfig::states_of(config_.optimizer).size()),
            offload_.states_leave(flat)};
  }

  void gather(int flat) {
    const layout::FlatLayout& layout = plan_.flats[flat];
    int64_t from_host = 0;
    for (const layout::Part& kept : offload_.parameters[flat])
      if (kept.place != layout::Place::Device) from_host += 2 * kept.numel;
    copied_[flat] = std::max(copied_[flat], copy(from_host));
    // hpZ: once gathered, a group holds all parameters until the update.
    const int ranks = groups_.near > 0 && second_[flat] ? groups_.near : groups_.shards;
    second_[flat] = true;
    gathered_[flat] = send(ranks, gathered_bytes(layout, ranks), ranks > 1, copied_[flat]);
  }
  void need(int unit) {
    const int other = units_[unit].uses_embedding ? 0 : unit;
    for (const int flat : {plan_.unit_flat[unit], plan_.unit_frozen[unit], plan_.persisted,
                           plan_.unit_flat[other], plan_.unit_frozen[other]})
      if (flat >= 0) wait_for_copy(copied_[flat]), wait(gathered_[flat]);
  }
  /// Copies the sum of a whole gradient back to the device, if it is in host memory.
  void fetch(int flat) {
    const FlatState state = state_of(flat);
    if (state.stage.shards_update() || !sums_[flat].there || sums_[flat].fetched) return;
    sums_[flat] = {.there = true, .fetched = true, .until = copy(state.flat.numel() * sum_bytes())};
  }
  /// Waits until the gradients that a unit adds to are on the device.
  void have_gradients(int unit) {
    const int other = units_[unit].uses_embedding ? 0 : unit;
    for (const int flat : {plan_.unit_flat[unit], plan_.persisted, plan_.unit_flat[other]}) {
      if (flat < 0) continue;
      fetch(flat);
      if (sums_[flat].fetched) wait_for_copy(sums_[flat].until);
    }
  }
  int64_t sum_bytes() const {
    return config_.grad_accum_dtype == dsconfig::Precision::Fp32 ? 4 : 2;
  }

  void forward(int unit) {
    need(unit);
    queue(work_.forward(unit, batch_, unit >= lowest_ && !input_.recompute));
  }
  void backward(int unit) {
    if (unit > 0) need(unit);
    if (unit > 0 && input_.recompute) queue(work_.recompute(unit, batch_), false);
    have_gradients(unit);
    queue(work_.backward(unit, batch_, unit > 0 && input_.recompute));
  }

  void finish_first() {
    const auto [flat, end, after, fetched, down] = std::move(reducing_.front());
    reducing_.pop_front();
    wait(end);
    wait_for_copy(fetched);
    queue(after);
    if (down > 0) leave(flat, down);
  }
  void leave(int flat, int64_t bytes) {
    keep_leaving(plan::kGradientsLeaving - 1);
    leaving_.push_back(copy(bytes));
    sums_[flat] = {.there = true};
  }
  void keep_leaving(size_t count) {
    for (; leaving_.size() > count; leaving_.pop_front()) wait_for_copy(leaving_.front());
  }
  void reduce(int flat, int micro_step) {
    const bool last = micro_step + 1 == config_.gradient_accumulation_steps;
    const FlatState state = state_of(flat);
    const Reduction all = reduction(state, micro_step == 0, last);
    queue(all.before);
    if (all.gone) work_.forget(flat);
    if (all.down > 0 && !state.stage.shards_update()) {
      leave(flat, all.down);
      if (const int next = layout::flat_to_fetch(order_, flat, last); next >= 0) fetch(next);
      return;
    }
    const double fetched = copy(all.up);
    double end = send(groups_.shards, all.sent, all.collectives);
    if (last && groups_.replicas() > 1) {  // MiCS: all-reduce over the groups
      const int64_t bytes = state.flat.shard_numel() * sum_bytes();
      end = send(input_.world, 2 * bytes * (groups_.replicas() - 1) / groups_.replicas(), 1, end);
    }
    reducing_.push_back({flat, end, all.after, fetched, all.down});
    while (reducing_.size() > (config_.zero.overlap_comm ? 2u : 0u)) finish_first();
  }

  void update(int flat) {
    const FlatState state = state_of(flat);
    const Updated all = update_work(state, offload_.optimizer[flat], offload_.parameters[flat]);
    queue(all.device);
    const double seconds = static_cast<double>(all.host) / gpu_.host_memory;
    part(kHostUpdate).seconds += seconds;
    part(kHostUpdate).bytes += static_cast<double>(all.host);
    now_ += seconds;  // the device idles meanwhile
    copied_[flat] = copy(all.up);
    if (state.stage.gathered == layout::Gathered::AfterUpdate && input_.world > 1)
      gathered_[flat] =
          send(input_.world, gathered_bytes(plan_.flats[flat], input_.world), 1, copied_[flat]);
    second_[flat] = false;
    work_.forget(flat);
    sums_[flat] = {};
  }

  void step() {
    waited_ = waited_for_copies_ = 0;
    for (const Action& action : schedule_.actions) {
      switch (action.kind) {
        case Action::Kind::Gather:
          gather(action.flat);
          break;
        case Action::Kind::Release:
          break;
        case Action::Kind::Forward:
          forward(action.unit);
          break;
        case Action::Kind::Turn:
          need(action.unit);
          have_gradients(action.unit);
          queue(work_.turn(batch_));
          break;
        case Action::Kind::Backward:
          backward(action.unit);
          break;
        case Action::Kind::Reduce:
          reduce(action.flat, action.micro_step);
      }
    }
    while (!reducing_.empty()) finish_first();
    keep_leaving(0);
    for (int flat = 0; flat < static_cast<int>(plan_.flats.size()); ++flat)
      if (!plan_.flats[flat].frozen()) queue(norm_work(state_of(flat)));
    wait(send(input_.world, 8, input_.world > 1));  // the step's sums; then the host reads them
    for (int flat = 0; flat < static_cast<int>(plan_.flats.size()); ++flat)
      if (!plan_.flats[flat].frozen()) update(flat);
  }

  const plan::MemoryInput& input_;
  const dsconfig::ResolvedConfig& config_;
  const Gpu& gpu_;
  const plan::RankGroups groups_;
  const int gpus_per_machine_;
  const Batch batch_;
  const std::vector<layout::UnitSpec> units_;
  const layout::FlatPlan plan_;
  const layout::Stage& stage_;
  const layout::OffloadPlan offload_;
  const layout::Schedule schedule_;
  const int lowest_;
  UnitWork work_;
  struct Reducing {
    int flat;
    double end;
    Ops after;
    double fetched;  ///< when the sum of earlier micro-steps arrives
    int64_t down;    ///< bytes that are offloaded afterwards
  };
  /// A gradient's sum that is offloaded to host memory.
  struct Sum {
    bool there = false, fetched = false;
    double until = 0;  ///< if fetched: when it arrives
  };
  const std::vector<int> order_;
  std::deque<Reducing> reducing_;
  std::deque<double> leaving_;    ///< when these sums arrive in host memory
  std::vector<double> copied_;    ///< [flat]: when its parameters arrive on the device
  std::vector<double> gathered_;  ///< [flat]: when its gather ends
  std::vector<bool> second_;      ///< [flat]: the group holds a current second copy
  std::vector<Sum> sums_;         ///< [flat]
  double now_ = 0;                ///< time on the compute stream
  double busy_until_ = 0;         ///< time on the stream of collectives
  double copying_until_ = 0;      ///< time on the stream of copies
  double waited_ = 0;             ///< of the compute stream, for collectives
  double waited_for_copies_ = 0;
  Roofline out_ = fresh();
};

bool in_several_passes(dsconfig::OptimizerKind kind) {
  using enum dsconfig::OptimizerKind;
  return kind == Muon || kind == Lamb || kind == OneBitAdam || kind == OneBitLamb ||
         kind == ZeroOneAdam;
}

}  // namespace

std::optional<Uncounted> uncounted(const plan::MemoryInput& input) {
  const dsconfig::ResolvedConfig& config = input.config;
  constexpr const char* kNot = "dsj does not count this work on a GPU";
  if (config.autocast.on())
    return Uncounted{"torch_autocast", std::string("products in another type: ") + kNot,
                     "bf16.enabled instead"};
  if (config.precision == dsconfig::Precision::Fp32)
    return Uncounted{"bf16.enabled",
                     "fp32 attention takes no flash kernel, and " + std::string(kNot),
                     "bf16 or fp16"};
  if (input.model.head_dim % 8 != 0 || input.model.head_dim > 256)
    return Uncounted{"spec.training.modelNameOrPath",
                     "heads of " + std::to_string(input.model.head_dim) +
                         " elements take no flash kernel, and " + kNot,
                     "heads of a multiple of 8 up to 256"};
  const layout::ModelConfig& model = input.model;
  if (model.experts.count > 0 || model.latent.rank > 0 || model.sinks || model.delta.key_heads > 0)
    return Uncounted{
        "spec.training.modelNameOrPath",
        std::string("experts, latent attention, sinks, the gated delta rule and Mamba 2: ") + kNot,
        "plan without --device"};
  if (model.conv.kernel > 0)
    return Uncounted{"spec.training.modelNameOrPath", std::string("short convolutions: ") + kNot,
                     "plan without --device"};
  if (!model.shapes.empty() || model.value_norm || model.layer_scale)
    return Uncounted{"spec.training.modelNameOrPath",
                     std::string("layers with heads of several sizes, norms of values and scaled "
                                 "layers: ") +
                         kNot,
                     "plan without --device"};
  if (model.activation == layout::Activation::Xielu || model.query_growth > 0)
    return Uncounted{
        "spec.training.modelNameOrPath",
        std::string("an activation with parameters, and queries that grow with their position: ") +
            kNot,
        "plan without --device"};
  if (input.model.scores_cap > 0)
    return Uncounted{
        "spec.training.modelNameOrPath",
        std::string("attention with a cap on its scores takes no flash kernel, and ") + kNot,
        "plan without --device"};
  const auto& dropout = input.model.dropout;
  if (dropout.attention > 0 || dropout.embedding > 0 || dropout.residual > 0)
    return Uncounted{"spec.training.modelNameOrPath",
                     "the model's config.json asks for dropout: " + std::string(kNot),
                     "attn_pdrop, embd_pdrop and resid_pdrop 0"};
  if (input.lora && input.lora->dropout > 0)
    return Uncounted{"spec.training.lora.dropout", "dropout of adapters: " + std::string(kNot),
                     "0"};
  if (input.lora && input.lora->use_dora)
    return Uncounted{"spec.training.lora.useDora", "DoRA: " + std::string(kNot), "false"};
  if (input.lora && !input.lora->rank_pattern.empty())
    return Uncounted{"spec.training.lora.rankPattern",
                     "adapters of several ranks: " + std::string(kNot), "one rank"};
  if (config.optimizer.lora_plus_ratio != 1)
    return Uncounted{"spec.training.lora.loraplusLrRatio",
                     "updates at several rates: " + std::string(kNot), "1"};
  if (input.lora && input.lora->load_in_4bit)
    return Uncounted{"spec.training.lora.loadIn4bit",
                     "unpacking a base in 4 bits: " + std::string(kNot), "false"};
  if (config.data_efficiency.random_ltd)
    return Uncounted{"data_efficiency.data_routing.random_ltd", std::string("random-LTD: ") + kNot,
                     "plan without it"};
  if (config.master_dtype != dsconfig::Precision::Fp32)
    return Uncounted{"bf16.bf16_master_weights_and_grads",
                     std::string("masters in 16 bits: ") + kNot, "fp32 masters"};
  if (input.inputs_leave())
    return Uncounted{"activation_checkpointing.cpu_checkpointing",
                     std::string("inputs of layers in host memory: ") + kNot, "false"};
  for (const auto& [key, on] : {std::pair{"weights", config.zero.quantized_weights},
                                {"nontrainable_weights", config.zero.quantized_frozen_weights},
                                {"gradients", config.zero.quantized_gradients}})
    if (on && config.zero.stage == 3)
      return Uncounted{std::string("zero_optimization.zero_quantized_") + key,
                       std::string("codes of ZeRO++: ") + kNot, "plan without it"};
  if (config.sequence_parallel_size > 1)
    return Uncounted{"sequence_parallel_size", std::string("rows cut over ranks: ") + kNot,
                     "plan without it"};
  if (config.sparse_gradients)
    return Uncounted{"sparse_gradients", std::string("gradients as rows: ") + kNot,
                     "plan without it"};
  if (in_several_passes(config.optimizer.kind))
    return Uncounted{"optimizer.type", std::string("updates in several passes: ") + kNot,
                     "AdamW, for example"};
  if (config.optimizer.eight_bit)
    return Uncounted{"spec.training.optim", std::string("moments in 8 bits: ") + kNot,
                     "adamw_torch"};
  if (config.offload.nvme())
    return Uncounted{"zero_optimization", "state on a disk, whose speed the table of GPUs lacks",
                     "device: cpu"};
  return std::nullopt;
}

Roofline roofline(const plan::MemoryInput& input, const Gpu& gpu, int gpus_per_machine) {
  return Walk(input, gpu, gpus_per_machine).run();
}

int64_t usable_memory(const Gpu& gpu) {
  return gpu.memory - kOwnMemory;
}

}  // namespace dsj::roofline
