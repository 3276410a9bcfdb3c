#include "engine/data/files/csv.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "common/files/memory_files.h"
#include "engine/data/files/row_scanner.h"

namespace dsj::data {
namespace {

using Row = std::vector<std::string>;

/// Rows of a CSV file, each as "line json"; or the error.
Row rows_of(const std::string& text) {
  MemoryFiles files;
  EXPECT_TRUE(files.write_synced("d.csv", text));
  const auto file = files.open_read("d.csv").value();
  const auto header = csv_header_of(*file).value();
  Row rows;
  const Status status =
      scan_rows(*file, "d.csv", header, [&](const RowPlace& place, std::string_view raw) {
        EXPECT_EQ(text.substr(static_cast<size_t>(place.offset), static_cast<size_t>(place.length)),
                  raw);
        const auto row = csv_json(*header, raw);
        rows.push_back(std::to_string(place.line) + " " + (row ? *row : row.error().message));
      });
  if (!status) rows.push_back(status.error().to_string());
  return rows;
}

TEST(Csv, QuotedFieldsHoldSeparatorsLineEndsAndQuotes) {
  EXPECT_EQ(rows_of("instruction,output\r\n\"a, b\",c\r\n\"line\nend\",\"say \"\"x\"\"\"\n\nd,\n"),
            (Row{R"(2 {"instruction":"a, b","output":"c"})",
                 R"(3 {"instruction":"line\nend","output":"say \"x\""})",
                 R"(6 {"instruction":"d","output":null})"}));
}

TEST(Csv, ByteOrderMarksAndSeparatorsAreRecognized) {
  EXPECT_EQ(rows_of("\xEF\xBB\xBFprompt;completion\nx,y;z"),
            (Row{R"(2 {"prompt":"x,y","completion":"z"})"}));
  EXPECT_EQ(rows_of("question\tanswer\na\tb\n"), (Row{R"(2 {"question":"a","answer":"b"})"}));
  EXPECT_EQ(rows_of("text\nhello, world\n"), (Row{R"(2 {"text":"hello, world"})"}));
  EXPECT_EQ(rows_of(",text,n\n0,a,1\n"), (Row{R"(2 {"Unnamed: 0":"0","text":"a","n":"1"})"}));
}

TEST(Csv, ColumnsOfListsHoldJson) {
  EXPECT_EQ(
      rows_of("id,messages\n1,\"[{\"\"role\"\":\"\"user\"\"}]\"\n2,[oops\n"),
      (Row{R"(2 {"id":"1","messages":[{"role":"user"}]})", R"(3 {"id":"2","messages":"[oops"})"}));
}

TEST(Csv, AFileMayHaveOneColumnThatIsTheWholeRow) {
  EXPECT_EQ(rows_of("messages\n\"[{\"\"role\"\":\"\"user\"\"}, 1]\"\n"),
            Row{R"(2 {"messages":[{"role":"user"},1]})"});
  EXPECT_EQ(rows_of("input_ids\n\"[1, 2]\"\n[3]\n"),
            (Row{R"(2 {"input_ids":[1,2]})", R"(3 {"input_ids":[3]})"}));
}

TEST(Csv, ErrorsAreReported) {
  EXPECT_EQ(rows_of("a,b\n1,2,3\n"), Row{"2 has 3 fields, and the header names 2"});
  EXPECT_NE(rows_of("a,b\n\"x\"y,1\n")[0].find("quote"), std::string::npos);
  EXPECT_NE(rows_of("a,b\n\xFF,1\n")[0].find("is not UTF-8"), std::string::npos);
  EXPECT_NE(rows_of("a,b\n1,\"open\n2,3\n")[0].find(
                "ends inside a quoted field of row 0, which begins in line 2"),
            std::string::npos);
  for (const char* none : {"", "prose without columns\nmore", "a,a\n1,2", "a,,b\n1,2,3", "\"a,b\n"})
    EXPECT_FALSE(csv_header(none)) << none;
}

/// Any fields that are written by RFC 4180 are read back.
TEST(Csv, DrawnFieldsAreReadBack) {
  std::mt19937 random(11);
  const std::string letters = "ab,;\"\n\r\t {}[]é";
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<std::string>> rows(1 + random() % 5, std::vector<std::string>(3));
    std::string text = "one,two,three\n";
    for (auto& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = "x";
        for (size_t n = random() % 6; n > 0; --n) {
          const size_t at = random() % 13;
          row[i] += at == 12 ? std::string("é") : std::string(1, letters[at]);
        }
        std::string quoted;
        for (const char c : row[i]) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
        text += (i ? ",\"" : "\"") + quoted + "\"";
      }
      text += random() % 2 ? "\r\n" : "\n";
    }
    const Row found = rows_of(text);
    ASSERT_EQ(found.size(), rows.size()) << text;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto json = nlohmann::json::parse(found[i].substr(found[i].find('{')));
      EXPECT_EQ(json["one"], rows[i][0]);
      EXPECT_EQ(json["two"], rows[i][1]);
      EXPECT_EQ(json["three"], rows[i][2]);
    }
  }
}

}  // namespace
}  // namespace dsj::data
