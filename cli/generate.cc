// dsj generate: `dsj-train generate` with the same arguments. The engine is a program of its own,
// so that dsj needs no libtorch. It replaces this process, so exit code and output are the
// engine's.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace dsj::cli {

int run_generate(Arguments args) {
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) {
    return report("generate",
                  {ErrorKind::Environment, "cannot tell where this program is: " + failed.message(),
                   "/proc/self/exe", ""});
  }
  const std::string engine = (self.parent_path() / "dsj-train").string();
  std::vector<std::string> words = {engine, "generate"};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(engine.c_str(), pointers.data());
  return report(
      "generate",
      {ErrorKind::Environment, std::string("cannot start the engine: ") + std::strerror(errno),
       engine, "dsj-train belongs beside dsj; a build with -DDSJ_ENGINE=OFF has none"});
}

}  // namespace dsj::cli
