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
      {"by github_pat_11AAAAAAA0aaaaaaaaaa", "by <redacted>"},
      {"by ghu_aaaaaaaaaaaa", "by <redacted>"},
      {"id ASIAAAAAAAAAAAAAAAAA", "id <redacted>"},
      {"1234 tokens/s, tokens_per_second 5", "1234 tokens/s, tokens_per_second 5"},
      {"mask-sk-short", "mask-sk-short"},
      {"loss 1.5", "loss 1.5"},
  };
  for (const auto& [text, wanted] : cases) EXPECT_EQ(redacted_text(text), wanted);
}

TEST(Redact, EndsAtTheEndOfALine) {
  const std::string yaml = "secretRef:\n  name: hub\npassword: x\n";
  EXPECT_EQ(redacted_text(yaml), "secretRef:\n  name: hub\npassword: <redacted>\n");
  EXPECT_EQ(redacted_text(""), "");
}

// A log may hold an image or a whole batch of tokens in one line.
TEST(Redact, CutsALineOfAMegabyte) {
  const std::string line(1 << 20, 'a');
  const std::string text = redacted_text("before\n" + line + "\ntoken=" + line + "\nafter");
  EXPECT_LT(text.size(), 10'000u);
  EXPECT_TRUE(text.starts_with("before\naaaa")) << text.substr(0, 40);
  EXPECT_NE(text.find("a... (1044480 bytes more)\ntoken=<redacted>... (1044486 bytes more)\nafter"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::cli
