// XXH3-64 checksums, of a whole or by blocks, against damage, not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace dsj::checkpoint {

uint64_t checksum(std::span<const std::byte> bytes);
uint64_t checksum(std::string_view text);

/// Checksums of a stream's blocks of `block_bytes`; the last may be shorter.
class BlockChecksums {
 public:
  explicit BlockChecksums(int64_t block_bytes);
  ~BlockChecksums();
  BlockChecksums(const BlockChecksums&) = delete;
  BlockChecksums& operator=(const BlockChecksums&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Call it once, at the end.
  std::vector<uint64_t> finish();

 private:
  struct State;
  void close_block();

  const size_t block_bytes_;
  size_t in_block_ = 0;  ///< bytes of the open block
  std::unique_ptr<State> state_;
  std::vector<uint64_t> blocks_;
};

}  // namespace dsj::checkpoint
