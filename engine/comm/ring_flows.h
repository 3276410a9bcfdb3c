// The data flow of one operation through a rank of the TCP ring: which bytes may be sent now, and
// where received bytes belong. Pure; ring.cc moves the bytes. Internal to comm.
// Tested by: tests/engine/comm/contract_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "engine/comm/frame.h"
#include "engine/comm/reduce.h"
#include "engine/comm/slices.h"

namespace dsj::comm {

inline constexpr std::int64_t kRingSendMax = 1 << 20;  // bytes per send()

/// Decides which bytes can be sent now and where to write received bytes.
class Flow {
 public:
  virtual ~Flow() = default;
  virtual bool send_done() const = 0;
  virtual std::span<const char> sendable() const = 0;  ///< empty if there is nothing to send now
  virtual void sent(std::int64_t bytes) = 0;
  virtual bool receive_done() const = 0;
  virtual std::span<char> receivable() = 0;
  virtual void received(std::int64_t bytes) = 0;
};

/// `world` slices in world-1 hops. Hop h sends slice (first - h) and receives slice (first - 1 -
/// h): hop h+1 sends the slice that hop h received.
class Hops : public Flow {
 public:
  Hops(Slices slices, int first) : slices_(std::move(slices)), first_(first) {
    skip_empty(send_hop_, send_offset_, first_);
    skip_empty(receive_hop_, receive_offset_, first_ - 1);
  }

  bool send_done() const final { return send_hop_ == last(); }
  bool receive_done() const final { return receive_hop_ == last(); }

  std::span<const char> sendable() const final {
    if (send_done()) return {};
    const std::span<char> slice = slice_at(first_ - send_hop_);
    std::int64_t limit = static_cast<std::int64_t>(slice.size());
    if (send_hop_ > 0 && send_hop_ - 1 >= receive_hop_) {
      limit = send_hop_ - 1 == receive_hop_ ? receive_offset_ : 0;
    }
    const std::int64_t count = std::min(limit - send_offset_, kRingSendMax);
    if (count <= 0) return {};
    return slice.subspan(static_cast<std::size_t>(send_offset_), static_cast<std::size_t>(count));
  }

  void sent(std::int64_t bytes) final {
    send_offset_ += bytes;
    skip_empty(send_hop_, send_offset_, first_);
  }

 protected:
  /// The rest of the slice that is being received.
  std::span<char> incoming() const {
    return slice_at(first_ - 1 - receive_hop_).subspan(static_cast<std::size_t>(receive_offset_));
  }
  bool last_receive_hop() const { return receive_hop_ == last() - 1; }
  std::int64_t receive_offset() const { return receive_offset_; }
  /// The next `bytes` of incoming() are final and can be sent on.
  void advance(std::int64_t bytes) {
    receive_offset_ += bytes;
    skip_empty(receive_hop_, receive_offset_, first_ - 1);
  }

 private:
  int last() const { return static_cast<int>(slices_.size()) - 1; }
  std::span<char> slice_at(int index) const {
    const int world = static_cast<int>(slices_.size());
    return slices_[static_cast<std::size_t>(((index % world) + world) % world)];
  }
  void skip_empty(int& hop, std::int64_t& offset, int first) const {
    while (hop < last() && offset == static_cast<std::int64_t>(slice_at(first - hop).size())) {
      ++hop;
      offset = 0;
    }
  }

  const Slices slices_;
  const int first_;
  int send_hop_ = 0;
  std::int64_t send_offset_ = 0;
  int receive_hop_ = 0;
  std::int64_t receive_offset_ = 0;
};

class GatherFlow final : public Hops {
 public:
  GatherFlow(Slices slices, int rank) : Hops(std::move(slices), rank) {}
  std::span<char> receivable() override { return incoming(); }
  void received(std::int64_t bytes) override { advance(bytes); }
};

class ReduceFlow final : public Hops {
 public:
  /// The last hop writes its sums to `out`, which may be slice `rank` itself.
  ReduceFlow(Slices slices, int rank, char* out, at::ScalarType dtype, Op op,
             std::span<char> scratch)
      : Hops(std::move(slices), rank - 1),
        out_(out),
        dtype_(dtype),
        op_(op),
        size_(static_cast<std::int64_t>(c10::elementSize(dtype))),
        scratch_(scratch) {}

