// Finds a model directory by its path, or by its Hugging Face hub id in the local cache.
// Downloads nothing.
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::cli {

/// The directory of Hugging Face's downloads: $HF_HUB_CACHE (older names: $HUGGINGFACE_HUB_CACHE,
/// $TRANSFORMERS_CACHE), else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
/// ~/.cache/huggingface/hub.
std::string hub_cache_directory();

/// `name` if it is a directory with a config.json. For a hub id ("Qwen/Qwen2-0.5B") in `cache`,
/// or a model's folder of a cache: the snapshot of refs/main, or the only one. Errors: BadInput
/// otherwise, with the places that were searched and how to download it, or what the directory
/// is instead.
Result<std::string> find_model(const std::string& name, const std::string& cache);

}  // namespace dsj::cli
