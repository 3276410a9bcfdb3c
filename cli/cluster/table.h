// The API server's Table (meta.k8s.io/v1) and text in columns. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/json_path.h"

namespace dsj::cli {

using Rows = std::vector<std::vector<std::string>>;

/// Columns of their widest cell, three spaces apart; no spaces at the ends of lines.
std::string columns_text(const Rows& rows);

struct TableView {
  bool wide = false;            ///< columns of a priority above 0, too
  bool with_namespace = false;  ///< a first column from the rows' objects
};
/// The table's column names in capitals.
std::vector<std::string> heading(const Json& table, const TableView& view);
/// A null cell is "<none>", as kubectl has it.
Rows body(const Json& table, const TableView& view);

}  // namespace dsj::cli
