// Vectors as one bit per number and one scale: what a compressed mean sends (compressed.h). A set
// bit is plus. Zero counts as plus, NaN too. The first number's bit is the highest of its byte.
//
// On a CPU these are loops that compilers turn into vectors, over libtorch's threads. On any other
// device, and in tests as their oracle, they are libtorch's operations. Nothing waits for a device.
// Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dsj::comm {

/// The interface to the two. Tensors are contiguous, on one device; x, sum and out are fp32.
class Signs {
 public:
  virtual ~Signs() = default;
  /// x [n], n a multiple of 8: writes bits [n/8] uint8 and scale [1] fp32, which is ||x|| / sqrt(n).
  /// Leaves in x what they do not say: x - scale * sign(x).
  virtual void compress(const at::Tensor& x, const at::Tensor& bits,
                        const at::Tensor& scale) const = 0;
  /// sum [n] += scale / world * sign.
  virtual void add(const at::Tensor& sum, const at::Tensor& bits, const at::Tensor& scale,
                   int world) const = 0;
  /// out [n] = scale * sign, of the signs from number `first` on.
  virtual void read(const at::Tensor& out, const at::Tensor& bits, std::int64_t first,
                    const at::Tensor& scale) const = 0;
};

const Signs& cpu_signs();
const Signs& aten_signs();
inline const Signs& signs_of(const at::Tensor& tensor) {
  return tensor.is_cpu() ? cpu_signs() : aten_signs();
}

}  // namespace dsj::comm
