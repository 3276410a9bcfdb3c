// dsj-make-quickstart --output DIR [--seed N] [--rows N] [--heldout N] [--size small|tiny]
#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/files/posix_files.h"
#include "tools/quickstart.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Makes a small random model, rows to train it on and to ask it, a ds_config and a "
      "job, all from one seed.");
  dsj::tools::QuickstartOptions options;
  app.add_option("--output", options.output, "directory to write")->required();
  app.add_option("--seed", options.seed, "of the weights and the rows (1)");
  app.add_option("--rows", options.rows, "training rows (what the steps need, once)");
  app.add_option("--heldout", options.heldout, "held-out questions per task (200)");
  app.add_option("--size", options.size, "small or tiny (small)")->envname("DSJ_QUICKSTART_SIZE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
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
