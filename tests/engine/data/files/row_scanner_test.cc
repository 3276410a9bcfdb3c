#include "engine/data/files/row_scanner.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

struct Found {
  Status status;
  std::vector<std::string> rows;  // "line:offset text"
};

Found scan(const std::string& text, const std::string& name = "d.json") {
  MemoryFiles files;
  EXPECT_TRUE(files.write_synced(name, text));
  const auto file = files.open_read(name);
  Found found;
  const auto header = csv_header_of(**file);
  EXPECT_TRUE(header);
  found.status = scan_rows(**file, name, *header, [&](const RowPlace& place, std::string_view row) {
    EXPECT_EQ(place.row, std::ssize(found.rows));
    EXPECT_EQ(
        text.substr(static_cast<std::size_t>(place.offset), static_cast<std::size_t>(place.length)),
        row);
    found.rows.push_back(std::to_string(place.line) + " " + std::string(row));
  });
  return found;
}

using Rows = std::vector<std::string>;

TEST(RowScanner, Array) {
  EXPECT_EQ(scan("\n [ {\"a\": \"]}\\\"\"} ,\n  {\"b\": [1, {}]}\n]\n").rows,
            (Rows{"2 {\"a\": \"]}\\\"\"}", "3 {\"b\": [1, {}]}"}));
  EXPECT_EQ(scan("[]").rows, Rows{});
  EXPECT_EQ(scan("\xEF\xBB\xBF[1,\"x\", null ]").rows, (Rows{"1 1", "1 \"x\"", "1 null"}));
}

TEST(RowScanner, Lines) {
  EXPECT_EQ(scan("{\"a\":1}\n\n  \n{\"b\":2}", "d.jsonl").rows,
            (Rows{"1 {\"a\":1}", "4 {\"b\":2}"}));
  EXPECT_EQ(scan("{\"a\":1}\n{\"b\":2}\r\n").rows, (Rows{"1 {\"a\":1}", "2 {\"b\":2}\r"}));
  EXPECT_EQ(scan("{\"a\":1}").rows, Rows{"1 {\"a\":1}"});
}

TEST(RowScanner, Samples) {
  EXPECT_EQ(scan(R"({"n": {"samples": [9]}, "samples": [{"a":1}, {"b":2}], "m": [1]})").rows,
            (Rows{R"(1 {"a":1})", R"(1 {"b":2})"}));
}

std::string complaint(const std::string& text, const std::string& name = "d.json") {
  const Found found = scan(text, name);
  EXPECT_FALSE(found.status) << name << ": " << text;
  return found.status ? "" : found.status.error().to_string();
}

TEST(RowScanner, AnArrayIsReadUnderAnyFileName) {
  EXPECT_EQ(scan("[{\"a\":1},\n{\"b\":2}]\n", "d.jsonl").rows,
            (Rows{"1 {\"a\":1}", "2 {\"b\":2}"}));
}

TEST(RowScanner, OneObjectOverSeveralLinesIsRefusedAsSuch) {
  for (const std::string name : {"d.json", "d.jsonl"}) {
    const std::string one =
        complaint("\n{\n \"instruction\": \"q }\\\"\",\n \"n\": [1, {}]\n}\n", name);
    EXPECT_NE(one.find("is one JSON object over lines 2 to 5"), std::string::npos) << one;
    EXPECT_NE(one.find("jq -c"), std::string::npos) << one;
    const std::string two = complaint("{\n\"a\": 1\n}\n{\n\"a\": 2\n}\n", name);
    EXPECT_NE(two.find("begins with a JSON object over lines 1 to 3"), std::string::npos) << two;
    EXPECT_EQ(scan("{\"a\": \"b\n{\"c\": 1}\n", name).rows.size(), 2u) << "damage is a row's";
    EXPECT_EQ(scan("{\"a\": {\"b\": 1}\n{\"c\": 1}\n", name).rows.size(), 2u);
  }
}

TEST(RowScanner, ErrorsNameTheFormOfOtherFiles) {
  EXPECT_NE(complaint("PAR1....PAR1", "d.parquet").find("is a Parquet file"), std::string::npos);
  EXPECT_NE(complaint("\x1F\x8B\x08....", "d.jsonl.gz").find("is a gzip file"), std::string::npos);
  EXPECT_NE(complaint("version https://git-lfs.github.com/spec/v1\n").find("Git LFS pointer"),
            std::string::npos);
  EXPECT_NE(complaint("<!doctype html>\n<html>").find("is an HTML page"), std::string::npos);
  EXPECT_EQ(scan("instruction,output\na,b\n", "d.json").rows, Rows{"2 a,b"});
  EXPECT_NE(complaint("hello\n").find("begins neither with [ nor with {"), std::string::npos);
  EXPECT_NE(complaint("").find("is empty"), std::string::npos);
}

TEST(RowScanner, AFileLargerThanItsBuffer) {
  std::string text = "[";
  for (int i = 0; i < 50000; ++i) {
    text += (i == 0 ? "" : ",") + std::string("{\"text\": \"row [number] ") + std::to_string(i) +
            "\\\\\"}\n";
  }
  const Found found = scan(text + "]");
  ASSERT_TRUE(found.status) << found.status.error().to_string();
  ASSERT_EQ(found.rows.size(), 50000u);
  EXPECT_EQ(found.rows.back(), "50000 {\"text\": \"row [number] 49999\\\\\"}");
}

TEST(RowScanner, BrokenFiles) {
  struct Case {
    const char* text;
    const char* says;
  };
  for (const Case& c : {Case{"", "d.json: is empty"},
                        {"hello", "d.json:1: begins neither with [ nor with {"},
                        {"[{\"a\":1},\n{\"b\"", "d.json:2: ends inside row 1"},
                        {"[{\"a\":\"x]", "ends inside row 0"},
                        {"[1}", "has a } where a , or ]"},
                        {"[1]\n[2]", "d.json:2: has text behind its last bracket"},
                        {"{\"samples\":[1]", "does not end its object"},
                        {"{\"samples\":[1],\"x\":", "ends inside its object"}}) {
    const Found found = scan(c.text);
    ASSERT_FALSE(found.status) << c.text;
    EXPECT_NE(found.status.error().to_string().find(c.says), std::string::npos)
        << found.status.error().to_string();
  }
}

}  // namespace
}  // namespace dsj::data
