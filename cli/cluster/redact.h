// Removes secrets from a support bundle. Pure. Secret objects are never read; this covers
// secrets in other places: variables, arguments, log lines.
#pragma once

#include <string>

#include "cli/cluster/json_path.h"

namespace dsj::cli {

/// Redacts a job or a pod: values of variables (except those of the operator, torchrun and
/// libraries), arguments (by redacted_text()), managedFields, and kubectl's copy of the manifest.
Json redacted(Json object);

/// Replaces by "<redacted>": values after "--token" or "password=", bearer tokens, JSON web tokens,
/// and well-known keys (hf_..., AKIA..., ghp_..., sk-...). Line by line; a line above 4 KiB is cut.
std::string redacted_text(const std::string& text);

}  // namespace dsj::cli
