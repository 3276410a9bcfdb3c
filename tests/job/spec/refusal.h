// Why a cluster refuses a spec, for tests that look for words in it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/spec/cluster_spec.h"

namespace dsj::jobspec {

/// A sentence for each finding that is no warning; "": none.
inline std::string refusal(const nlohmann::json& spec) {
  std::string text;
  for (const auto& finding : check_cluster_spec("j", spec, std::nullopt).resolution.findings) {
    if (finding.severity != dsconfig::Finding::Severity::Warning)
      text += to_sentence(finding) + "\n";
  }
  return text;
}

}  // namespace dsj::jobspec
