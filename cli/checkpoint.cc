// dsj checkpoint show|import|export: what is in a checkpoint of ours or of DeepSpeed, one of
// DeepSpeed's as one of ours, the weights of either.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/checkpoint_found.h"
#include "cli/hub_cache.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/text.h"
#include "engine/checkpoint/reader.h"
#include "engine/deepspeed/convert.h"
#include "job/contract.h"
#include "job/layout/units.h"

namespace dsj::cli {
namespace {

constexpr char kUniversal[] = "of a directory with \"latest\" and \"latest_universal\", the latter";

void warn(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "dsj checkpoint: %s\n", note.c_str());
}

int run_show(Arguments args) {
  ArgumentParser parser{
      "Shows what is in a checkpoint of ours or of DeepSpeed. It only reads. Exit code: 0, 1 when "
      "one is damaged, 2 when "
      "there is none.",
      "dsj checkpoint show"};
  std::string path, output = "text";
  bool universal = false, verify = true;
  parser
      .option("DIR", path,
              "a run's output directory, one step-<S> of its checkpoints, a DeepSpeed directory or "
              "one tag in it")
      .required();
  parser.option("-o,--output", output, "text or json").one_of({"text", "json"});
  parser.flag("--universal", universal, kUniversal);
  parser.flag("--verify,!--no-verify", verify,
              "read every byte and check it (default), or only what describes it");
  if (const auto over = parser.parse(args)) return *over;
  PosixFiles files;
  const auto found = find_checkpoints(files, path);
  if (!found) return report("checkpoint show", found.error());
  nlohmann::json all = nlohmann::json::array();
  bool damaged = false;
  for (const std::string& one : found->paths) {
    const FoundCheckpoint described = found->kind == CheckpointPath::Kind::Ours
                                          ? describe_ours(files, one, verify)
                                          : describe_deepspeeds(files, one, universal, verify);
    damaged = damaged || described.damage.has_value();
    all.push_back(to_json(described));
    if (output == "text") std::fputs(to_text(described).c_str(), stdout);
  }
  if (output == "json")
    std::puts(all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return damaged ? 1 : 0;
}

int run_import_checkpoint(Arguments args) {
  ArgumentParser parser{
      "Makes a checkpoint of ours of one of DeepSpeed: ZeRO stages 0 to 3, universal; fp32, bf16, "
      "fp16; any number of "
      "ranks. A run with this output directory goes on from it, at any world size and stage.",
      "dsj checkpoint import"};
  std::string from, out;
  bool universal = false;
  parser.option("DS_DIR", from, "the DeepSpeed directory with \"latest\", or one tag in it")
      .required();
  parser.option("OUT", out, "the output directory of the run to come").required();
  parser.flag("--universal", universal, kUniversal);
  if (const auto over = parser.parse(args)) return *over;
  PosixFiles files;
  auto opened = deepspeed::Checkpoint::open(files, from, {.universal = universal});
  if (!opened) return report("checkpoint import", opened.error());
  const auto imported =
      deepspeed::import_checkpoint(files, *opened, path_join(out, contract::kCheckpointsDir));
  if (!imported) return report("checkpoint import", imported.error());
  warn(opened->notes());
  std::printf("%s: %zu parameters, %lld bytes, of DeepSpeed %s, stage %d, %d ranks\n",
              imported->path.c_str(), opened->parameters().size(),
              static_cast<long long>(imported->bytes), opened->version().c_str(), opened->stage(),
              opened->world());
  return 0;
}

/// The parameters of a model directory, in the order of its units.
Result<std::vector<deepspeed::Parameter>> parameters_of(const std::string& model) {
  DSJ_TRY(const std::string directory, find_model(model, hub_cache_directory()));
  DSJ_TRY(const auto config, layout::read_model_config(directory));
  std::vector<deepspeed::Parameter> all;
  for (const auto& unit : layout::units_of(config))
    for (const auto& parameter : unit.parameters)
      all.push_back({parameter.name, parameter.shape, parameter.numel()});
  return all;
}

Result<size_t> export_weights(Files& files, const std::string& from, const std::string& model,
                              bool universal, const std::string& out) {
  DSJ_TRY(const auto found, find_checkpoints(files, from));
  if (found.kind == CheckpointPath::Kind::DeepSpeeds) {
    DSJ_TRY(auto opened, deepspeed::Checkpoint::open(files, from, {.universal = universal}));
    DSJ_TRY_STATUS(deepspeed::export_fp32(files, opened, opened.parameters(), out));
    return opened.parameters().size();
  }
  DSJ_TRY(auto reader, checkpoint::Reader::open(files, found.paths.front()));
  if (!reader.run_state().value("lora", nlohmann::json()).is_null())
    return bad_input("it holds adapters, not a model's weights", reader.path(),
                     "the run's model/ has them in PEFT's layout; dsj merge adds them to the base");
  if (model.empty())
    return bad_input("our checkpoints do not hold the shapes of the parameters", reader.path(),
                     "name the model that the run started from: --model DIR");
  DSJ_TRY(const auto parameters, parameters_of(model));
  DSJ_TRY_STATUS(deepspeed::export_fp32(files, reader, parameters, out));
  return parameters.size();
}

int run_export(Arguments args) {
  ArgumentParser parser{
      "Writes the fp32 weights of a checkpoint of ours or of DeepSpeed as safetensors: "
      "model.safetensors, or shards with "
      "an index.",
      "dsj checkpoint export"};
  std::string from, out, to = "fp32", model;
  bool universal = false;
  parser.option("DIR", from, "as for show; of several checkpoints the newest").required();
  parser.option("OUT", out, "a directory; must not be there yet").required();
  parser.option("--to", to, "the form").one_of({"fp32"}).required();
  parser.option("--model", model,
                "of our checkpoints: the model directory or hub id that the run started from");
  parser.flag("--universal", universal, kUniversal);
  if (const auto over = parser.parse(args)) return *over;
  PosixFiles files;
  const auto there = files.exists(out);
  if (!there) return report("checkpoint export", there.error());
  if (*there)
    return report("checkpoint export",
                  {ErrorKind::BadInput, "it is there already", out, "name a new directory"});
  const auto count = export_weights(files, from, model, universal, out);
  if (!count) return report("checkpoint export", count.error());
  std::printf("%s: %zu tensors, fp32\n", out.c_str(), *count);
  return 0;
}

}  // namespace

int run_checkpoint(Arguments args) {
  const std::vector<std::string> names = {"show", "import", "export"};
  const std::string name = args.empty() ? "" : args[0];
  if (name == "show") return run_show(args.subspan(1));
  if (name == "import") return run_import_checkpoint(args.subspan(1));
  if (name == "export") return run_export(args.subspan(1));
  const bool help = name == "--help" || name == "-h";
  std::fputs(
      "usage: dsj checkpoint show DIR | import DS_DIR OUT | export DIR OUT --to fp32\n\n"
      "  show    what is in a checkpoint of ours or of DeepSpeed, and whether it is damaged\n"
      "  import  makes a checkpoint of ours of one of DeepSpeed\n"
      "  export  writes the weights of either\n",
      help ? stdout : stderr);
  if (help) return 0;
  if (!name.empty())
    std::fprintf(stderr, "dsj checkpoint: \"%s\" is none of these %s\n", name.c_str(),
                 text::did_you_mean(name, names).c_str());
  return 2;
}

}  // namespace dsj::cli
