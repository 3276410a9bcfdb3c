// Takes out what must not be sent to a colleague. Pure. Secret objects are never read; this is for
// what people put elsewhere: variables, arguments, log lines.
#pragma once

#include <string>

#include "cli/cluster/json_path.h"

namespace dsj::cli {

/// A job or a pod: values of variables (but those of the operator, of torchrun and of libraries),
/// arguments as redacted_text() has them, managedFields, kubectl's copy of the manifest.
Json redacted(Json object);

/// "--token abc", "password=x", bearer tokens, JSON web tokens, and keys of the usual shapes
/// (hf_..., AKIA..., ghp_..., sk-...) become "<redacted>".
std::string redacted_text(const std::string& text);

}  // namespace dsj::cli
