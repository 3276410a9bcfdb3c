// offload_optimizer, offload_param, sub_group_size and the section aio, resolved. Plain data with
// DeepSpeed 0.19's defaults.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace dsj::dsconfig {

enum class OffloadDevice { None, Cpu, Nvme };

struct OffloadOptimizer {
  OffloadDevice device = OffloadDevice::None;  ///< None also at a stage without offload
  std::string nvme_path;
  int64_t buffer_count = 4;  ///< NVMe: staging buffers of sub_group_size elements
  bool pin_memory = true;
  bool pipeline_read = false;   ///< NVMe: reads the next tile during the update
  bool pipeline_write = false;  ///< NVMe: writes the previous tile during the update
  double ratio = 1.0;           ///< stage 3: share of the elements to offload
};

struct OffloadParam {
  OffloadDevice device = OffloadDevice::None;
  std::string nvme_path;
  int64_t buffer_count = 5;            ///< NVMe: staging buffers of buffer_size elements
  int64_t buffer_size = 100'000'000;   ///< elements
  int64_t max_in_cpu = 1'000'000'000;  ///< NVMe: elements of this rank that stay in host memory
  bool pin_memory = true;
};

/// The file I/O of NVMe offload (engine/aio/block_file.h).
struct Aio {
  int64_t block_size = 1 << 20;
  int64_t queue_depth = 8, thread_count = 1;
  bool single_submit = false, overlap_events = true;
};

struct Offload {
  OffloadOptimizer optimizer;
  OffloadParam param;
  int64_t sub_group_size = 1'000'000'000;  ///< elements updated at a time on NVMe
  Aio aio;

  bool any() const {
    return optimizer.device != OffloadDevice::None || param.device != OffloadDevice::None;
  }
  bool nvme() const {
    return optimizer.device == OffloadDevice::Nvme || param.device == OffloadDevice::Nvme;
  }
};

const char* name_of(OffloadDevice device);
/// Only what is enabled; an empty object without offload.
nlohmann::json to_json(const Offload& offload);

}  // namespace dsj::dsconfig
