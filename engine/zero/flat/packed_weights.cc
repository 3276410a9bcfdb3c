#include "engine/zero/flat/packed_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "common/check.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/eight_bit.h"
#include "engine/optim/four_bit.h"
#include "engine/zero/flat/flat_views.h"

namespace dsj::zero {
namespace {

using layout::kPackedBlock;
using layout::kPackedGroup;
using memory::Class;
using memory::MemoryScope;

constexpr int64_t kPiece = 1 << 20;  // elements per read; a multiple of the block
constexpr int64_t kGrain = 256;      // blocks
static_assert(kPiece % kPackedBlock == 0 && layout::kUnpackedPiece % kPackedBlock == 0);

constexpr auto kScales = optim::DynamicMap::with_sign;  // map of the second level

void pack(const float* x, int64_t numel, uint8_t* codes, float* scales) {
  at::parallel_for(
      0, (numel + kPackedBlock - 1) / kPackedBlock, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * kPackedBlock;
          const int64_t n = std::min(kPackedBlock, numel - first);
          scales[block] = optim::pack_nf4(x + first, n, n == kPackedBlock, codes + first / 2);
        }
      });
}

}  // namespace

PackedWeights::PackedWeights(const layout::FlatLayout& layout, at::ScalarType type,
                             at::Device device)
    : layout_(layout), type_(type), device_(device), slots_(layout::packed_slots(layout)) {
  if (!device_.is_cpu()) tables_ = tables();
  MemoryScope scope(Class::Parameters);
  codes_ = made(layout.numel() / 2, at::kByte);
  scales_ = made(layout.numel() / kPackedBlock, two_levels() ? at::kByte : at::kFloat);
  if (!two_levels()) return;
  groups_ = made(slots_.back().group + slots_.back().groups, at::kFloat);
  means_ = made(static_cast<int64_t>(slots_.size()), at::kFloat);
}

at::Tensor PackedWeights::made(int64_t numel, at::ScalarType type) const {
  return at::empty({numel}, at::TensorOptions().dtype(type).device(device_));
}

// ---- packing

Status PackedWeights::fill(const Read& read) {
  MemoryScope scope(Class::Buckets);
  int64_t longest = 0;
  for (const auto& slot : slots_) longest = std::max(longest, slot.numel);
  const int64_t piece = std::min(kPiece, longest);
  const at::Tensor staged = at::empty({piece}, at::kFloat);
  const at::Tensor codes = at::empty({(piece + 1) / 2}, at::kByte);
  for (size_t slot = 0; slot < slots_.size(); ++slot)
    DSJ_TRY_STATUS(fill_slot(slot, read, staged, codes));
  return {};
}

Status PackedWeights::fill_slot(size_t index, const Read& read, const at::Tensor& staged,
                                const at::Tensor& codes) {
  const layout::PackedSlot& slot = slots_[index];
  const at::Tensor scales = at::empty({slot.blocks}, at::kFloat);
  for (int64_t done = 0; done < slot.numel; done += kPiece) {
    const int64_t count = std::min(kPiece, slot.numel - done), bytes = (count + 1) / 2;
    DSJ_TRY_STATUS(read(layout_.slots()[index].name, done,
                        {staged.data_ptr<float>(), static_cast<size_t>(count)}));
    pack(staged.const_data_ptr<float>(), count, codes.data_ptr<uint8_t>(),
         scales.data_ptr<float>() + done / kPackedBlock);
    codes_.narrow(0, slot.code + done / 2, bytes).copy_(codes.narrow(0, 0, bytes));
  }
  keep_scales(index, scales);
  return {};
}

void PackedWeights::keep_scales(size_t index, const at::Tensor& scales) {
  const layout::PackedSlot& slot = slots_[index];
  const at::Tensor kept = scales_.narrow(0, slot.block, slot.blocks);
  if (!two_levels()) {
    kept.copy_(scales);
    return;
  }
  const auto* all = scales.const_data_ptr<float>();
  const float mean = optim::mean_of_scales(all, slot.blocks);
  const at::Tensor codes = at::empty({slot.blocks}, at::kByte);
  const at::Tensor groups = at::empty({slot.groups}, at::kFloat);
  for (int64_t group = 0; group < slot.groups; ++group) {
    const int64_t first = group * kPackedGroup;
    groups.data_ptr<float>()[group] =
        optim::pack_scales(kScales(), all + first, std::min(kPackedGroup, slot.blocks - first),
                           mean, codes.data_ptr<uint8_t>() + first);
  }
  kept.copy_(codes);
  groups_.narrow(0, slot.group, slot.groups).copy_(groups);
  means_.select(0, static_cast<int64_t>(index)).fill_(mean);
}

// ---- unpacking

template <typename Unpack>
at::Tensor PackedWeights::unpacked(int first, int count, Unpack unpack) const {
  if (!are_neighbours(layout_, first, count)) return {};
  MemoryScope scope(Class::Buckets);
  const int64_t begin = layout_.slots()[static_cast<size_t>(first)].offset;
  const auto& last = layout_.slots()[static_cast<size_t>(first + count - 1)];
  at::Tensor out = made(last.offset + last.numel - begin, type_);
  for (auto slot = static_cast<size_t>(first); slot < static_cast<size_t>(first + count); ++slot)
    unpack(slot, out.narrow(0, layout_.slots()[slot].offset - begin, slots_[slot].numel));
  return out.view(stacked_shape(layout_, first, count));
}

