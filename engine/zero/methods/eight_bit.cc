// AdamW with 8-bit moments (methods.h).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cfloat>
#include <limits>
#include <utility>

#include "common/check.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/eight_bit.h"
#include "engine/zero/methods/error_feedback.h"
#include "engine/zero/methods/methods.h"
#include "job/plan/eight_bit_plan.h"

namespace dsj::zero {
namespace {

using optim::DynamicMap;
using plan::kEightBitBlock;
using plan::kEightBitPiece;

constexpr int kMoments = 2;

/// One moment of all parameters: the names of its states in a checkpoint, and its quantization map.
struct Moment {
  const char* values;  ///< one fp32 per element
  const char* scales;  ///< one per block
  const DynamicMap& map;
};
const Moment& moment(int index) {
  static const Moment moments[kMoments] = {
      {"exp_avg", "exp_avg_absmax", DynamicMap::with_sign()},
      {"exp_avg_sq", "exp_avg_sq_absmax", DynamicMap::without_sign()}};
  return moments[index];
}

/// n numbers in 8 bits: codes [n] uint8, scales [blocks] fp32, on one device.
struct Packed {
  at::Tensor codes, scales;
  Packed part(int64_t from, int64_t count) const {
    return {codes.narrow(0, from, count),
            scales.narrow(0, from / kEightBitBlock, plan::eight_bit_blocks(count))};
  }
};

/// Calls f(block, first element, elements) for every block, on threads.
template <typename F>
void for_blocks(int64_t numel, F f) {
  at::parallel_for(0, plan::eight_bit_blocks(numel), /*grain_size=*/16,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t block = begin; block < end; ++block) {
                       const int64_t first = block * kEightBitBlock;
                       f(block, first, std::min(kEightBitBlock, numel - first));
                     }
                   });
}

/// A map, with a copy on the device unless that is the CPU.
struct MapThere {
  const DynamicMap& map;
  at::Tensor values, edges;  ///< fp32 [256], [255]
};
MapThere map_on(const DynamicMap& map, at::Device device) {
  if (device.is_cpu()) return {map, {}, {}};
  memory::MemoryScope scope(memory::Class::Buckets);
  const auto there = [&](const auto& numbers) {
    return at::tensor(at::ArrayRef<float>(numbers.data(), numbers.size())).to(device);
  };
  return {map, there(map.values()), there(map.edges())};
}

/// The same by libtorch's operations, for devices other than the CPU.
void pack_there(const MapThere& map, const at::Tensor& x, const Packed& to) {
  const int64_t n = x.numel(), blocks = to.scales.numel();
  const int64_t padding = blocks * kEightBitBlock - n;
  const at::Tensor padded = padding > 0 ? at::constant_pad_nd(x, {0, padding}) : x;
  const at::Tensor rows = padded.view({blocks, kEightBitBlock});
  const at::Tensor absmax = rows.abs().amax(1);  // NaN if the block has a NaN
  const at::Tensor none = absmax.lt(FLT_MIN), infinite = absmax.isfinite().logical_not_();
  to.scales.copy_(
      absmax.masked_fill(none, 0.0).masked_fill(infinite, std::numeric_limits<float>::quiet_NaN()));
  const at::Tensor normal = (rows * absmax.reciprocal().unsqueeze(1)).clamp_(-1.0, 1.0);
  const at::Tensor codes = at::bucketize(normal, map.edges, /*out_int32=*/true, /*right=*/true);
  codes.masked_fill_(none.logical_or(infinite).unsqueeze(1), 0);
  to.codes.copy_(codes.view({-1}).narrow(0, 0, n));
}

at::Tensor unpack_there(const MapThere& map, const Packed& from) {
  const int64_t n = from.codes.numel(), blocks = from.scales.numel();
  const at::Tensor values = map.values.index_select(0, from.codes.to(at::kInt));
  const int64_t padding = blocks * kEightBitBlock - n;
  const at::Tensor padded = padding > 0 ? at::constant_pad_nd(values, {0, padding}) : values;
  const at::Tensor scales = from.scales.unsqueeze(1);
  const at::Tensor rows = padded.view({blocks, kEightBitBlock}) * scales;
  return rows.masked_fill_(scales.eq(0), 0.0).view({-1}).narrow(0, 0, n);
}

