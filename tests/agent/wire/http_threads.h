// The clients take the number of their threads once in a process, before the first use.
#pragma once

#include "agent/wire/http_transport.h"

namespace dsj::agent {

inline void start_http_threads() {
  static const bool once = (set_http_threads(2), true);
  (void)once;
}

}  // namespace dsj::agent
