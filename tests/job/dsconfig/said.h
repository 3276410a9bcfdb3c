// What a resolution says, for tests that look for words in it.
#pragma once

#include <string>
#include <vector>

#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {

inline std::string said(const Finding& finding) {
  return finding.path + ": " + finding.message + " (" + finding.hint + ")";
}

/// A line for each finding of a severity.
inline std::vector<std::string> lines_said(const Resolution& resolution,
                                           Finding::Severity severity) {
  std::vector<std::string> lines;
  for (const Finding& finding : resolution.findings)
    if (finding.severity == severity) lines.push_back(said(finding));
  return lines;
}

/// The same as one text.
inline std::string said(const Resolution& resolution, Finding::Severity severity) {
  std::string text;
  for (const std::string& line : lines_said(resolution, severity)) text += line + "\n";
  return text;
}

inline std::string errors_said(const Resolution& resolution) {
  return said(resolution, Finding::Severity::Error);
}

/// Of every severity.
inline std::string said(const Resolution& resolution) {
  std::string text;
  for (const Finding& finding : resolution.findings) text += said(finding) + "\n";
  return text;
}

}  // namespace dsj::dsconfig
