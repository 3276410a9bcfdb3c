// dsj-train: the rank process. Without a verb it trains, as its environment says (job/contract.h).
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/standard_streams.h"
#include "common/version/version.h"
#include "engine/train/answer/chat.h"
#include "engine/train/answer/generate.h"
#include "engine/train/run.h"

namespace {

constexpr char kHelp[] =
    "usage: dsj-train [VERB [ARGUMENTS]]\n\n"
    "Without a verb it is one rank of a run, which dsj-agent starts: dsj run JOB.yaml\n\n"
    "  generate   answers questions with a model: dsj generate --help\n"
    "  chat       talks with a model: dsj chat --help\n"
    "  --version  shows the build\n";

constexpr int kExitOutputLost = 3;  // the environment's, as in job/contract.h

}  // namespace

int main(int argc, char** argv) {
  dsj::open_standard_streams();
  // oneDNN caches a compiled primitive per shape, and every sequence length is a new shape: without
  // a limit the cache takes hundreds of MiB.
  setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128", /*overwrite=*/0);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) return dsj::train::run_rank();
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  const auto answered = [&](int code) {
    return dsj::code_after_output("dsj " + args[0], code, kExitOutputLost);
  };
  if (args[0] == "generate") return answered(dsj::train::run_generate(rest));
  if (args[0] == "chat") return answered(dsj::train::run_chat(rest));
  if (const auto over = dsj::answer_version("dsj-train", args)) return *over;
  const bool asked = args[0] == "--help" || args[0] == "-h";
  if (!asked) std::fprintf(stderr, "dsj-train: unknown verb \"%s\"\n\n", args[0].c_str());
  std::fputs(kHelp, asked ? stdout : stderr);
  return asked ? 0 : 2;
}
