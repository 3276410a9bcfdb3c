// dsj-make-quickstart --output DIR [--seed N] [--rows N] [--heldout N] [--size small|tiny]
#include <cstdio>

#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "tools/quickstart.h"

int main(int argc, char** argv) {
  dsj::ArgumentParser parser(
      "Makes a small random model, rows to train it on and to ask it, a ds_config and a "
      "job, all from one seed.");
  dsj::tools::QuickstartOptions options;
  parser.option("--output", options.output, "directory to write").required();
  parser.option("--seed", options.seed, "of the weights and the rows (1)");
  parser.option("--rows", options.rows, "training rows (what the steps need, once)");
  parser.option("--heldout", options.heldout, "held-out questions per task (200)");
  parser.option("--size", options.size, "small or tiny (small)").environment("DSJ_QUICKSTART_SIZE");
  if (const auto over = parser.parse(argc, argv)) return *over;
  dsj::PosixFiles files;
  const auto summary = dsj::tools::write_quickstart(files, options);
  if (!summary) {
    std::fprintf(stderr, "dsj-make-quickstart: %s\n", summary.error().to_string().c_str());
    return summary.error().kind == dsj::ErrorKind::BadInput ? 2 : 3;
  }
  std::printf(
      "%s: a model of %.1f M parameters (vocabulary %lld), %lld rows, a job of %lld steps\n",
      options.output.c_str(), static_cast<double>(summary->parameters) / 1e6,
      static_cast<long long>(summary->shape.vocabulary), static_cast<long long>(summary->rows),
      static_cast<long long>(summary->steps));
  return 0;
}
