#include "engine/train/inputs/accelerator.h"

#include "common/log.h"
#include "engine/comm/nccl.h"
#include "engine/cuda/open.h"
#include "engine/device/device.h"
#include "engine/device/host_pages.h"
#include "engine/kernels/kernels.h"

namespace dsj::train {

Result<Place> choose_place(const TrainingArgs& training, int local_rank) {
  const cuda::Wanted wanted = cuda::wanted_of(training.device);
  const cuda::Opened opened = wanted == cuda::Wanted::Cpu ? cuda::Opened{} : cuda::open();
  DSJ_TRY(const cuda::Choice choice, cuda::choose(wanted, opened.found, local_rank));
  if (!choice.gpu) {
    if (choice.is_a_loss) log::warn("training on the CPU: this machine has " + choice.because);
    return Place{at::kCPU, "cpu (" + choice.because + "), kernels " + kernels::table().isa};
  }
  DSJ_TRY_STATUS(opened.plugin->use_device(*choice.gpu));
  comm::provide_nccl(opened.plugin->make_nccl);
  device::provide_pages(at::kCUDA, {opened.plugin->take_pages, opened.plugin->give_pages});
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(*choice.gpu));
  device::install(at::kCUDA, opened.plugin->port(device::aten_port(at::kCUDA)));
  device::set_capability(at::kCUDA, opened.plugin->compute_capability(*choice.gpu));
  return Place{device, device.str() + " (" + choice.because + "), kernels " +
                           device::of(device).kernels().name()};
}

}  // namespace dsj::train
