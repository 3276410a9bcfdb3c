#include <cstdio>

#include "cli/exit_codes.h"
#include "cli/verbs.h"

namespace dsj::cli {

int report(const char* verb, const Error& error) {
  std::fprintf(stderr, "dsj %s: %s\n", verb, error.to_string().c_str());
  switch (error.kind) {
    case ErrorKind::BadInput:
      return kExitUsage;
    case ErrorKind::Environment:
      return kExitSurroundings;
    case ErrorKind::Transient:
    case ErrorKind::Internal:
      break;
  }
  return kExitRefused;
}

}  // namespace dsj::cli