/// Quantises x [n] fp32.
void pack(const MapThere& map, const at::Tensor& x, const Packed& to) {
  if (!x.is_cpu()) return pack_there(map, x, to);
  const float* const values = x.const_data_ptr<float>();
  auto* const codes = to.codes.data_ptr<uint8_t>();
  auto* const scales = to.scales.data_ptr<float>();
  for_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t count) {
    scales[block] = optim::pack_block(map.map, values + first, count, codes + first);
  });
}

/// [n] fp32.
at::Tensor unpack(const MapThere& map, const Packed& from) {
  if (!from.codes.is_cpu()) return unpack_there(map, from);
  const at::Tensor x = at::empty({from.codes.numel()}, at::kFloat);
  auto* const values = x.data_ptr<float>();
  const auto* const codes = from.codes.const_data_ptr<uint8_t>();
  const float* const scales = from.scales.const_data_ptr<float>();
  for_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t count) {
    optim::unpack_block(map.map, scales[block], codes + first, count, values + first);
  });
  return x;
}

/// Quantizes x [n] with given scales [blocks]; all in host memory.
void pack_by(const DynamicMap& map, const at::Tensor& scales, const at::Tensor& x,
             const at::Tensor& to) {
  const float* const values = x.const_data_ptr<float>();
  const float* const by = scales.const_data_ptr<float>();
  auto* const codes = to.data_ptr<uint8_t>();
  for_blocks(x.numel(), [&](int64_t block, int64_t first, int64_t count) {
    optim::pack_block_by(map, by[block], values + first, count, codes + first);
  });
}

/// The moments of a run of one parameter that this rank updates.
struct KeptMoments {
  int64_t slot = 0, offset = 0, numel = 0;
  bool packed = false;
  Packed codes[kMoments];       ///< if packed
  at::Tensor values[kMoments];  ///< if not packed: [numel] fp32
};

class EightBit final : public UpdateMethod {
 public:
  explicit EightBit(const UpdateTarget& target)
      : UpdateMethod(target),
        flats_(target_.trained()),
        maps_{map_on(moment(0).map, target_.device), map_on(moment(1).map, target_.device)} {
    for (const Flat* flat : flats_) kept_.push_back(allocate(*flat));
  }

  void step(const StepNumbers& n) override {
    const optim::Update plain[] = {rule_of(n), raised_rule_of(n)};
    const optim::Update undecayed[] = {optim::without_decay(plain[0]),
                                       optim::without_decay(plain[1])};
    for (size_t f = 0; f < flats_.size(); ++f) {
      flats_[f]->update_runs(true, true, [&](std::span<UpdatePart> parts) {
        for (const UpdatePart& part : parts)
          move(f, part, (part.decays ? plain : undecayed)[part.raised]);
      });
    }
  }

  Status for_pieces(const checkpoint::EmitPiece& emit) override {
    for (size_t f = 0; f < flats_.size(); ++f)
      for (int m = 0; m < kMoments; ++m)
        for (const layout::Range& range : saved_ranges(*flats_[f]))
          DSJ_TRY_STATUS(save(f, m, range, emit));
    return {};
  }

  void add_extents(std::vector<checkpoint::Extent>& extents) const override {
    for (const Flat* flat : flats_) {
      for (const layout::Slot& slot : flat->layout().slots()) {
        for (int m = 0; m < kMoments; ++m) {
          extents.push_back({moment(m).values, slot.name, slot.numel});
          if (plan::has_eight_bits(slot))
            extents.push_back({moment(m).scales, slot.name, plan::eight_bit_blocks(slot.numel)});
        }
      }
    }
  }

  Status restore(checkpoint::SavedRun& saved) override {
    for (size_t f = 0; f < flats_.size(); ++f)
      for (const KeptMoments& kept : kept_[f])
        for (int m = 0; m < kMoments; ++m)
          DSJ_TRY_STATUS(load(slot_of(f, kept.slot), kept, m, saved));
    return {};
  }

