// The names of an adapter's files and tensors in PEFT's layout.
// Tested by: tests/engine/weights/adapter_test.cc
#pragma once

namespace dsj::weights {

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";
inline constexpr char kAdapterTorchFile[] = "adapter_model.bin";
inline constexpr char kAdapterPrefix[] = "base_model.model.";

}  // namespace dsj::weights
