// ROLL's device_mapping: a Python expression that gives a list of device numbers. ROLL hands it to
// eval(); here it is parsed, never run:
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

/// Device numbers in order. `value` is the expression, or a YAML list of numbers. BadInput: another
/// expression (with the column), a negative device, one listed twice, more than 65,536.
Result<std::vector<int>> parse_device_mapping(const nlohmann::json& value,
                                              const std::string& where);

/// How the devices lie on nodes of `per_node` devices each.
struct Nodes {
  int replicas = 1;
  int slots = 1;  ///< per node
};
/// BadInput when nodes have different numbers of devices: it names them.
Result<Nodes> nodes_of(const std::vector<int>& devices, int per_node, const std::string& where);

}  // namespace dsj::jobimport
