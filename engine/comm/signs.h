// Vectors as one bit per number and one scale, as a compressed mean sends them (compressed.h). A
// set bit means plus; zero and NaN count as plus. The first number is the highest bit of its byte.
//
// On a CPU these are vectorised loops on libtorch's threads. On other devices, and as the tests'
// oracle, they are libtorch operations. Nothing waits for a device.
// Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dsj::comm {

/// Interface of the two implementations. Tensors are contiguous, on one device; floats are fp32.
class Signs {
 public:
  virtual ~Signs() = default;
  /// x [n], n a multiple of 8: writes bits [n/8] uint8 and scale [1] fp32, which is ||x|| /
  /// sqrt(n). Replaces x by the compression error x - scale * sign(x).
  virtual void compress(const at::Tensor& x, const at::Tensor& bits,
                        const at::Tensor& scale) const = 0;
  /// sum [n] += scale / world * sign.
  virtual void add(const at::Tensor& sum, const at::Tensor& bits, const at::Tensor& scale,
                   int world) const = 0;
  /// out [n] = scale * sign, for the signs from number `first` on.
  virtual void read(const at::Tensor& out, const at::Tensor& bits, std::int64_t first,
                    const at::Tensor& scale) const = 0;
};

const Signs& cpu_signs();
const Signs& aten_signs();
inline const Signs& signs_of(const at::Tensor& tensor) {
  return tensor.is_cpu() ? cpu_signs() : aten_signs();
}

}  // namespace dsj::comm
