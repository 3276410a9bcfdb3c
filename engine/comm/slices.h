// The bytes of tensors, cut into one slice per rank. Internal to comm.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <span>
#include <vector>

namespace dsj::comm {

using Slices = std::vector<std::span<char>>;

inline std::span<char> bytes_of(const at::Tensor& tensor) {
  return {static_cast<char*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Cuts `data` into `world` slices of whole elements. If the elements do not divide evenly, the
/// last slices are shorter or empty.
inline Slices cut(std::span<char> data, int world, std::size_t element) {
  const std::size_t elements = data.size() / element;
  const auto parts = static_cast<std::size_t>(world);
  const std::size_t each = (elements + parts - 1) / parts * element;
  Slices slices;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = std::min(i * each, data.size());
    slices.push_back(data.subspan(begin, std::min(each, data.size() - begin)));
  }
  return slices;
}

}  // namespace dsj::comm
