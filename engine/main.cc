// dsj-train: the rank process. Without a verb it trains, as its environment says
// (job/contract.h); `generate` completes prompts with a model directory, --version shows the build.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/version/version.h"
#include "engine/train/generate.h"
#include "engine/train/run.h"

int main(int argc, char** argv) {
  // oneDNN keeps a compiled primitive per shape, and every sequence length is a shape: without a
  // limit they take hundreds of MiB.
  setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128", /*overwrite=*/0);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) return dsj::train::run_rank();
  if (args[0] == "generate") return dsj::train::run_generate({args.begin() + 1, args.end()});
  if (const auto over = dsj::answer_version("dsj-train", args)) return *over;
  std::fprintf(stderr, "dsj-train: unknown verb \"%s\"; known: generate, --version\n",
               args[0].c_str());
  return 2;
}