 private:
  const layout::Slot& slot_of(size_t flat, int64_t slot) const {
    return flats_[flat]->layout().slots()[static_cast<size_t>(slot)];
  }
  std::vector<layout::Range> owned_ranges(const Flat& flat) const {
    if (flat.sharded_update()) return flat.layout().ranges(target_.collectives.rank());
    std::vector<layout::Range> whole;
    const auto& slots = flat.layout().slots();
    for (size_t s = 0; s < slots.size(); ++s)
      whole.push_back({.slot = static_cast<int64_t>(s), .numel = slots[s].numel});
    return whole;
  }
  /// What this rank saves: its own shard, or its share of what all ranks update.
  std::vector<layout::Range> saved_ranges(const Flat& flat) const {
    if (flat.sharded_update()) return owned_ranges(flat);
    std::vector<layout::Parameter> parameters;
    for (const auto& slot : flat.layout().slots()) parameters.push_back({slot.name, slot.shape});
    return layout::FlatLayout(flat.layout().name(), parameters, target_.collectives.world(),
                              flat.layout().numel(), kEightBitBlock)
        .ranges(target_.collectives.rank());
  }

  /// Zero moments for what this rank updates of a flat.
  std::vector<KeptMoments> allocate(const Flat& flat) const {
    memory::MemoryScope scope(memory::Class::Optimizer);
    std::vector<KeptMoments> all;
    int64_t codes = 0, scales = 0, values = 0;
    for (const layout::Range& range : owned_ranges(flat)) {
      DSJ_CHECK(range.offset % kEightBitBlock == 0);
      const layout::Slot& slot = flat.layout().slots()[static_cast<size_t>(range.slot)];
      const bool packed = plan::has_eight_bits(slot);
      all.push_back({range.slot, range.offset, range.numel, packed, {}, {}});
      codes += packed ? range.numel : 0;
      scales += packed ? plan::eight_bit_blocks(range.numel) : 0;
      values += packed ? 0 : range.numel;
    }
    const auto zeros = [&](int64_t numel, at::ScalarType type) {
      return at::zeros({numel}, at::TensorOptions(target_.device).dtype(type));
    };
    for (int m = 0; m < kMoments; ++m) {
      const Packed packed{zeros(codes, at::kByte), zeros(scales, at::kFloat)};
      const at::Tensor plain = zeros(values, at::kFloat);
      int64_t code = 0, scale = 0, value = 0;
      for (KeptMoments& kept : all) {
        if (kept.packed) {
          const int64_t blocks = plan::eight_bit_blocks(kept.numel);
          kept.codes[m] = {packed.codes.narrow(0, code, kept.numel),
                           packed.scales.narrow(0, scale, blocks)};
          code += kept.numel;
          scale += blocks;
        } else {
          kept.values[m] = plain.narrow(0, value, kept.numel);
          value += kept.numel;
        }
      }
    }
    return all;
  }

  /// The run that contains element `offset` of a slot.
  const KeptMoments& find(size_t flat, int64_t slot, int64_t offset) const {
    const std::vector<KeptMoments>& all = kept_[flat];
    const auto after = std::ranges::upper_bound(
        all, std::pair(slot, offset), {},
        [](const KeptMoments& one) { return std::pair(one.slot, one.offset); });
    DSJ_CHECK(after != all.begin() && (after - 1)->slot == slot);
    return *(after - 1);
  }

  void move(size_t flat, const UpdatePart& part, const optim::Update& update) const {
    const KeptMoments& kept = find(flat, part.slot, part.offset);
    const int64_t from = part.offset - kept.offset, all = part.tensors.p.numel();
    for (int64_t at = 0; at < all; at += kEightBitPiece) {
      const int64_t count = std::min(kEightBitPiece, all - at);
      const auto piece = [&](const at::Tensor& of) {
        return of.defined() ? of.narrow(0, at, count) : of;
      };
      memory::MemoryScope scope(memory::Class::Buckets);
      at::Tensor moments[kMoments];
      for (int m = 0; m < kMoments; ++m)
        moments[m] = kept.packed ? unpack(maps_[m], kept.codes[m].part(from + at, count))
                                 : kept.values[m].narrow(0, from + at, count);
      update_span(update, {.p = piece(part.tensors.p),
                           .grad = piece(part.tensors.grad),
                           .states = moments,
                           .low = piece(part.tensors.low)});
      for (int m = 0; kept.packed && m < kMoments; ++m)
        pack(maps_[m], moments[m], kept.codes[m].part(from + at, count));
    }
  }

