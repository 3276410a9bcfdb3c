// dsj export gguf: writes a model in another program's format.
#include <cstdio>
#include <map>
#include <string>

#include "cli/check/hub_cache.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "engine/gguf/export.h"

namespace dsj::cli {
namespace {

const std::map<std::string, gguf::Type> kTypes = {{"f32", gguf::Type::F32},
                                                  {"f16", gguf::Type::F16},
                                                  {"bf16", gguf::Type::BF16},
                                                  {"q8_0", gguf::Type::Q8_0}};

Result<gguf::Exported> export_model(gguf::ExportOptions options) {
  PosixFiles files;
  DSJ_TRY(const bool is_path, files.exists(options.model));
  if (!is_path) {
    DSJ_TRY(options.model, find_model(options.model, hub_cache_directory()));
  }
  return gguf::export_gguf(files, options);
}

int run_export_gguf(Arguments args) {
  ArgumentParser parser{
      "Writes a model directory (Hugging Face's layout) as one GGUF file, for llama.cpp, ollama "
      "and "
      "programs built on them, as convert_hf_to_gguf.py does. A model that llama.cpp would compute "
      "or tokenize in another way is refused.",
      "dsj export gguf"};
  gguf::ExportOptions options;
  std::string type = "auto", format;
  parser
      .option("MODEL", options.model,
              "the model directory or hub id; of an adapter, what dsj merge made")
      .required();
  parser
      .option("--outfile", options.output,
              "the file, which does not exist yet; {ftype} in it becomes the type")
      .required();
  parser
      .option("--outtype", type,
              "of matrices: f32, f16, bf16, q8_0; auto: f16 if the model has it, else bf16")
      .one_of({"auto", "f32", "f16", "bf16", "q8_0"})
      .show_default();
  parser.option("--model-name", options.name, "general.name; default: from the directory's name");
  add_format(parser, format);
  if (const auto over = parser.parse(args)) return *over;
  JsonResult result(format);
  if (const auto named = kTypes.find(type); named != kTypes.end()) options.type = named->second;
  const auto done = export_model(options);
  if (!done) return report("export gguf", done.error());
  for (const std::string& note : done->notes)
    std::fprintf(stderr, "dsj export gguf: %s\n", note.c_str());
  std::printf("%s: architecture %s, %lld tensors, %lld bytes\n", done->path.c_str(),
              done->architecture.c_str(), static_cast<long long>(done->tensors),
              static_cast<long long>(done->bytes));
  result.print({{"path", done->path},
                {"architecture", done->architecture},
                {"tensors", done->tensors},
                {"bytes", done->bytes},
                {"notes", done->notes}});
  return 0;
}

}  // namespace

int run_export(Arguments args) {
  const std::string name = args.empty() ? "" : args[0];
  if (name == "gguf") return run_export_gguf(args.subspan(1));
  const bool help = name == "--help" || name == "-h";
  std::fputs(
      "usage: dsj export gguf MODEL --outfile FILE [--outtype auto|f32|f16|bf16|q8_0]\n\n"
      "  gguf  writes a model as a GGUF file, for llama.cpp and ollama\n\n"
      "`dsj export gguf --help` shows all arguments. A model directory is written by each run\n"
      "(OUT/model) and by `dsj merge`; `dsj checkpoint export` writes checkpoints.\n",
      help ? stdout : stderr);
  if (help) return 0;
  if (!name.empty())
    std::fprintf(stderr, "dsj export: \"%s\" is not a format; gguf is\n", name.c_str());
  return 2;
}

}  // namespace dsj::cli
