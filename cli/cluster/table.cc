#include "cli/cluster/table.h"

#include <algorithm>
#include <cctype>

namespace dsj::cli {
namespace {

std::string cell_text(const Json& cell) {
  if (cell.is_null() || (cell.is_string() && cell.get<std::string>().empty())) return "<none>";
  return cell.is_string() ? cell.get<std::string>() : cell.dump();
}

}  // namespace

std::string columns_text(const Rows& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] + 3 - row[i].size(), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::vector<std::string> heading(const Json& table, const TableView& view) {
  std::vector<std::string> names;
  if (view.with_namespace) names.push_back("NAMESPACE");
  for (const Json& column : items(table, "columnDefinitions")) {
    if (whole(column, "priority") > 0 && !view.wide) continue;
    std::string name = word(column, "name");
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
    names.push_back(std::move(name));
  }
  return names;
}

Rows body(const Json& table, const TableView& view) {
  const Json& columns = items(table, "columnDefinitions");
  Rows rows;
  for (const Json& row : items(table, "rows")) {
    std::vector<std::string> cells;
    if (view.with_namespace) cells.push_back(word(row, "object.metadata.namespace"));
    const Json& values = items(row, "cells");
    for (size_t i = 0; i < values.size(); ++i) {
      const bool shown = i >= columns.size() || whole(columns[i], "priority") == 0 || view.wide;
      if (shown) cells.push_back(cell_text(values[i]));
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

}  // namespace dsj::cli
