// Maps the arguments of a torchrun line to fields and back. Internal to jobspec; other rooms call
// place_of() (job.h).
// Tested by: tests/job/spec/arguments_test.cc
#pragma once

#include <map>
#include <string>

namespace dsj::jobspec {

/// The source of a job that comes from a command line.
inline constexpr char kCommandLine[] = "command line";

/// "per_device_train_batch_size" → "perDeviceTrainBatchSize", aliases included.
const std::map<std::string, std::string>& training_names();

/// "spec.training.learningRate" → "--learning_rate". Empty if no argument sets the field.
std::string argument_of(const std::string& path);

/// `text` with arguments instead of the manifest's fields: "give evalDataPath" → "give
/// --eval_data_path". Only camelCase words and words after "training." are names of fields.
std::string in_arguments(const std::string& text);

}  // namespace dsj::jobspec
