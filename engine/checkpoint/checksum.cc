#include "engine/checkpoint/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace dsj::checkpoint {

struct BlockChecksums::State {
  XXH3_state_t hash;
};

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
uint64_t checksum(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

BlockChecksums::BlockChecksums(int64_t block_bytes)
    : block_bytes_(size_t(block_bytes)), state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->hash);
}
BlockChecksums::~BlockChecksums() = default;

void BlockChecksums::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (in_block_ == 0 && bytes.size() >= block_bytes_) {
      blocks_.push_back(checksum(bytes.first(block_bytes_)));
      bytes = bytes.subspan(block_bytes_);
      continue;
    }
    const auto part = bytes.first(std::min(bytes.size(), block_bytes_ - in_block_));
    XXH3_64bits_update(&state_->hash, part.data(), part.size());
    in_block_ += part.size();
    if (in_block_ == block_bytes_) close_block();
    bytes = bytes.subspan(part.size());
  }
}

void BlockChecksums::close_block() {
  blocks_.push_back(XXH3_64bits_digest(&state_->hash));
  XXH3_64bits_reset(&state_->hash);
  in_block_ = 0;
}

std::vector<uint64_t> BlockChecksums::finish() {
  if (in_block_ > 0) close_block();
  return std::move(blocks_);
}

}  // namespace dsj::checkpoint
