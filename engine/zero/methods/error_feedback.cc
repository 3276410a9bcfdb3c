#include "engine/zero/methods/error_feedback.h"

#include <ATen/ATen.h>

#include <utility>

#include "engine/memory/counting_allocator.h"

namespace dsj::zero {
namespace {

constexpr char kWorker[] = "worker_error", kServer[] = "server_error", kRanks[] = "error_feedback",
               kAll[] = "ranks";

}  // namespace

std::span<float> elements_of(const at::Tensor& host) {
  return {host.data_ptr<float>(), static_cast<size_t>(host.numel())};
}

ErrorFeedback::ErrorFeedback(plan::OneBitPlan plan, comm::Collectives& collectives,
                             at::Device device)
    : plan_(std::move(plan)), collectives_(collectives), device_(device) {}

void ErrorFeedback::allocate() {
  memory::MemoryScope scope(memory::Class::Optimizer);
  const auto options = at::TensorOptions(device_).dtype(at::kFloat);
  for (const auto& vector : plan_.vectors)
    errors_.push_back({at::zeros({vector.padded(collectives_.world())}, options),
                       at::zeros({vector.chunk}, options)});
}

at::Tensor ErrorFeedback::worker(size_t flat, size_t slot, int64_t first, int64_t numel) {
  if (errors_.empty()) allocate();
  const auto [vector, offset] = plan_.places[flat][slot];
  return errors_[static_cast<size_t>(vector)].worker.narrow(0, offset + first, numel);
}

comm::SignMeans ErrorFeedback::mean() {
  return comm::compressed_mean(collectives_, errors_, {comm::Traffic::Gradients, "momentum"});
}

void ErrorFeedback::read(const comm::SignMeans& means, size_t flat, size_t slot, int64_t first,
                         const at::Tensor& out) const {
  const auto [vector, offset] = plan_.places[flat][slot];
  means.read(static_cast<size_t>(vector), offset + first, out);
}

int64_t ErrorFeedback::padding(size_t vector) const {
  return plan_.vectors[vector].padding(collectives_.world());
}

at::Tensor ErrorFeedback::worker_padding(size_t vector) {
  if (errors_.empty()) allocate();
  return errors_[vector].worker.narrow(0, plan_.vectors[vector].numel, padding(vector));
}

void ErrorFeedback::read_padding(const comm::SignMeans& means, size_t vector,
                                 const at::Tensor& out) const {
  means.read(vector, plan_.vectors[vector].numel, out);
}

Status ErrorFeedback::for_pieces(const checkpoint::EmitPiece& emit) const {
  if (errors_.empty()) return {};
  const int64_t rank = collectives_.rank();
  const float there = 1;
  DSJ_TRY_STATUS(emit({kRanks, kAll, rank, std::span(&there, 1)}));
  for (size_t v = 0; v < errors_.size(); ++v) {
    const std::string& name = plan_.vectors[v].name;
    const at::Tensor worker = errors_[v].worker.cpu(), server = errors_[v].server.cpu();
    DSJ_TRY_STATUS(emit({kWorker, name, rank * worker.numel(), elements_of(worker)}));
    DSJ_TRY_STATUS(emit({kServer, name, rank * server.numel(), elements_of(server)}));
  }
  return {};
}

void ErrorFeedback::add_extents(std::vector<checkpoint::Extent>& extents) const {
  if (errors_.empty()) return;
  const int64_t world = collectives_.world();
  extents.push_back({kRanks, kAll, world});
  for (size_t v = 0; v < errors_.size(); ++v) {
    const std::string& name = plan_.vectors[v].name;
    extents.push_back({kWorker, name, world * errors_[v].worker.numel()});
    extents.push_back({kServer, name, world * errors_[v].server.numel()});
  }
}

Status ErrorFeedback::restore(checkpoint::SavedRun& saved) {
  const int64_t rank = collectives_.rank(), world = collectives_.world();
  errors_.clear();
  const bool some = saved.elements(kRanks, kAll).has_value();
  bool same = true;
  for (const auto& vector : plan_.vectors) {
    same &= saved.elements(kWorker, vector.name) == world * world * vector.chunk &&
            saved.elements(kServer, vector.name) == world * vector.chunk;
  }
  dropped_ = some && !same;
  if (!some || !same) return {};
  allocate();
  for (size_t v = 0; v < errors_.size(); ++v) {
    const std::string& name = plan_.vectors[v].name;
    for (const auto& [state, error] :
         {std::pair{kWorker, &errors_[v].worker}, std::pair{kServer, &errors_[v].server}}) {
      const at::Tensor host = at::empty({error->numel()}, at::kFloat);
      DSJ_TRY_STATUS(saved.read(state, name, rank * host.numel(), elements_of(host)));
      error->copy_(host);
    }
  }
  return {};
}

}  // namespace dsj::zero
