// The API server's Table (meta.k8s.io/v1), and text in columns. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/json_path.h"

namespace dsj::cli {

using Rows = std::vector<std::vector<std::string>>;

/// Columns are as wide as their widest cell, three spaces apart; lines have no trailing spaces.
std::string columns_text(const Rows& rows);

struct TableView {
  bool wide = false;            ///< include columns with a priority above 0
  bool with_namespace = false;  ///< with the namespace as first column
};
/// The table's column names, in capitals.
std::vector<std::string> heading(const Json& table, const TableView& view);
/// The rows. A null cell is "<none>", as in kubectl.
Rows body(const Json& table, const TableView& view);

}  // namespace dsj::cli
