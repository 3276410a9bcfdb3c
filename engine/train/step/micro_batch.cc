#include "engine/train/step/micro_batch.h"

#include <ATen/ATen.h>

#include "engine/device/device.h"

namespace dsj::train {

models::MicroBatch on_device(const data::Batch& batch, at::Device device, models::TokenPart part) {
  if (batch.is_scored)
    return models::MicroBatch::of_scored(device::upload(at::tensor(batch.input_ids), device),
                                         models::RowBounds(batch.row_lengths, device),
                                         batch.scored);
  if (part.count > 1)
    return models::MicroBatch::part_of(at::tensor(batch.input_ids), at::tensor(batch.labels),
                                       batch.row_lengths, part, device);
  return {device::upload(at::tensor(batch.input_ids), device), at::tensor(batch.labels),
          models::RowBounds(batch.row_lengths, device)};
}

}  // namespace dsj::train
