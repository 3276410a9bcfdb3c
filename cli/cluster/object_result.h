// -o of the verbs that change a job or wait for it: prints the resulting job, as kubectl prints
// a changed object. All other output of the verb goes to stderr.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/cluster/session.h"
#include "cli/result_format.h"

namespace dsj::cli {

/// An object as "json", "yaml" or "name".
std::string object_text(const kube::Json& object, const std::string& format);

class ObjectResult {
 public:
  /// Adds -o to the parser, which must not outlive this.
  explicit ObjectResult(ArgumentParser& parser);
  void excludes(const Argument& other) const { argument_.excludes(other); }
  /// Runs `verb`, which returns its exit code. If that is 0 and a format is given, prints the job
  /// that the verb passed to answered(), or else the current job `name`.
  template <typename Verb>
  int of(const char* verb_name, Session& session, const std::string& name, Verb&& verb) {
    StdoutAside aside(!format_.empty());
    const int code = verb();
    return code == 0 && aside.active() ? print(verb_name, session, name, aside) : code;
  }

  /// The API server's answer to the verb's write. A later read could show another's write.
  void answered(kube::Json job) { job_ = std::move(job); }

 private:
  int print(const char* verb_name, Session& session, const std::string& name, StdoutAside& aside);
  std::string format_;
  Argument argument_;
  std::optional<kube::Json> job_;
};

}  // namespace dsj::cli
