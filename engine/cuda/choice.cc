#include "engine/cuda/choice.h"

namespace dsj::cuda {
namespace {

constexpr char kOnCpu[] = "to train on the CPU, set training.device to cpu (--device cpu)";

std::unexpected<Error> refused(const std::string& what, const std::string& hint) {
  return fail(ErrorKind::Environment, what, "training.device", hint);
}

std::string counted(int devices) {
  return devices == 1 ? "1 GPU" : std::to_string(devices) + " GPUs";
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace

Wanted wanted_of(const std::optional<std::string>& device) {
  if (device == "cpu") return Wanted::Cpu;
  return device == "cuda" ? Wanted::Cuda : Wanted::Any;
}

Result<Choice> choose(Wanted wanted, const Found& found, int local_rank) {
  if (wanted == Wanted::Cpu) return Choice{.because = "training.device is cpu"};
  if (found.devices == 0) {
    if (wanted == Wanted::Any) return Choice{.because = found.lacking};
    return refused("the job asks for GPUs, and " + found.lacking,
                   std::string("run it where the driver shows a GPU; ") + kOnCpu);
  }
  const auto rank = static_cast<size_t>(local_rank);
  const int capability = rank < found.capabilities.size() ? found.capabilities[rank] : 0;
  if (capability != 0 && capability < kOldestCapability) {
    const std::string what = counted(found.devices) + ", and number " + std::to_string(local_rank) +
                             " has compute capability " + capability_text(capability) +
                             ": the kernels need " + capability_text(kOldestCapability) +
                             " or more";
    if (wanted == Wanted::Any) return Choice{.because = what, .is_a_loss = true};
    return refused("this machine has " + what, std::string("use a newer GPU; ") + kOnCpu);
  }
  if (!found.plugin_problem.empty()) {
    const std::string what = counted(found.devices) + ", but " + found.plugin_problem;
    if (wanted == Wanted::Any && !found.plugin_there)
      return Choice{.because = what, .is_a_loss = true};
    return refused("this machine has " + what, std::string("fix this; ") + kOnCpu);
  }
  if (local_rank >= found.devices)
    return refused("local rank " + std::to_string(local_rank) +
                       " has no GPU of its own: this machine has " + counted(found.devices),
                   "set spec.workers.slotsPerWorker (--nproc_per_node) to " +
                       std::to_string(found.devices) +
                       " (with MIG a process sees one part of a GPU only); " + kOnCpu);
  return Choice{.gpu = local_rank, .because = counted(found.devices) + " here"};
}

}  // namespace dsj::cuda
