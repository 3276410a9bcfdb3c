// torch_autocast.lower_precision_safe_modules: which parameters travel in the products' type, by the
// class of the module that holds them. Semantics: DeepSpeed 0.19.8 (init_autocast_params). Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "job/dsconfig/resolved.h"
#include "job/layout/units.h"

namespace dsj::plan {

/// The class of the module that holds a parameter directly, as in DeepSpeed's list; a norm: empty.
/// `name`: as in the checkpoint.
std::string_view module_class(const std::string& name);
/// Whether a matrix product of its own module reads the parameter: no norm, no table.
bool enters_products(const std::string& name);

/// Whether the parameter is held by a module that torch_autocast.lower_precision_safe_modules names.
/// `tied`: the head's Linear holds the embedding's table, too. False where autocast is off.
bool is_safe(const std::string& parameter, bool tied, const dsconfig::ResolvedConfig& config);
bool is_tied(const std::vector<layout::UnitSpec>& units);

}  // namespace dsj::plan
