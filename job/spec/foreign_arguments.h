// What of a torchrun line has no effect here: arguments of Hugging Face's programs and of torchrun
// itself, with the reason. Internal to jobspec.
#pragma once

#include <vector>

namespace dsj::jobspec {

/// An argument of Hugging Face's programs that this engine does without.
struct ForeignArgument {
  const char* name;
  const char* accepted;  ///< values without effect, separated by spaces; null: all
  const char* note;      ///< why they have no effect
  const char* refusal;   ///< why other values are refused
};

const std::vector<ForeignArgument>& foreign_arguments();

}  // namespace dsj::jobspec
