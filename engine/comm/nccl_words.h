// Parses NCCL's last error for nccl.cc. Pure. No CUDA headers, so that tests can include it.
// Tested by: tests/engine/comm/nccl_words_test.cc
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dsj::comm {

/// The bytes that NCCL failed to allocate on the GPU; 0 if unknown; unset if it is another error.
inline std::optional<std::int64_t> refused_memory(std::string_view text) {
  for (const std::string_view asked :
       {"Failed to CUDA calloc ", "Failed to CUDA calloc async ", "Failed to CUDA malloc "}) {
    const std::size_t at = text.find(asked);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = text.substr(at + asked.size());
    std::int64_t bytes = 0;
    const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), bytes);
    if (end.ec == std::errc() && bytes > 0) return bytes;
  }
  if (text.contains("out of memory")) return 0;
  return std::nullopt;
}

}  // namespace dsj::comm
