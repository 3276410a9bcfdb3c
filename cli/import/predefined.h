// The ds_configs that ROLL's pipelines include from ROLL's checkout as `../config/NAME@_here_`.
// dsj has files of the same names and settings, so that a pipeline can be imported without that
// checkout. They are in configs/roll; the build compiles them in (cmake/DsjPredefined.cmake).
#pragma once

#include <map>
#include <string>

namespace dsj::jobimport {

/// "deepspeed_zero3" → the text of configs/roll/deepspeed_zero3.yaml.
using PredefinedFiles = std::map<std::string, std::string>;

/// The path of a predefined file in this repository, for messages.
inline std::string predefined_path(const std::string& name) {
  return "configs/roll/" + name + ".yaml";
}

const PredefinedFiles& predefined_files();

}  // namespace dsj::jobimport
