// Copies past the caches: every element, none beside them.
#include "engine/kernels/copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace dsj::kernels {
namespace {

TEST(CopyPastCaches, CopiesAllOfARangeAndNothingElse) {
  constexpr int64_t kLongest = 20000;
  std::vector<float> from(kLongest + 64);
  std::iota(from.begin(), from.end(), 1.0f);
  for (const int64_t n : {0, 1, 15, 4095, 4096, 4097, 4111, 8192, 19999, 20000}) {
    for (const int64_t to_at : {0, 1, 3, 7, 15, 16, 17}) {
      for (const int64_t from_at : {0, 1, 5}) {
        SCOPED_TRACE(std::to_string(n) + " elements, to " + std::to_string(to_at) + ", from " +
                     std::to_string(from_at));
        std::vector<float> to(kLongest + 64, -1.0f);
        copy_past_caches(to.data() + to_at, from.data() + from_at, n);
        for (int64_t i = 0; i < kLongest + 64; ++i) {
          const bool copied = i >= to_at && i < to_at + n;
          ASSERT_EQ(to[size_t(i)], copied ? from[size_t(i - to_at + from_at)] : -1.0f) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dsj::kernels
