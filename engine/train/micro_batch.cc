#include "engine/train/micro_batch.h"

#include <ATen/ATen.h>

#include "engine/device/device.h"

namespace dsj::train {

models::MicroBatch on_device(const data::Batch& batch, at::Device device) {
  return {device::upload(at::tensor(batch.input_ids), device), at::tensor(batch.labels),
          models::RowBounds(batch.row_lengths, device)};
}

}  // namespace dsj::train
