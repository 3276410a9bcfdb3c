#include "job/dsconfig/read/reader.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/edited.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

TEST(ReaderTest, PlainJsonIsRead) {
  const char* text = R"({"a": [1, -2.5e3, "x\u00e9\ud83d\ude00\n", true, false, null], "b": {}})";
  const auto document = parse_text(text, "f");
  ASSERT_TRUE(document) << document.error().to_string();
  EXPECT_EQ(document->value, json::parse(text));
}

TEST(ReaderTest, WhatHjsonAdds) {
  const auto document = parse_text(R"(
    # a remark
    train_batch_size: 32   // the rows of a step
    /* two
       lines */
    'bf16': {enabled: true,}
    optimizer: {type: AdamW
                params: {lr: 1e-3 # the rate
                         betas: [0.9
                                 0.999,]}}
    note: any words, with a comma } and a brace
    text: '''
          two
            lines
          '''
  )",
                                   "f");
  ASSERT_TRUE(document) << document.error().to_string();
  EXPECT_EQ(document->value, json::parse(R"({"train_batch_size": 32, "bf16": {"enabled": true},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.999]}},
      "note": "any words, with a comma } and a brace", "text": "two\n  lines"})"));
}

/// Python's json.dump writes these words, and its json.load reads them anywhere in a line.
TEST(ReaderTest, PythonsWordsForNumbersOutsideJson) {
  const auto document = parse_text(
      R"({"steps_per_print": Infinity, "a": [-Infinity,NaN], "b": {"c": NaN}, "d": 1})", "f");
  ASSERT_TRUE(document) << document.error().to_string();
  EXPECT_EQ(document->value, json::parse(R"({"steps_per_print": "Infinity",
      "a": ["-Infinity", "NaN"], "b": {"c": "NaN"}, "d": 1})"));
}

TEST(ReaderTest, PositionsOfKeysAndValues) {
  const auto document = parse_text("{\n  \"zero\": {\n    \"stage\": 2,\n \"list\": [5, 6]}}", "f");
  ASSERT_TRUE(document);
  const Entry& stage = document->positions.at("zero.stage");
  EXPECT_EQ(stage.key.line, 3);
  EXPECT_EQ(stage.key.column, 5);
  EXPECT_EQ(stage.value.column, 14);
  EXPECT_EQ(document->positions.at("zero.list[1]").value.column, 14);
  std::vector<Finding> findings = {{Finding::Severity::Error, "zero.stage"},
                                   {Finding::Severity::Error, "zero.missing.below"},
                                   {Finding::Severity::Error, "training.seed"}};
  locate(findings, document->positions);
  EXPECT_EQ(findings[0].line, 3);
  EXPECT_EQ(findings[1].line, 2);
  EXPECT_EQ(findings[2].line, 0);
}

struct Bad {
  const char* text;
  const char* where;
  const char* says;
};

TEST(ReaderTest, RefusalsSayWhere) {
  for (const Bad& bad : {
           Bad{"{\"a\": 1,\n \"b\": 2,\n \"a\": 3}", "f:3:2", "first at line 1, column 2"},
           Bad{"{\"z\": {\"stage\": 1, \"stage\": 2}}", "f:1:20", "\"stage\" is given twice"},
           Bad{"{\"a\": 1", "f:1:8", "no closing brace"},
           Bad{"{\"a\": [1, 2", "f:1:12", "no closing bracket"},
           Bad{"{\"a\" 1}", "f:1:6", "expected ':'"},
           Bad{"{\"a\": }", "f:1:7", "expected a value"},
           Bad{"{\"a\": \"x", "f:1:7", "no closing quote"},
           Bad{"{\"a\": \"\\q\"}", "f:1:9", "unknown escape"},
           Bad{"{\"a\": \"\\ud800\"}", "f:1:14", "surrogate"},
           Bad{"{} {}", "f:1:4", "after the end"},
           Bad{"{/* x }", "f:1:2", "has no end"},
           Bad{"{\"a\": 1e999}", "f:1:12", "out of range"},
           Bad{"{\"a\": nan}", "f:1:7", "the unquoted value nan runs to the end of its line"},
           Bad{"{\"a\": {\"b\": True}, \"c\": 1}", "f:1:13", "write true"},
           Bad{"{\"a\": [1, None]}", "f:1:11", "write null"},
           Bad{"{a: name\n b: 1", "f:2:6", "no closing brace"},
           Bad{"{,}", "f:1:2", "expected a key"},
           Bad{"{\"a\": \"\xff\"}", "f:1:8", "not UTF-8"},
           Bad{"a: 1\nzero_optimization:\n  stage: 2\n", "f:3:3", "as in YAML"},
           Bad{"betas:\n- 0.9\n- 0.95\n", "f:2:1", "as in YAML"},
           Bad{"compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 2\n", "f",
               "accelerate config"},
           Bad{"{\"compute_environment\": \"LOCAL_MACHINE\", \"num_processes\": 2}", "f",
               "accelerate config"},
       }) {
    const auto document = parse_text(bad.text, "f");
    ASSERT_FALSE(document) << bad.text;
    EXPECT_EQ(document.error().where, bad.where) << document.error().to_string();
    EXPECT_NE(document.error().to_string().find(bad.says), std::string::npos)
        << document.error().to_string();
  }
}

