#include "engine/zero/storage/layer_inputs.h"

#include <ATen/ATen.h>

#include <array>
#include <vector>

#include "common/check.h"
#include "engine/aio/scratch.h"
#include "engine/device/host_pages.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/storage/scalar_type.h"
#include "engine/zero/storage/storage_error.h"

namespace dsj::zero {
namespace {

constexpr char kKey[] = "activation_checkpointing.cpu_checkpointing";
constexpr char kFolder[] = "layer_inputs";

class InHost final : public LayerInputs {
 public:
  InHost(int64_t layers, int64_t bytes, at::Device device)
      : bytes_(bytes), device_(device), places_(layers), inputs_(layers) {}

  void put(int layer, const at::Tensor& x) override {
    DSJ_CHECK(static_cast<int64_t>(x.nbytes()) <= bytes_);
    at::Tensor& place = places_[layer];
    if (!place.defined()) {  // allocated once: a copy may still be using it
      const memory::MemoryScope scope(memory::Class::Host);
      place = device::host_memory({bytes_}, at::kByte, device_);
    }
    inputs_[layer] =
        place.narrow(0, 0, static_cast<int64_t>(x.nbytes())).view(x.scalar_type()).view(x.sizes());
    inputs_[layer].copy_(x, /*non_blocking=*/true);  // the lane keeps the order of copies
  }

  at::Tensor take(int layer, int) override {
    const at::Tensor& input = inputs_[layer];
    return at::empty(input.sizes(), input.options().device(device_))
        .copy_(input, /*non_blocking=*/true);
  }

 private:
  const int64_t bytes_;
  const at::Device device_;
  std::vector<at::Tensor> places_;  ///< [layer]: bytes
  std::vector<at::Tensor> inputs_;  ///< [layer]: the last input, a view of its place
};

class InFile final : public LayerInputs {
 public:
  InFile(std::unique_ptr<aio::BlockFile> file, int64_t layers, int64_t place, std::string key)
      : place_(place), key_(std::move(key)), shapes_(layers), file_(std::move(file)) {
    DSJ_CHECK(place % aio::kAlign == 0 && file_->size() >= layers * place);
  }

  void put(int layer, const at::Tensor& x) override {
    if (Slot* old = find(layer)) settle(*old);
    Slot& slot = other_than(nullptr);
    make_room(slot, static_cast<int64_t>(x.nbytes()));
    shapes_[layer] = {x.sizes().vec(), x.options()};
    slot.layer = layer;
    view(slot).copy_(x);
    slot.state = State::Writing;
    slot.age = ++clock_;
    slot.ticket = file_->write(layer * place_, bytes_of(slot));
  }

  at::Tensor take(int layer, int next) override {
    for (Slot& slot : slots_)
      if (slot.state == State::Held) slot.state = State::Free;
    Slot* slot = find(layer);
    if (!slot) {
      slot = &other_than(nullptr);
      start_read(*slot, layer);
    }
    finish(*slot);  // waits for its read or write; after either the bytes are in memory
    slot->state = State::Held;
    if (next >= 0 && !find(next)) start_read(other_than(slot), next);
    return view(*slot);
  }

 private:
  enum class State { Free, Reading, Held, Writing };
  struct Slot {
    State state = State::Free;
    int layer = -1;
    aio::Ticket ticket = 0;
    int64_t age = 0;
    at::Tensor memory;  ///< starts at an aligned address
  };
  struct Shape {
    std::vector<int64_t> sizes;
    at::TensorOptions options;
    int64_t bytes() const {
      int64_t numel = 1;
      for (const int64_t size : sizes) numel *= size;
      return numel * static_cast<int64_t>(options.dtype().itemsize());
    }
  };

