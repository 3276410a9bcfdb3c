// Parses ROLL's device_mapping: a Python expression for a list of device numbers. ROLL passes
// it to eval(); here it is only parsed:
//
//   list   = term { "+" term }
//   term   = "list" "(" ( range | brackets ) ")" | range | brackets
//   range  = "range" "(" number [ "," number [ "," number ] ] ")"
//   brackets = "[" [ number { "," number } [ "," ] ] "]"
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::jobimport {

/// Device numbers in order. `value`: the expression, or a YAML list of numbers. Errors: BadInput
/// for other expressions (with the column), a negative or repeated device, or more than 65,536.
Result<std::vector<int>> parse_device_mapping(const nlohmann::json& value,
                                              const std::string& where);

/// How the devices are distributed over nodes with `per_node` devices each.
struct Nodes {
  int replicas = 1;
  int slots = 1;  ///< per node
};
/// Errors: BadInput, with the nodes, if they have different numbers of devices.
Result<Nodes> nodes_of(const std::vector<int>& devices, int per_node, const std::string& where);

}  // namespace dsj::jobimport
