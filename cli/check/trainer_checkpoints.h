// Checkpoints that Hugging Face's Trainer wrote into an output directory: OUTPUT/checkpoint-N.
#pragma once

#include <string>

namespace dsj::cli {

/// The path of the one with the largest N; empty if there is none, or no such directory.
std::string newest_trainer_checkpoint(const std::string& output_dir);

}  // namespace dsj::cli
