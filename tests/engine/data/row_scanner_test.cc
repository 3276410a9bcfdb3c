#include "engine/data/row_scanner.h"

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
  found.status = scan_rows(**file, name, [&](const RowPlace& place, std::string_view row) {
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
