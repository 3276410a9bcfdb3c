// Files that lie beside the checkout and are not part of it: recorded DeepSpeed runs (golden) and
// ds_configs from public repositories (corpus).
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "job/dsconfig/resolve.h"
#include "tests/support/shared_files.h"

namespace dsj::dsconfig {

namespace fs = std::filesystem;

inline fs::path shared() {
  return testing_support::shared_directory();
}

inline std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string first_problem(const std::vector<Finding>& findings) {
  for (const auto severity : {Finding::Severity::Error, Finding::Severity::Unsupported})
    for (const Finding& finding : findings)
      if (finding.severity == severity) return finding.path + ": " + finding.message;
  return "";
}

struct Row {
  std::string file, verdict, unknown;
};

inline std::vector<Row> corpus_index(const fs::path& folder) {
  std::vector<Row> rows;
  std::ifstream index(folder / "index.tsv");
  std::string line;
  std::getline(index, line);
  while (std::getline(index, line)) {
    std::vector<std::string> cells;
    std::stringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    if (cells.size() >= 14)
      rows.push_back({cells[0], cells[13], cells.size() > 14 ? cells[14] : ""});
  }
  return rows;
}

}  // namespace dsj::dsconfig
