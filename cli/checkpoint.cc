// dsj checkpoint show|import|export: shows a checkpoint of dsj or DeepSpeed, converts
// DeepSpeed's to dsj's, and exports either for other programs.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/check/hub_cache.h"
#include "cli/checkpoint_found.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/text.h"
#include "engine/checkpoint/reader.h"
#include "engine/deepspeed/convert.h"
#include "engine/deepspeed/universal_export.h"
#include "job/contract.h"
#include "job/layout/units.h"

namespace dsj::cli {
namespace {

constexpr char kUniversal[] = "read \"latest_universal\" of a directory that also has \"latest\"";

void warn(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "dsj checkpoint: %s\n", note.c_str());
}

int run_show(Arguments args) {
  ArgumentParser parser{
      "Shows the contents of a checkpoint of ours or of DeepSpeed, and any damage. It only reads. "
      "Exit code: 0, 1 if one is damaged, 2 if there is none.",
      "dsj checkpoint show"};
  std::string path, format;
  bool universal = false, verify = true;
  parser
      .option("DIR", path,
              "a run's output directory, one step-<S> of its checkpoints, a DeepSpeed directory or "
              "one tag in it")
      .required();
  add_format_and_output(parser, format);
  parser.flag("--universal", universal, kUniversal);
  parser.flag("--verify,!--no-verify", verify,
              "read and check every byte (default), or only the metadata");
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
    if (format == "text") std::fputs(to_text(described).c_str(), stdout);
  }
  if (format == "json") std::fputs(document_text(all).c_str(), stdout);
  return damaged ? 1 : 0;
}

int run_import_checkpoint(Arguments args) {
  ArgumentParser parser{
      "Converts a checkpoint of DeepSpeed to one of ours: ZeRO stages 0 to 3, universal; fp32, "
      "bf16, fp16; any number of ranks. A run with this output directory resumes from it, at any "
      "world size and stage.",
      "dsj checkpoint import"};
  std::string from, out, format;
  bool universal = false;
  parser.option("DS_DIR", from, "the DeepSpeed directory with \"latest\", or one tag in it")
      .required();
  parser.option("OUT", out, "the output directory of the run to come").required();
  parser.flag("--universal", universal, kUniversal);
  add_format_and_output(parser, format);
  if (const auto over = parser.parse(args)) return *over;
  JsonResult result(format);
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
  result.print({{"checkpoint", imported->path},
                {"bytes", imported->bytes},
                {"parameters", opened->parameters().size()},
                {"deepSpeed", opened->version()},
                {"stage", opened->stage()},
                {"worldSize", opened->world()}});
  return 0;
}

/// The parameters of a model directory, in the order of the model's units.
Result<std::vector<deepspeed::Parameter>> parameters_of(const std::string& model) {
  DSJ_TRY(const std::string directory, find_model(model, hub_cache_directory()));
  DSJ_TRY(const auto config, layout::read_model_config(directory));
  std::vector<deepspeed::Parameter> all;
  for (const auto& unit : layout::units_of(config))
    for (const auto& parameter : unit.parameters)
      all.push_back({parameter.name, parameter.shape, parameter.numel()});
  return all;
}

struct Export {
  std::string from, out, to = "fp32", file_format = "safetensors", model;
  bool universal = false;
};

struct Exported {
  std::string path, text;  ///< the path written; the message to print
  int64_t parameters = 0, frozen = 0;
};

/// Writes a checkpoint in the requested form.
Result<Exported> export_as(Files& files, const Export& wanted, checkpoint::SavedRun& from,
                           const std::vector<deepspeed::Parameter>& parameters) {
  if (wanted.to == "universal") {
    DSJ_TRY(const auto written, deepspeed::export_universal(files, from, parameters, wanted.out));
    if (!written.knows_learning_rate)
      warn(
          {"the checkpoint does not say the learning rate of the next step: DeepSpeed's first step "
           "takes the first one of its schedule"});
    if (written.frozen > 0)
      warn({std::to_string(written.frozen) +
            " parameters were frozen and are not in it: DeepSpeed takes them from the model that "
            "it is given, which must be the one that the run began with, with the same parameters "
            "frozen"});
    const int64_t trained = std::ssize(parameters) - static_cast<int64_t>(written.frozen);
    return Exported{written.path,
                    written.path + ": " + std::to_string(trained) +
                        " parameters with their moments; DeepSpeed loads " + wanted.out +
                        " with checkpoint.load_universal",
                    trained, static_cast<int64_t>(written.frozen)};
  }
  DSJ_TRY_STATUS(wanted.file_format == "bin"
                     ? deepspeed::export_torch(files, from, parameters, wanted.out)
                     : deepspeed::export_fp32(files, from, parameters, wanted.out));
  return Exported{wanted.out,
                  wanted.out + ": " + std::to_string(parameters.size()) + " tensors, fp32",
                  std::ssize(parameters)};
}

