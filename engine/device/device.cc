#include "engine/device/device.h"

#include <ATen/ATen.h>

#include <limits>

#include <array>
#include <atomic>
#include <exception>

#include "common/check.h"
#include "common/cpu.h"
#include "engine/device/host_pages.h"

namespace dsj::device {
namespace {

/// The ports of install(), by kind of device.
std::array<std::atomic<kernels::Port*>, kDeviceKinds> installed;
std::array<std::atomic<int>, kDeviceKinds> capabilities;

kernels::Port& port_of(at::DeviceType kind) {
  auto& port = installed[static_cast<size_t>(kind)];
  if (!port) port = kind == at::kCPU ? &cpu_port() : &aten_port(kind);
  return *port;
}

class Cpu final : public Device {
 public:
  kernels::Port& kernels() const override { return port_of(at::kCPU); }
  kernels::Stream stream(at::Device) const override { return {}; }
  bool multiplies(at::ScalarType type) const override {
    return type == at::kFloat || (type == at::kBFloat16 && cpu_multiplies_bf16());
  }
  AttentionChoice attention_choice(at::ScalarType, int64_t) const override {
    return {false, "the CPU's kernel takes a run of rows of one length"};
  }
  at::Tensor mask(const at::Tensor& mask, int64_t, int64_t) const override { return mask; }
  AttentionResult attention(const AttentionInput& in) const override {
    auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        in.q, in.k, in.v, 0.0, /*is_causal=*/!in.mask, in.mask, in.scale);
    return {out, logsumexp, {}, {}};
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
      const at::Tensor& dout, const AttentionInput& in,
      const AttentionResult& result) const override {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dout, in.q, in.k, in.v, result.out, result.logsumexp, 0.0, !in.mask, in.mask, in.scale);
  }
};

/// CUDA, and any other device with libtorch's flash and memory-efficient attention kernels.
class Accelerator final : public Device {
 public:
  explicit Accelerator(at::DeviceType kind) : kind_(kind) {}
  /// The kernel loads 16 bytes at a time, so heads [batch, heads, seq, D] of another size get zeros
  /// at their end. These change neither scores nor results. In memory a token's heads are adjacent:
  /// in 16 bits the kernel's backward takes that for granted of `out`.
  static at::Tensor aligned(const at::Tensor& heads) {
    const int64_t each = 16 / static_cast<int64_t>(heads.element_size()), dim = heads.size(3);
    if (dim % each == 0) return heads;
    const at::Tensor wide = at::zeros(
        {heads.size(0), heads.size(2), heads.size(1), dim + each - dim % each}, heads.options());
    wide.narrow(3, 0, dim).copy_(heads.transpose(1, 2));
    return wide.transpose(1, 2);
  }
  kernels::Port& kernels() const override { return port_of(kind_); }
  kernels::Stream stream(at::Device place) const override {
    Streams& lanes = streams(place);
    return lanes.native(lanes.current());
  }
  bool multiplies(at::ScalarType) const override { return true; }
  AttentionChoice attention_choice(at::ScalarType type, int64_t dim) const override {
    return choose_attention(type, dim, capabilities[static_cast<size_t>(kind_)]);
  }
  /// The kernel needs rows aligned to 16 elements and a mask per head (a view).
  at::Tensor mask(const at::Tensor& mask, int64_t batch, int64_t heads) const override {
    const int64_t queries = mask.size(0), keys = mask.size(1), padded = (keys + 15) / 16 * 16;
    at::Tensor aligned = at::zeros({queries, padded}, mask.options()).narrow(1, 0, keys);
    aligned.copy_(mask);
    return aligned.expand({batch, heads, queries, keys});
  }
  AttentionResult attention(const AttentionInput& in) const override {
    auto [out, logsumexp, seed, offset] = at::_scaled_dot_product_efficient_attention(
        aligned(in.q), aligned(in.k), aligned(in.v), in.mask, /*compute_log_sumexp=*/true, 0.0,
        /*is_causal=*/!in.mask, in.scale);
    return {out.narrow(-1, 0, in.v.size(-1)), logsumexp, seed, offset};
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
      const at::Tensor& dout, const AttentionInput& in,
      const AttentionResult& result) const override {
    auto [dq, dk, dv, dmask] = at::_scaled_dot_product_efficient_attention_backward(
        aligned(dout), aligned(in.q), aligned(in.k), aligned(in.v), in.mask.value_or(at::Tensor()),
        aligned(result.out), result.logsumexp, result.philox_seed, result.philox_offset, 0.0,
        {true, true, true, false}, !in.mask, in.scale);
    return {dq.narrow(-1, 0, in.q.size(-1)), dk.narrow(-1, 0, in.k.size(-1)),
            dv.narrow(-1, 0, in.v.size(-1))};
  }

 private:
  const at::DeviceType kind_;
};

template <size_t... kind>
std::array<Accelerator, kDeviceKinds> accelerators(std::index_sequence<kind...>) {
  return {Accelerator(static_cast<at::DeviceType>(kind))...};
}

}  // namespace

const Device& of(at::Device place) {
  static const Cpu cpu;
  static const auto others = accelerators(std::make_index_sequence<kDeviceKinds>());
  if (place.is_cpu()) return cpu;
  return others[static_cast<size_t>(place.type())];
}

kernels::Port& install(at::DeviceType kind, kernels::Port& port) {
  kernels::Port& before = port_of(kind);
  installed[static_cast<size_t>(kind)] = &port;
  return before;
}

void set_capability(at::DeviceType kind, int capability) {
  capabilities[static_cast<size_t>(kind)] = capability;
}

kernels::Type type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::Type::F32;
    case at::kBFloat16:
      return kernels::Type::BF16;
    case at::kHalf:
      return kernels::Type::F16;
    default:
      DSJ_CHECK(false, "no kernels of type %s", at::toString(type));
  }
}

kernels::Rows rows_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.dim() == 1) return row_of(tensor);
  DSJ_CHECK(tensor.dim() == 2 && (tensor.stride(1) == 1 || tensor.size(1) <= 1));
  return {tensor.data_ptr(), type_of(tensor.scalar_type()), tensor.size(0), tensor.size(1),
          tensor.stride(0)};
}

kernels::Rows row_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  DSJ_CHECK(tensor.is_contiguous());
  return {tensor.data_ptr(), type_of(tensor.scalar_type()), 1, tensor.numel(), tensor.numel()};
}

at::Tensor upload(const at::Tensor& host, at::Device place) {
  return host.to(place, host.scalar_type(), /*non_blocking=*/true);
}

at::Tensor upload_starts(const std::vector<int64_t>& starts, at::Device place) {
  if (place.is_cpu()) return {};
  DSJ_CHECK(starts.back() <= std::numeric_limits<int32_t>::max());
  return upload(at::tensor(starts, at::kLong).to(at::kInt), place);
}

HostRead::HostRead(const at::Tensor& tensor) : host_(tensor), place_(tensor.device()) {
  if (place_.is_cpu()) return;
  host_ = host_memory(tensor.sizes(), tensor.scalar_type(), place_);
  host_.copy_(tensor, /*non_blocking=*/true);
  Streams& lanes = streams(place_);
  copied_ = lanes.record(lanes.current());
}

HostRead::~HostRead() {
  if (!copied_) return;
  try {
    streams(place_).wait(*copied_);  // the copy writes into host_
  } catch (const std::exception&) {
    // The device has failed, so nothing writes any more. The next wait reports it.
  }
}

const at::Tensor& HostRead::get() {
  if (copied_) streams(place_).wait(*copied_);
  copied_.reset();
  return host_;
}

}  // namespace dsj::device
