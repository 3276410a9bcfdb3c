// The ds_configs that ROLL's pipelines take from ROLL's own checkout by `../config/NAME@_here_`.
// dsj carries files of the same names and settings, so that a pipeline imports without that
// checkout. configs/roll holds them; the build compiles them in (cmake/DsjPredefined.cmake).
#pragma once

#include <map>
#include <string>

namespace dsj::jobimport {

/// "deepspeed_zero3" → the text of configs/roll/deepspeed_zero3.yaml.
using PredefinedFiles = std::map<std::string, std::string>;

/// Where a predefined file lies in this repository, for messages.
inline std::string predefined_path(const std::string& name) {
  return "configs/roll/" + name + ".yaml";
}

const PredefinedFiles& predefined_files();

}  // namespace dsj::jobimport
