// dsj-train: the rank process. Without a verb it trains, as its environment says
// (job/contract.h); `generate` completes prompts with a model directory.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/train/generate.h"
#include "engine/train/run.h"

int main(int argc, char** argv) {
  // oneDNN keeps a compiled primitive per shape, and every sequence length is a shape: without a
  // limit they take hundreds of MiB.
  setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128", /*overwrite=*/0);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) return dsj::train::run_rank();
  if (args[0] == "generate") return dsj::train::run_generate({args.begin() + 1, args.end()});
  std::fprintf(stderr, "dsj-train: unknown verb \"%s\"; known: generate\n", args[0].c_str());
  return 2;
}
