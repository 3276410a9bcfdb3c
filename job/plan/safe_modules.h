// torch_autocast.lower_precision_safe_modules: which parameters are sent in the products' type, by
// the class of their module. Semantics: DeepSpeed 0.19.8 (init_autocast_params). Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "job/dsconfig/config/resolved.h"
#include "job/layout/units.h"

namespace dsj::plan {

/// The class of the module that directly contains a parameter, as in DeepSpeed's list; empty for a
/// norm. `name`: as in the checkpoint.
std::string_view module_class(const std::string& name);
/// Whether a matrix product of its own module reads the parameter: not a norm or an embedding.
bool enters_products(const std::string& name);

/// Whether torch_autocast.lower_precision_safe_modules names the parameter's module. `tied`: the
/// head's Linear shares the embedding's table. False if autocast is off.
bool is_safe(const std::string& parameter, bool tied, const dsconfig::ResolvedConfig& config);
bool is_tied(const std::vector<layout::UnitSpec>& units);

}  // namespace dsj::plan
