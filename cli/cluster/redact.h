// Removes what must not be sent to a colleague. Pure. Secret objects are never read; this is for
// what people put elsewhere: variables, arguments, log lines.
#pragma once

#include <string>

#include "cli/cluster/json_path.h"

namespace dsj::cli {

/// Redacts a job or a pod: values of variables (except those of the operator, torchrun and
/// libraries), arguments as redacted_text() does, managedFields, kubectl's copy of the manifest.
Json redacted(Json object);

/// Replaces by "<redacted>" what follows "--token" or "password=", bearer tokens, JSON web tokens,
/// and keys of the usual shapes (hf_..., AKIA..., ghp_..., sk-...). Line by line; a line above 4 KiB is cut.
std::string redacted_text(const std::string& text);

}  // namespace dsj::cli
