// Updates the owned parts of a flat: on the device, elsewhere, or with 16-bit types.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "engine/zero/flat/flat.h"
#include "job/plan/zero_plan.h"

namespace dsj::zero {

using memory::Class;

std::optional<Flat::Span> Flat::overlap(const Span& span, const OwnedRun& run) {
  const int64_t from = std::max(span.shard_offset, run.begin);
  const int64_t to = std::min(span.shard_offset + span.numel, run.begin + run.numel);
  if (from >= to) return std::nullopt;
  return Span{span.flat_offset + from - span.shard_offset, from, to - from, span.decays,
              span.raised};
}

at::Tensor Flat::master(const Span& span, const OwnedRun& run) const {
  const int64_t at = span.shard_offset - run.begin;
  if (options_.separate_master) return run.optimizer[0].narrow(0, at, span.numel);
  if (sharded_parameters()) return run.parameters.narrow(0, at, span.numel);
  return working_.narrow(0, span.flat_offset, span.numel);
}

UpdatePart Flat::part_of(const OwnedRun& run, const Span& span, bool copies) const {
  const int64_t at = span.shard_offset - run.begin;
  UpdatePart part;
  part.decays = span.decays;
  part.raised = span.raised;
  for (size_t i = options_.separate_master; i < run.optimizer.size(); ++i)
    part.states.push_back(run.optimizer[i].narrow(0, at, span.numel));
  UpdateSpan& tensors = part.tensors;
  tensors.p = master(span, run);
  tensors.grad = gradient_.value();
  tensors.states = part.states;
  if (tensors.grad.defined())
    tensors.grad = tensors.grad.narrow(0, gradient_.whole() ? span.flat_offset : span.shard_offset,
                                       span.numel);
  if (copies) {
    tensors.low = sharded_parameters() ? run.parameters.narrow(0, at, span.numel)
                                       : working_.narrow(0, span.flat_offset, span.numel);
  }
  return part;
}

namespace {

/// The update runs where the states are: offloaded states are updated on the host.
at::Device states_device(const UpdateSpan& span) {
  return span.states.empty() ? span.p.device() : span.states[0].device();
}
bool on_one_device(const UpdateSpan& span) {
  const auto there = [device = states_device(span)](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.device() == device;
  };
  return there(span.p) && there(span.grad) && there(span.low);
}

}  // namespace

void Flat::update_elsewhere(UpdatePart part, bool writes, const UpdateParts& f) {
  using What = HostCopies::What;
  const UpdateSpan there = part.tensors;
  UpdateSpan& here = part.tensors;
  const at::Device device = states_device(there);
  if (!device.is_cpu()) {  // the device's share of the states, or parameters offloaded alone
    const memory::MemoryScope scope(Class::Buckets);
    here.p = there.p.to(device);
    if (there.grad.defined()) here.grad = there.grad.to(device);
    if (there.low.defined() && there.low.device() != device)
      here.low = at::empty_like(there.low, there.low.options().device(device));
    f({&part, 1});
    if (writes && !here.p.is_same(there.p)) there.p.copy_(here.p);
    if (here.low.defined() && !here.low.is_same(there.low)) there.low.copy_(here.low);
    return;
  }
  HostCopies& copies = *options_.copies;
  std::optional<HostCopies::Down> master;
  if (!there.p.is_cpu()) {
    master = copies.down(What::Master, there.p);
    here.p = master->host;
  }
  const bool sends_low = there.low.defined() && !there.low.is_cpu();
  if (sends_low) here.low = copies.block(What::Low, there.low.numel(), there.low.scalar_type());
  if (master) copies.wait(*master);
  f({&part, 1});
  if (writes && master) copies.up(What::Master, here.p, there.p);
  if (sends_low) copies.up(What::Low, here.low, there.low);
}

void Flat::update_widened(const UpdatePart& part, bool writes, const UpdateParts& f) {
  memory::MemoryScope scope(Class::Buckets);
  const at::Device device = states_device(part.tensors);
  const int64_t all = part.tensors.p.numel();
  for (int64_t at = 0; at < all; at += plan::kWidenedPiece) {
    const auto narrow = [&](const at::Tensor& tensor) {
      return tensor.narrow(0, at, std::min(plan::kWidenedPiece, all - at));
    };
    UpdatePart piece;
    piece.slot = part.slot;
    piece.offset = part.offset + at;
    piece.decays = part.decays;
    piece.raised = part.raised;
    std::vector<std::pair<at::Tensor, at::Tensor>> kept;  // the stored tensor, what f writes
    const auto widen = [&](const at::Tensor& tensor, bool back) {
      const at::Tensor own = narrow(tensor), wide = own.to(device, at::kFloat);
      if (back && !wide.is_same(own)) kept.emplace_back(own, wide);
      return wide;
    };
    for (const at::Tensor& state : part.states) piece.states.push_back(widen(state, true));
    piece.tensors.p = widen(part.tensors.p, writes);
    if (part.tensors.grad.defined()) piece.tensors.grad = narrow(part.tensors.grad).to(device);
    piece.tensors.states = piece.states;
    f({&piece, 1});
    for (auto& [own, wide] : kept) own.copy_(wide);
  }
}

void Flat::update_runs(bool by_slot, bool writes, const UpdateParts& f) {
  if (writes) {
    finish_shard_copies();
    second_is_fresh_ = false;
  }
  const bool copies = options_.separate_master && writes;
  std::vector<UpdatePart> parts;  // on one device
  const auto add = [&](UpdatePart part) {
    if (part.tensors.p.scalar_type() != at::kFloat) return update_widened(part, writes, f);
    part.in_place = on_one_device(part.tensors);
    if (part.in_place) return parts.push_back(std::move(part));
    update_elsewhere(std::move(part), writes, f);
  };
  std::optional<Access> shard = writes ? Access::ReadWrite : Access::Read;
  if (options_.separate_master) shard = writes ? std::optional(Access::Write) : std::nullopt;
  owned_->for_runs(Access::ReadWrite, shard, [&](const OwnedRun& run) {
    parts.clear();
    for (const Span& span : groups_) {
      if (by_slot) break;
      if (const auto of_run = overlap(span, run)) add(part_of(run, *of_run, copies));
    }
    if (by_slot && copies && sharded_parameters()) run.parameters.zero_();  // ranges skip padding
    for (const auto& range : ranges()) {
      if (!by_slot) break;
      const Span span{range.flat_offset, range.shard_offset, range.numel,
                      decays(static_cast<int>(range.slot)), raised(static_cast<int>(range.slot))};
      const auto of_run = overlap(span, run);
      if (!of_run) continue;
      UpdatePart part = part_of(run, *of_run, copies);
      part.slot = static_cast<int>(range.slot);
      part.offset = range.offset + of_run->shard_offset - range.shard_offset;
      add(std::move(part));
    }
    if (!parts.empty()) f(parts);
  });
  if (!writes) return;
  if (options_.copies && owned_->optimizer_elsewhere()) options_.copies->join();
  if (!sharded_parameters()) start_gather();
}

void Flat::for_owned(bool writes, const UpdateRun& run) {
  update_runs(true, writes, [&](std::span<UpdatePart> parts) {
    for (const UpdatePart& part : parts) run(part.slot, part.offset, part.tensors);
  });
}

std::vector<UpdateSpan> tensors_of(std::span<const UpdatePart> parts) {
  std::vector<UpdateSpan> spans;
  for (const UpdatePart& part : parts) spans.push_back(part.tensors);
  return spans;
}

void update_parts(const optim::Update& update, std::span<UpdatePart> parts,
                  const optim::Update* raised) {
  if (raised) {
    const auto own =
        std::ranges::stable_partition(parts, std::logical_not<>(), &UpdatePart::raised);
    update_parts(*raised, own);
    parts = std::span(parts.begin(), own.begin());
  }
  const auto others = std::ranges::stable_partition(parts, &UpdatePart::decays);
  update_spans(update, tensors_of(std::span(parts.begin(), others.begin())));
  update_spans(optim::without_decay(update), tensors_of(others));
}

void Flat::step(const optim::Update& update, const optim::Update* raised) {
  update_runs(false, true,
              [&](std::span<UpdatePart> parts) { update_parts(update, parts, raised); });
}

}  // namespace dsj::zero
