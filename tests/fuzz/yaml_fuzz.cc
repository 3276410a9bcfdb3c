// YAML in both dialects, and a DeepSpeedJob out of it.
#include "job/spec/job.h"
#include "job/spec/yaml.h"
#include "tests/fuzz/fuzz.h"

namespace jobspec = dsj::jobspec;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = dsj::fuzz::text_of(data, size);
  jobspec::parse_yaml(text, "fuzz", jobspec::Dialect::Omega);
  const auto document = jobspec::parse_yaml(text, "fuzz");
  if (!document) return 0;
  // What is written is what is read.
  if (document->value.is_structured() && text.find_first_of("\x7f\xc2\xe2\xef\\") == text.npos) {
    const auto again = jobspec::parse_yaml(jobspec::to_yaml(document->value), "again");
    dsj::fuzz::require(again.has_value());
  }
  if (text.find("configFrom") != text.npos) return 0;  // names files of this machine
  if (const auto job = jobspec::read_manifest(*document, "/nowhere")) {
    const auto resolution = jobspec::resolve(*job, {});
    for (const auto& finding : resolution.findings) jobspec::to_line(*job, finding);
    jobspec::to_json(*job);
  }
  return 0;
}