  /// The slot that has a layer's bytes or is reading them.
  Slot* find(int layer) {
    for (Slot& slot : slots_)
      if (slot.state != State::Free && slot.layer == layer) return &slot;
    return nullptr;
  }
  void finish(const Slot& slot) {
    if (slot.state != State::Reading && slot.state != State::Writing) return;
    const Status done = file_->wait(slot.ticket);
    if (done) return;
    Error error = done.error();
    error.message = error.where + ": " + error.message;
    error.where = key_;
    throw StorageError(error);
  }
  void settle(Slot& slot) {
    finish(slot);
    slot.state = State::Free;
  }
  /// Frees a slot other than `taken`: the oldest, because its wait is the shortest.
  Slot& other_than(const Slot* taken) {
    Slot* best = nullptr;
    for (Slot& slot : slots_) {
      if (&slot == taken) continue;
      if (!best || slot.age < best->age) best = &slot;
    }
    settle(*best);
    return *best;
  }
  void make_room(Slot& slot, int64_t bytes) {
    const int64_t needed = layer_input_place(bytes);
    DSJ_CHECK(needed <= place_);
    if (slot.memory.defined() && slot.memory.numel() >= needed) return;
    const memory::MemoryScope scope(memory::Class::Host);
    slot.memory.reset();
    const at::Tensor all = at::empty({needed + aio::kAlign}, at::kByte);
    const auto address = reinterpret_cast<uintptr_t>(all.data_ptr());
    const auto skipped = static_cast<int64_t>((aio::kAlign - address % aio::kAlign) % aio::kAlign);
    slot.memory = all.narrow(0, skipped, needed);
  }
  void start_read(Slot& slot, int layer) {
    DSJ_CHECK(!shapes_[layer].sizes.empty(), "layer %d has no input", layer);
    make_room(slot, shapes_[layer].bytes());
    slot.layer = layer;
    slot.state = State::Reading;
    slot.age = ++clock_;
    slot.ticket = file_->read(layer * place_, bytes_of(slot));
  }
  std::span<std::byte> bytes_of(const Slot& slot) const {
    return {reinterpret_cast<std::byte*>(slot.memory.data_ptr()),
            static_cast<size_t>(layer_input_place(shapes_[slot.layer].bytes()))};
  }
  at::Tensor view(const Slot& slot) const {
    const Shape& shape = shapes_[slot.layer];
    return slot.memory.narrow(0, 0, shape.bytes())
        .view(c10::typeMetaToScalarType(shape.options.dtype()))
        .view(shape.sizes);
  }

  const int64_t place_;
  const std::string key_;
  std::vector<Shape> shapes_;  ///< [layer]: of the last input
  std::array<Slot, 2> slots_;
  int64_t clock_ = 0;
  std::unique_ptr<aio::BlockFile> file_;  ///< destroyed first: waits for I/O in flight
};

/// Also owns the directory of the file.
class InScratch final : public LayerInputs {
 public:
  InScratch(std::unique_ptr<aio::Scratch> scratch, std::unique_ptr<LayerInputs> inputs)
      : scratch_(std::move(scratch)), inputs_(std::move(inputs)) {}
  void put(int layer, const at::Tensor& x) override { inputs_->put(layer, x); }
  at::Tensor take(int layer, int next) override { return inputs_->take(layer, next); }

 private:
  std::unique_ptr<aio::Scratch> scratch_;
  std::unique_ptr<LayerInputs> inputs_;
};

std::string root_of(const dsconfig::Offload& offload, const std::string& output_dir) {
  std::string below = output_dir;
  if (offload.optimizer.device == dsconfig::OffloadDevice::Nvme)
    below = offload.optimizer.nvme_path;
  if (offload.param.device == dsconfig::OffloadDevice::Nvme) below = offload.param.nvme_path;
  return below + "/" + kFolder;
}

}  // namespace

int64_t layer_input_place(int64_t bytes) {
  return (bytes + aio::kAlign - 1) / aio::kAlign * aio::kAlign;
}

std::unique_ptr<LayerInputs> layer_inputs_in_host(int64_t layers, int64_t bytes,
                                                  at::Device device) {
  return std::make_unique<InHost>(layers, bytes, device);
}

std::unique_ptr<LayerInputs> layer_inputs_in_file(std::unique_ptr<aio::BlockFile> file,
                                                  int64_t layers, int64_t place,
                                                  const std::string& key) {
  return std::make_unique<InFile>(std::move(file), layers, place, key);
}

std::unique_ptr<LayerInputs> make_layer_inputs(const layout::ModelConfig& model,
                                               const dsconfig::ResolvedConfig& config,
                                               const LayerInputsRoom& room,
                                               const OffloadHost& host) {
  const int64_t bytes = room.tokens * model.hidden_size *
                        static_cast<int64_t>(c10::elementSize(scalar_type(config.precision)));
  if (!room.device.is_cpu()) return layer_inputs_in_host(model.num_layers, bytes, room.device);
  const int64_t place = layer_input_place(bytes);
  const std::string root = root_of(config.offload, room.output_dir);
  auto scratch = value_or_throw(aio::Scratch::make(
      root, {.job = host.job, .attempt = host.attempt, .rank = room.rank}, kKey));
  for (const auto& warning : scratch->warnings())
    if (host.warn) host.warn(warning);
  const auto& aio = config.offload.aio;
  auto created = value_or_throw(scratch->create("inputs.swap", model.num_layers * place,
                                                {.block_size = aio.block_size,
                                                 .queue_depth = static_cast<int>(aio.queue_depth),
                                                 .thread_count = static_cast<int>(aio.thread_count),
                                                 .single_submit = aio.single_submit,
                                                 .overlap_events = aio.overlap_events}));
  if (host.note && room.rank == 0) {
    std::string text = "layer inputs: up to " + std::to_string(model.num_layers * place) +
                       " bytes per rank under " + root + " by " + created.file->implementation();
    for (const auto& reason : created.passed_over) text += "; not " + reason;
    host.note(text);
  }
  return std::make_unique<InScratch>(
      std::move(scratch),
      layer_inputs_in_file(std::move(created.file), model.num_layers, place, kKey));
}

}  // namespace dsj::zero
