#include "cli/cluster/redact.h"

#include <gtest/gtest.h>

namespace dsj::cli {
namespace {

TEST(Redact, WhatLooksLikeACredentialGoesAndTheRestStays) {
  const std::pair<const char*, const char*> cases[] = {
      {"HF_TOKEN=hf_x y", "HF_TOKEN=<redacted> y"},
      {"\"api_key\": \"a b\", 1", "\"api_key\": <redacted>, 1"},
      {"https://me:pw@host/x", "https://<redacted>@host/x"},
      {"Authorization: Bearer abc.def-123", "Authorization: Bearer <redacted>"},
      {"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "<redacted>"},
      {"key sk-abcdefghijklmnopqrst", "key <redacted>"},
      {"1234 tokens/s, tokens_per_second 5", "1234 tokens/s, tokens_per_second 5"},
      {"mask-sk-short", "mask-sk-short"},
      {"loss 1.5", "loss 1.5"},
  };
  for (const auto& [text, wanted] : cases) EXPECT_EQ(redacted_text(text), wanted);
}

}  // namespace
}  // namespace dsj::cli