Result<Exported> export_checkpoint(Files& files, const Export& wanted) {
  DSJ_TRY(const auto found, find_checkpoints(files, wanted.from));
  if (found.kind == CheckpointPath::Kind::DeepSpeeds) {
    DSJ_TRY(auto opened,
            deepspeed::Checkpoint::open(files, wanted.from, {.universal = wanted.universal}));
    DSJ_TRY_STATUS(opened.check_parts());
    return export_as(files, wanted, opened, opened.parameters());
  }
  DSJ_TRY(auto reader, checkpoint::Reader::open(files, found.paths.front()));
  if (!reader.run_state().value("lora", nlohmann::json()).is_null())
    return bad_input("it holds adapters, not a model's weights", reader.path(),
                     "the run's model/ has them in PEFT's layout; dsj merge adds them to the base");
  if (wanted.model.empty())
    return bad_input("our checkpoints do not hold the shapes of the parameters", reader.path(),
                     "name the model that the run started from: --model DIR");
  DSJ_TRY(const auto parameters, parameters_of(wanted.model));
  return export_as(files, wanted, reader, parameters);
}

int run_export_checkpoint(Arguments args) {
  ArgumentParser parser{
      "Writes a checkpoint of ours or of DeepSpeed for other programs: its fp32 weights, or a "
      "universal checkpoint of DeepSpeed, with Adam's moments and the counters.",
      "dsj checkpoint export"};
  Export wanted;
  std::string format;
  parser.option("DIR", wanted.from, "as for show; of several checkpoints the newest").required();
  parser.option("OUT", wanted.out, "a directory that does not exist yet").required();
  parser.option("--to", wanted.to, "fp32: the weights; universal: a checkpoint for DeepSpeed")
      .one_of({"fp32", "universal"})
      .required();
  parser
      .option("--format", wanted.file_format,
              "of fp32: model.safetensors, or shards with an index; bin: pytorch_model.bin")
      .one_of({"safetensors", "bin"});
  parser.option("--model", wanted.model,
                "of our checkpoints: the model directory or hub id that the run started from");
  parser.flag("--universal", wanted.universal, kUniversal);
  add_format_and_output(parser, format);
  if (const auto over = parser.parse(args)) return *over;
  JsonResult result(format);
  PosixFiles files;
  const auto there = files.exists(wanted.out);
  if (!there) return report("checkpoint export", there.error());
  if (*there)
    return report("checkpoint export",
                  {ErrorKind::BadInput, "it exists already", wanted.out, "name a new directory"});
  const auto written = export_checkpoint(files, wanted);
  if (!written) return report("checkpoint export", written.error());
  std::printf("%s\n", written->text.c_str());
  result.print({{"path", written->path},
                {"to", wanted.to},
                {"parameters", written->parameters},
                {"frozen", written->frozen}});
  return 0;
}

}  // namespace

int run_checkpoint(Arguments args) {
  const std::vector<std::string> names = {"show", "import", "export"};
  const std::string name = args.empty() ? "" : args[0];
  if (name == "show") return run_show(args.subspan(1));
  if (name == "import") return run_import_checkpoint(args.subspan(1));
  if (name == "export") return run_export_checkpoint(args.subspan(1));
  const bool help = name == "--help" || name == "-h";
  std::fputs(
      "usage: dsj checkpoint show DIR | import DS_DIR OUT\n"
      "       dsj checkpoint export DIR OUT --to fp32|universal [--model MODEL]\n\n"
      "  show    shows the contents of a checkpoint of ours or of DeepSpeed, and any damage\n"
      "  import  converts a checkpoint of DeepSpeed to one of ours\n"
      "  export  writes the weights of either, or a universal checkpoint for DeepSpeed; for a\n"
      "          checkpoint of ours, --model names the model with which the run started\n\n"
      "`dsj checkpoint show --help` and so on show all arguments.\n",
      help ? stdout : stderr);
  if (help) return 0;
  if (!name.empty())
    std::fprintf(stderr, "dsj checkpoint: \"%s\" is none of these %s\n", name.c_str(),
                 text::did_you_mean(name, names).c_str());
  return 2;
}

}  // namespace dsj::cli
