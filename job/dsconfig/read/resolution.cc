#include "job/dsconfig/read/resolution.h"

#include <algorithm>

namespace dsj::dsconfig {

bool Resolution::ok() const {
  return std::ranges::none_of(findings, [](const Finding& finding) {
    return finding.severity == Finding::Severity::Error;
  });
}

bool Resolution::runnable() const {
  return std::ranges::none_of(findings, [](const Finding& finding) {
    return finding.severity != Finding::Severity::Warning;
  });
}

}  // namespace dsj::dsconfig
