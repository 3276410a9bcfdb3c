#include "engine/comm/compressed.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"
#include "engine/comm/signs.h"

namespace dsj::comm {
namespace {

/// The layout of a message between a rank and an owner: one scale per vector, then the bits of one
/// chunk of each vector. Padded to words of 8 bytes, because the port carries int64.
class MessageLayout {
 public:
  explicit MessageLayout(std::span<const std::int64_t> chunks) : chunks_(chunks) {
    std::int64_t at = 4 * static_cast<std::int64_t>(chunks.size());
    for (const std::int64_t chunk : chunks) {
      offsets_.push_back(at);
      at += chunk / 8;
    }
    bytes_ = (at + 7) / 8 * 8;
  }
  std::int64_t bytes() const { return bytes_; }
  /// A vector's scale [1] fp32 in `message` [bytes()].
  static at::Tensor scale(const at::Tensor& message, std::size_t vector) {
    return message.narrow(0, 4 * static_cast<std::int64_t>(vector), 4).view(at::kFloat);
  }
  /// A vector's signs [chunk/8] uint8.
  at::Tensor bits(const at::Tensor& message, std::size_t vector) const {
    return message.narrow(0, offsets_[vector], chunks_[vector] / 8);
  }

 private:
  const std::span<const std::int64_t> chunks_;
  std::vector<std::int64_t> offsets_;
  std::int64_t bytes_ = 0;
};

/// [world, bytes], zeroed, because the padding is sent too.
at::Tensor messages(int world, const MessageLayout& layout, at::Device device) {
  return at::zeros({world, layout.bytes()}, at::TensorOptions(device).dtype(at::kByte));
}

/// Adds the mean over ranks, in rank order, of a vector's chunk in the messages `got`. On a CPU it
/// works in tiles, whose sums stay in a core's cache.
void add_mean(const at::Tensor& server, const at::Tensor& got, const MessageLayout& layout,
              std::size_t vector) {
  constexpr std::int64_t kTile = 1 << 14;
  const std::int64_t n = server.numel(), tile = server.is_cpu() ? kTile : n;
  const auto world = static_cast<int>(got.size(0));
  std::vector<at::Tensor> bits, scales;
  for (int from = 0; from < world; ++from) {
    bits.push_back(layout.bits(got.select(0, from), vector));
    scales.push_back(MessageLayout::scale(got.select(0, from), vector));
  }
  for (std::int64_t first = 0; first < n; first += tile) {
    const std::int64_t count = std::min(tile, n - first);
    const at::Tensor mean = at::zeros({count}, server.options());
    for (std::size_t from = 0; from < bits.size(); ++from)
      signs_of(mean).add(mean, bits[from].narrow(0, first / 8, count / 8), scales[from], world);
    server.narrow(0, first, count).add_(mean);
  }
}

at::Tensor words(const at::Tensor& bytes) {
  return bytes.view(-1).view(at::kLong);
}

}  // namespace

std::int64_t compressed_mean_bytes(std::span<const std::int64_t> chunks, int world) {
  return 2 * (world - 1) * MessageLayout(chunks).bytes();
}

void SignMeans::read(std::size_t vector, std::int64_t first, const at::Tensor& out) const {
  const MessageLayout layout(chunks_);
  const std::int64_t chunk = chunks_[vector], n = out.numel();
  DSJ_CHECK(first >= 0 && first + n <= chunk * messages_.size(0));
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t owner = (first + done) / chunk, begin = (first + done) % chunk;
    const std::int64_t count = std::min(chunk - begin, n - done);
    const at::Tensor message = messages_.select(0, owner);
    signs_of(out).read(out.narrow(0, done, count), layout.bits(message, vector), begin,
                       MessageLayout::scale(message, vector));
    done += count;
  }
}

SignMeans compressed_mean(Collectives& collectives, std::span<const ErrorFeedback> vectors,
                          Label label) {
  const int world = collectives.world();
  DSJ_CHECK(world > 1 && !vectors.empty());
  const at::Device device = vectors.front().worker.device();
  SignMeans means;
  for (const ErrorFeedback& vector : vectors) {
    means.chunks_.push_back(vector.server.numel());
    DSJ_CHECK(vector.server.numel() % 8 == 0 &&
              vector.worker.numel() == world * vector.server.numel());
  }
  const MessageLayout layout(means.chunks_);

  const at::Tensor sent = messages(world, layout, device), got = at::empty_like(sent);
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    const at::Tensor& worker = vectors[v].worker;
    const at::Tensor bits = at::empty({worker.numel() / 8}, sent.options());
    const at::Tensor scale = at::empty({1}, worker.options());
    signs_of(worker).compress(worker, bits, scale);
    for (int owner = 0; owner < world; ++owner) {
      const at::Tensor message = sent.select(0, owner);
      const std::int64_t bytes = means.chunks_[v] / 8;
      MessageLayout::scale(message, v).copy_(scale);
      layout.bits(message, v).copy_(bits.narrow(0, owner * bytes, bytes));
    }
  }
  collectives.all_to_all(words(got), words(sent), label)->wait();

  means.messages_ = messages(world, layout, device);
  const at::Tensor own = means.messages_.select(0, collectives.rank());
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    const at::Tensor& server = vectors[v].server;
    add_mean(server, got, layout, v);
    signs_of(server).compress(server, layout.bits(own, v), MessageLayout::scale(own, v));
  }
  collectives.all_gather(words(means.messages_), own.view(at::kLong), label)->wait();
  return means;
}

}  // namespace dsj::comm
