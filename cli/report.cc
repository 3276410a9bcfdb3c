#include <cstdio>

#include "cli/verbs.h"

namespace dsj::cli {

int report(const char* verb, const Error& error) {
  std::fprintf(stderr, "dsj %s: %s\n", verb, error.to_string().c_str());
  switch (error.kind) {
    case ErrorKind::BadInput:
      return 2;
    case ErrorKind::Environment:
      return 3;
    case ErrorKind::Transient:
    case ErrorKind::Internal:
      break;
  }
  return 1;
}

}  // namespace dsj::cli