TEST(ReaderTest, DepthIsLimited) {
  for (const char* opener : {"[", "{\"a\":", "{a:"}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += opener;
    const auto document = parse_text(text, "f");
    ASSERT_FALSE(document);
    EXPECT_NE(document.error().message.find("nested deeper"), std::string::npos);
  }
  std::string within;
  for (int i = 0; i < kMaxDepth; ++i) within += "[";
  for (int i = 0; i < kMaxDepth; ++i) within += "]";
  EXPECT_TRUE(parse_text(within, "f"));
}

TEST(ReaderTest, ByteOrderMarkAndEmptyText) {
  EXPECT_TRUE(parse_text("\xEF\xBB\xBF{\"a\": 1}", "f"));
  const auto empty = parse_text("  # nothing\n", "f");
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->value, json::object());
  EXPECT_FALSE(read_file("/nonexistent/ds_config.json"));
  EXPECT_FALSE(read_file("/tmp"));
}

/// What PowerShell's > writes, and UTF-16 without its mark. Hjson counts a zero byte as white space: every key would be
/// unknown, and the job would run without its settings.
TEST(ReaderTest, Utf16IsNamed) {
  const std::string config = "{\"train_batch_size\": 8}";
  for (const bool big_endian : {false, true}) {
    for (const bool mark : {false, true}) {
      std::string text = !mark ? "" : big_endian ? "\xFE\xFF" : "\xFF\xFE";
      for (const char c : config) {
        if (big_endian) text += '\0';
        text += c;
        if (!big_endian) text += '\0';
      }
      const auto document = parse_text(text, "f");
      ASSERT_FALSE(document);
      EXPECT_NE(document.error().message.find("UTF-16"), std::string::npos);
    }
  }
}

/// Hjson lets a value begin below its key; only an unquoted string there is YAML.
TEST(ReaderTest, AValueMayBeginBelowItsKey) {
  const auto document =
      parse_text("zero_optimization:\n{\n stage:\n  2\n}\na:\n 'word'\nb:\n [1]\nc:\n true\n", "f");
  ASSERT_TRUE(document) << document.error().to_string();
  EXPECT_EQ(
      document->value,
      json::parse(R"({"zero_optimization": {"stage": 2}, "a": "word", "b": [1], "c": true})"));
}

/// Any bytes: an answer, and what was read can be written again.
TEST(ReaderTest, DamagedTextNeverCrashes) {
  const std::string seed = R"({"a": [1, 2.5, "x\u00e9"], # c
    b: {c: true, "d": '''m''', e: word}, /* k */ "f": null, // l
    "g": 5e8})";
  const std::string alphabet = "{}[],:\"'#/*\\\n\r u0e\xc3\xa9-+.1at\xff";
  std::mt19937 random(7);
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = testing_support::edited(seed, alphabet, random, 4, 5);
    const auto document = parse_text(text, "f");
    if (!document) {
      EXPECT_EQ(document.error().where.substr(0, 2), "f:");
      continue;
    }
    ++read;
    EXPECT_FALSE(document->value.dump().empty());
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace dsj::dsconfig