  Status save(size_t flat, int m, const layout::Range& range,
              const checkpoint::EmitPiece& emit) const {
    const std::string& name = slot_of(flat, range.slot).name;
    const KeptMoments& kept = find(flat, range.slot, range.offset);
    for (int64_t at = 0; at < range.numel; at += kEightBitPiece) {
      const int64_t count = std::min(kEightBitPiece, range.numel - at);
      const int64_t first = range.offset + at, from = first - kept.offset;
      memory::MemoryScope scope(memory::Class::Buckets);
      if (!kept.packed) {
        const at::Tensor host = kept.values[m].narrow(0, from, count).cpu();
        DSJ_TRY_STATUS(emit({moment(m).values, name, first, elements_of(host)}));
        continue;
      }
      const Packed part = kept.codes[m].part(from, count);
      const at::Tensor scales = part.scales.cpu();
      const at::Tensor values = unpack(map_on(moment(m).map, at::kCPU), {part.codes.cpu(), scales});
      DSJ_TRY_STATUS(emit({moment(m).values, name, first, elements_of(values)}));
      DSJ_TRY_STATUS(emit({moment(m).scales, name, first / kEightBitBlock, elements_of(scales)}));
    }
    return {};
  }

  static Status load(const layout::Slot& slot, const KeptMoments& kept, int m,
                     checkpoint::SavedRun& saved) {
    const Moment& of = moment(m);
    const auto elements = saved.elements(of.values, slot.name);
    if (!elements && checkpoint::never_updated(saved)) {
      (kept.packed ? kept.codes[m].scales : kept.values[m]).zero_();
      return {};
    }
    if (elements != slot.numel)
      return bad_input(std::string("the checkpoint has no state \"") + of.values + "\" of \"" +
                           slot.name + "\" that 8-bit AdamW can read",
                       saved.path(),
                       "resume with the optimizer that it was made with, or start a run from the "
                       "exported model");
    // If the checkpoint has the scales, quantizing with them gives the saved codes. Otherwise
    // AdamW's fp32 moments are quantized anew.
    const bool scaled = saved.elements(of.scales, slot.name) == plan::eight_bit_blocks(slot.numel);
    memory::MemoryScope scope(memory::Class::Buckets);
    for (int64_t at = 0; at < kept.numel; at += kEightBitPiece) {
      const int64_t count = std::min(kEightBitPiece, kept.numel - at), first = kept.offset + at;
      const at::Tensor host = at::empty({count}, at::kFloat);
      DSJ_TRY_STATUS(saved.read(of.values, slot.name, first, elements_of(host)));
      if (!kept.packed) {
        kept.values[m].narrow(0, at, count).copy_(host);
        continue;
      }
      const Packed to = kept.codes[m].part(at, count);
      const Packed read{at::empty({count}, at::kByte), at::empty({to.scales.numel()}, at::kFloat)};
      if (scaled) {
        DSJ_TRY_STATUS(
            saved.read(of.scales, slot.name, first / kEightBitBlock, elements_of(read.scales)));
        pack_by(of.map, read.scales, host, read.codes);
      } else {
        pack(map_on(of.map, at::kCPU), host, read);
      }
      to.codes.copy_(read.codes);
      to.scales.copy_(read.scales);
    }
    return {};
  }

  const std::vector<Flat*> flats_;
  const MapThere maps_[kMoments];
  std::vector<std::vector<KeptMoments>> kept_;  ///< [flat], by slot and offset
};

}  // namespace

std::unique_ptr<UpdateMethod> make_eight_bit(const UpdateTarget& target) {
  return std::make_unique<EightBit>(target);
}

}  // namespace dsj::zero
