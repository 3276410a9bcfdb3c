// DSJ_CHECK: for conditions that must hold. Always on. Prints the place and aborts the process.
#pragma once

#include <cstdio>
#include <cstdlib>

#define DSJ_CHECK(condition, ...)                                                       \
  do {                                                                                  \
    if (!(condition)) [[unlikely]] {                                                    \
      std::fprintf(stderr, "%s:%d: check failed: %s ", __FILE__, __LINE__, #condition); \
      __VA_OPT__(std::fprintf(stderr, __VA_ARGS__);)                                    \
      std::fputc('\n', stderr);                                                         \
      std::abort();                                                                     \
    }                                                                                   \
  } while (false)
