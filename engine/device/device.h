// One look-up for everything that depends on the kind of device: the kernels
// (engine/kernels/port.h), and libtorch's kernels for attention and 16-bit products. models/, zero/
// and train/ use a tensor's Device and never check its kind.
//
// A CPU has the tables of engine/kernels. Other devices run libtorch's operations until install()
// provides kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "common/check.h"
#include "engine/device/attention.h"
#include "engine/device/lanes.h"
#include "engine/kernels/port.h"

namespace dsj::device {

/// Queries, keys and values [batch, heads, seq, D], may be views. Without a mask the kernel is
/// causal, with as many queries as keys; with a mask only the mask counts.
struct AttentionInput {
  at::Tensor q, k, v;
  std::optional<at::Tensor> mask;  ///< from Device::mask(): the keys that each query sees
  double scale = 1;                ///< on the scores
};
/// The results of attention's forward that its backward needs.
struct AttentionResult {
  at::Tensor out;                         ///< [batch, heads, seq, D]
  at::Tensor logsumexp;                   ///< [batch, heads, seq or more], fp32
  at::Tensor philox_seed, philox_offset;  ///< CUDA: the kernel's generator state
};

/// One kind of device. Any thread. The methods allocate their results on their arguments' device
/// and do not wait for it.
class Device {
 public:
  virtual ~Device() = default;
  virtual kernels::Port& kernels() const = 0;
  /// The calling thread's current stream on a device.
  virtual kernels::Stream stream(at::Device place) const = 0;
  /// Whether products of this type run natively. DSJ_NATIVE_BF16=0 turns bf16's off on the CPU.
  virtual bool multiplies(at::ScalarType type) const = 0;
  /// The form of attention for heads of this type and size: by rows with the calls of attention.h,
  /// else with the three methods below.
  virtual AttentionChoice attention_choice(at::ScalarType type, int64_t dim) const = 0;
  /// Converts `mask` [queries, keys], 0 or -inf, to attention's form for batch x heads.
  virtual at::Tensor mask(const at::Tensor& mask, int64_t batch, int64_t heads) const = 0;
  /// libtorch's flash attention for this kind of device. It never keeps the scores.
  virtual AttentionResult attention(const AttentionInput& in) const = 0;
  /// The gradients of q, k and v. `dout`, `result.out`: [batch, heads, seq, D], of q's type.
  virtual std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
      const at::Tensor& dout, const AttentionInput& in, const AttentionResult& result) const = 0;
};

/// The Device of a tensor or of an at::Device.
const Device& of(at::Device place);
inline const Device& of(const at::Tensor& tensor) {
  return of(tensor.device());
}

/// libtorch's operations as a port for devices of one kind: the oracle of other ports, and the
/// fallback of PartialPort.
kernels::Port& aten_port(at::DeviceType kind);
/// The CPU's kernels.
kernels::Port& cpu_port();
/// Makes devices of this kind run `port`, which must live until the process ends or another one is
/// installed. Returns the previous one. Do not call it while other threads use such tensors.
kernels::Port& install(at::DeviceType kind, kernels::Port& port);
/// Sets the compute capability of all devices of this kind, 90 for 9.0, for attention_choice().
/// Initially 0, unknown. Call it together with install().
void set_capability(at::DeviceType kind, int capability);

/// A port and its stream for tensors of one device: `On(x).run(kernels::Swiglu{...})`.
class On {
 public:
  explicit On(const at::Tensor& tensor) : On(of(tensor), tensor.device()) {}
  template <typename Op>
  void run(const Op& op) const {
    port_.run(stream_, op);
  }
  int64_t partials(int64_t rows) const { return port_.partials(rows); }

 private:
  On(const Device& device, at::Device place)
      : stream_(device.stream(place)), port_(device.kernels()) {}
  const kernels::Stream stream_;
  kernels::Port& port_;
};

/// A 1-d or 2-d tensor, fp32, bf16 or fp16, as rows, which must be contiguous; an undefined tensor
/// gives data null.
kernels::Rows rows_of(const at::Tensor& tensor);
/// The same, with all elements of a contiguous tensor as one row.
kernels::Rows row_of(const at::Tensor& tensor);
/// All elements of a contiguous tensor of type T, or const T to read them; empty if undefined.
template <typename T>
std::span<T> values_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  DSJ_CHECK(tensor.is_contiguous());
  const auto n = static_cast<size_t>(tensor.numel());
  if constexpr (std::is_const_v<T>)
    return {tensor.const_data_ptr<std::remove_const_t<T>>(), n};
  else
    return {tensor.data_ptr<T>(), n};
}
kernels::Type type_of(at::ScalarType type);

/// Copies host values to a device without waiting for it.
at::Tensor upload(const at::Tensor& host, at::Device place);
/// The start of each row, int32, for kernels that take concatenated rows. Undefined on the CPU,
/// whose attention takes rows one by one.
at::Tensor upload_starts(const std::vector<int64_t>& starts, at::Device place);

/// Copies a device tensor to the host. The copy starts with the object and overlaps with queued
/// work of the device; get() waits for it.
class HostRead {
 public:
  explicit HostRead(const at::Tensor& tensor);
  ~HostRead();
  HostRead(const HostRead&) = delete;
  HostRead& operator=(const HostRead&) = delete;
  const at::Tensor& get();

 private:
  at::Tensor host_;
  const at::Device place_;
  MarkPtr copied_;  ///< null if no copy is in flight
};

}  // namespace dsj::device
