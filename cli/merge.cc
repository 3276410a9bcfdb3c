// dsj merge: adds an adapter to its base model.
#include <cstdio>
#include <string>

#include "cli/check/hub_cache.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "engine/weights/adapter.h"
#include "engine/weights/merge.h"

namespace dsj::cli {
namespace {

/// Says what a directory without an adapter is.
Status is_adapter(Files& files, const std::string& directory) {
  const auto has = [&](const std::string& name) {
    const auto found = files.exists(path_join(directory, name));
    return found && *found;
  };
  const std::string config = weights::kAdapterConfigFile;
  if (has(config)) return {};
  if (has("model/" + config))
    return bad_input("is the output directory of a run, not an adapter", directory,
                     "name its model: " + path_join(directory, "model"));
  if (has("config.json"))
    return bad_input("is a model, not an adapter (adapter_config.json)", directory,
                     "there is nothing to merge if the run trained the whole model");
  return {};
}

Result<weights::Merged> merge(weights::MergeOptions options) {
  PosixFiles files;
  DSJ_TRY_STATUS(is_adapter(files, options.adapter));
  if (options.base.empty()) {
    DSJ_TRY(const auto config, weights::read_adapter_config(files, options.adapter));
    if (config.base.empty())
      return bad_input("adapter_config.json names no base model", options.adapter,
                       "name it: --base DIR");
    options.base = config.base;
  }
  DSJ_TRY(options.base, find_model(options.base, hub_cache_directory()));
  return weights::merge_adapter(files, options);
}

}  // namespace

int run_merge(Arguments args) {
  ArgumentParser parser{
      "Adds a LoRA adapter (PEFT's layout) to its base model and writes a model directory for "
      "programs without adapter support. Sums in fp32, writes the types of the base. An adapter "
      "that "
      "was trained on a base in 4 bits is added to the base as it is in its files.",
      "dsj merge"};
  weights::MergeOptions options;
  std::string format;
  parser
      .option("--adapter", options.adapter,
              "the directory with adapter_config.json and adapter_model.safetensors")
      .required();
  parser.option("--base", options.base,
                "the model directory or hub id; default: the base in adapter_config.json");
  parser.option("--output", options.output, "the merged model, a directory that does not exist yet")
      .required();
  parser.option("--max-shard-bytes", options.shard_bytes_max, "the largest size of a weight file")
      .positive();
  add_format(parser, format);
  if (const auto over = parser.parse(args)) return *over;
  JsonResult result(format);
  const auto merged = merge(options);
  if (!merged) return report("merge", merged.error());
  for (const std::string& name : merged->left_out)
    std::fprintf(stderr, "dsj merge: \"%s\" is not a weight and was left out\n", name.c_str());
  std::printf("%s: %lld tensors, %lld with an adapter added, %lld replaced\n",
              options.output.c_str(), static_cast<long long>(merged->tensors),
              static_cast<long long>(merged->updated), static_cast<long long>(merged->replaced));
  result.print({{"model", options.output},
                {"tensors", merged->tensors},
                {"updated", merged->updated},
                {"replaced", merged->replaced},
                {"leftOut", merged->left_out}});
  return 0;
}

}  // namespace dsj::cli