template <typename T>
void PackedWeights::unpack_here(size_t index, T* out) const {
  const layout::PackedSlot& slot = slots_[index];
  const auto* codes = codes_.const_data_ptr<uint8_t>() + slot.code;
  const auto scale = [&](int64_t block) {
    if (!two_levels()) return scales_.const_data_ptr<float>()[slot.block + block];
    return optim::unpacked_scale(kScales(),
                                 groups_.const_data_ptr<float>()[slot.group + block / kPackedGroup],
                                 means_.const_data_ptr<float>()[index],
                                 scales_.const_data_ptr<uint8_t>()[slot.block + block]);
  };
  at::parallel_for(0, slot.blocks, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      // A block has 16 different numbers: compute and round each once.
      std::array<T, 16> numbers;
      const float of_block = scale(block);
      for (size_t code = 0; code < numbers.size(); ++code)
        numbers[code] = static_cast<T>(optim::kNf4[code] * of_block);
      const int64_t first = block * kPackedBlock;
      const int64_t n = std::min(kPackedBlock, slot.numel - first);
      for (int64_t i = 0; i + 1 < n; i += 2) {
        const uint8_t byte = codes[(first + i) / 2];
        out[first + i] = numbers[byte >> 4];
        out[first + i + 1] = numbers[byte & 15];
      }
      if (n % 2 != 0) out[first + n - 1] = numbers[codes[(first + n - 1) / 2] >> 4];
    }
  });
}

at::Tensor PackedWeights::weight(int first, int count) const {
  if (!device_.is_cpu()) return weight_by_expression(first, count);
  return unpacked(first, count, [&](size_t slot, const at::Tensor& out) {
    switch (type_) {
      case at::kFloat:
        return unpack_here(slot, out.data_ptr<float>());
      case at::kBFloat16:
        return unpack_here(slot, out.data_ptr<at::BFloat16>());
      default:
        DSJ_CHECK(type_ == at::kHalf);
        return unpack_here(slot, out.data_ptr<at::Half>());
    }
  });
}

PackedWeights::Tables PackedWeights::tables() const {
  at::Tensor pairs = at::empty({256, 2}, at::kFloat);
  for (size_t byte = 0; byte < 256; ++byte) {
    pairs.data_ptr<float>()[2 * byte] = optim::kNf4[byte >> 4];
    pairs.data_ptr<float>()[2 * byte + 1] = optim::kNf4[byte & 15];
  }
  const auto& map = kScales().values();
  at::Tensor scales = at::empty({256}, at::kFloat);
  std::ranges::copy(map, scales.data_ptr<float>());
  return {pairs.to(device_), scales.to(device_)};
}

void PackedWeights::unpack_by_expression(size_t index, const at::Tensor& out,
                                         const Tables& tables) const {
  const layout::PackedSlot& slot = slots_[index];
  const int64_t piece = layout::kUnpackedPiece;
  static_assert(layout::kUnpackedPiece % (kPackedBlock * kPackedGroup) == 0);
  for (int64_t done = 0; done < slot.numel; done += piece) {
    const int64_t count = std::min(piece, slot.numel - done), bytes = (count + 1) / 2;
    const int64_t block = done / kPackedBlock;
    const int64_t blocks = (count + kPackedBlock - 1) / kPackedBlock;
    at::Tensor scales = scales_.narrow(0, slot.block + block, blocks);
    if (two_levels()) {
      const int64_t groups = (blocks + kPackedGroup - 1) / kPackedGroup;
      const at::Tensor of_groups = groups_.narrow(0, slot.group + block / kPackedGroup, groups)
                                       .unsqueeze(1)
                                       .expand({groups, kPackedGroup})
                                       .reshape({-1})
                                       .narrow(0, 0, blocks);
      scales = tables.scales.index_select(0, scales.to(at::kInt)).mul_(of_groups);
      scales.add_(means_.select(0, static_cast<int64_t>(index)));
    }
    const at::Tensor codes = codes_.narrow(0, slot.code + done / 2, bytes).to(at::kInt);
    const at::Tensor numbers = tables.pairs.index_select(0, codes).view({-1});
    const int64_t whole = count / kPackedBlock;
    numbers.narrow(0, 0, whole * kPackedBlock)
        .view({whole, kPackedBlock})
        .mul_(scales.narrow(0, 0, whole).unsqueeze(1));
    if (whole < blocks)
      numbers.narrow(0, whole * kPackedBlock, numbers.size(0) - whole * kPackedBlock)
          .mul_(scales.narrow(0, whole, 1));
    out.narrow(0, done, count).copy_(numbers.narrow(0, 0, count));
  }
}

at::Tensor PackedWeights::weight_by_expression(int first, int count) const {
  return unpacked(first, count, [&](size_t slot, const at::Tensor& out) {
    if (!tables_) tables_ = tables();
    unpack_by_expression(slot, out, *tables_);
  });
}

}  // namespace dsj::zero