  std::span<char> receivable() override {
    const std::size_t wanted = std::min(scratch_.size(), incoming().size());
    return scratch_.subspan(fill_, wanted - fill_);
  }

  void received(std::int64_t bytes) override {
    fill_ += static_cast<std::size_t>(bytes);
    const std::int64_t elements = static_cast<std::int64_t>(fill_) / size_;
    if (elements == 0) return;
    char* mine = incoming().data();
    char* target = last_receive_hop() ? out_ + receive_offset() : mine;
    const void* sources[] = {scratch_.data(), mine};
    comm::reduce(target, sources, elements, dtype_, op_);
    const auto used = static_cast<std::size_t>(elements * size_);
    fill_ -= used;
    std::memmove(scratch_.data(), scratch_.data() + used, fill_);  // part of an element may remain
    advance(elements * size_);
  }

 private:
  char* const out_;
  const at::ScalarType dtype_;
  const Op op_;
  const std::int64_t size_;
  const std::span<char> scratch_;
  std::size_t fill_ = 0;
};

/// Sends data from the root along the ring. The rank before the root sends nothing.
class BroadcastFlow final : public Flow {
 public:
  BroadcastFlow(std::span<char> data, int rank, int world, int root) : data_(data) {
    const int distance = (rank - root + world) % world;
    if (distance == 0) received_ = data_.size();
    if (distance == world - 1) sent_ = data_.size();
  }
  bool send_done() const override { return sent_ == data_.size(); }
  bool receive_done() const override { return received_ == data_.size(); }
  std::span<const char> sendable() const override {
    if (sent_ >= received_) return {};
    return data_.subspan(sent_,
                         std::min(received_ - sent_, static_cast<std::size_t>(kRingSendMax)));
  }
  void sent(std::int64_t bytes) override { sent_ += static_cast<std::size_t>(bytes); }
  std::span<char> receivable() override { return data_.subspan(received_); }
  void received(std::int64_t bytes) override { received_ += static_cast<std::size_t>(bytes); }

 private:
  const std::span<char> data_;
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
};

/// Sends bytes to the next rank and receives bytes from the previous one.
class HandOnFlow final : public Flow {
 public:
  HandOnFlow(std::span<const char> out, std::span<char> in) : out_(out), in_(in) {}
  bool send_done() const override { return out_.empty(); }
  bool receive_done() const override { return in_.empty(); }
  std::span<const char> sendable() const override {
    return out_.first(std::min(out_.size(), static_cast<std::size_t>(kRingSendMax)));
  }
  void sent(std::int64_t bytes) override { out_ = out_.subspan(static_cast<std::size_t>(bytes)); }
  std::span<char> receivable() override { return in_; }
  void received(std::int64_t bytes) override { in_ = in_.subspan(static_cast<std::size_t>(bytes)); }

 private:
  std::span<const char> out_;
  std::span<char> in_;
};

/// Sends a Frame to the next rank and receives one from the previous.
class FrameFlow final : public Flow {
 public:
  explicit FrameFlow(const Frame& frame) : mine(frame) {}
  bool send_done() const override { return sent_ == sizeof(Frame); }
  bool receive_done() const override { return received_ == sizeof(Frame); }
  std::span<const char> sendable() const override {
    return std::span(reinterpret_cast<const char*>(&mine), sizeof mine).subspan(sent_);
  }
  void sent(std::int64_t bytes) override { sent_ += static_cast<std::size_t>(bytes); }
  std::span<char> receivable() override {
    return std::span(reinterpret_cast<char*>(&theirs), sizeof theirs).subspan(received_);
  }
  void received(std::int64_t bytes) override { received_ += static_cast<std::size_t>(bytes); }

  const Frame mine;
  Frame theirs;

 private:
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
};

}  // namespace dsj::comm
