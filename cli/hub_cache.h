// Finds a model directory: a path, or a Hugging Face hub id in the local cache. Downloads nothing.
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::cli {

/// Where Hugging Face's tools keep what they downloaded: $HF_HUB_CACHE, $HF_HOME/hub, or
/// ~/.cache/huggingface/hub, the first that is set.
std::string hub_cache_directory();

/// `name` when it is a directory with a config.json; the newest snapshot of refs/main (or the only
/// one) when it is a hub id ("Qwen/Qwen2-0.5B") in `cache`. BadInput otherwise, with what was
/// looked for and how to download it.
Result<std::string> find_model(const std::string& name, const std::string& cache);

}  // namespace dsj::cli
