// A text that arguments are not read from, for tests that list such.
#pragma once

namespace dsj {

struct BadText {
  const char* text;
  const char* where;
  const char* says;
};

}  // namespace dsj
