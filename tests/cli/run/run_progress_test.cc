#include "cli/run/run_progress.h"

#include <gtest/gtest.h>

#include "tests/cli/written.h"

namespace dsj::cli {
namespace {

ProgressView view() {
  return {.line = {.step = 50,
                   .total = 200,
                   .loss = 1.93124,
                   .lr = 9.8e-7,
                   .grad_norm = 0.921,
                   .tokens_per_second = 312.4},
          .seconds_left = 4205};
}

TEST(Progress, LineHasEveryNumber) {
  EXPECT_EQ(line_text(view()),
            "step 50/200 loss 1.9312 lr 9.8e-07 grad_norm 0.921 312 tok/s, 1:10:05 left");
  EXPECT_EQ(line_text({.line = {.step = 3, .loss = 2.0}}), "step 3 loss 2.0000");
}

TEST(Progress, BarShrinksBeforeTheTextIsCut) {
  for (int columns = 1; columns < 200; ++columns) {
    EXPECT_LE(bar_text(view(), columns).size(), static_cast<size_t>(columns));
  }
  const std::string wide = bar_text(view(), 200);
  EXPECT_NE(wide.find("[##########..............................]"), std::string::npos) << wide;
  EXPECT_EQ(bar_text(view(), 60).find('['), std::string::npos);
  EXPECT_EQ(bar_text({.label = "starting"}, 80), "starting");
}

TEST(Progress, FormatsDurations) {
  EXPECT_EQ(duration_text(7.4), "0:07");
  EXPECT_EQ(duration_text(723), "12:03");
  EXPECT_EQ(duration_text(4205), "1:10:05");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600 + 300), "3 d 04:05");
  EXPECT_EQ(duration_text(-5), "0:00");
}

TEST(Progress, PrintsPlainLinesOnlyWithoutATerminal) {
  for (const bool terminal : {false, true}) {
    std::FILE* file = std::tmpfile();
    Progress progress(file, terminal);
    for (const int64_t step : {10, 20}) progress.line({.line = {.step = step, .total = 25}});
    EXPECT_EQ(written(file), terminal ? "" : "step 10/25\nstep 20/25\n");
    std::fclose(file);
  }
}

TEST(Progress, TheBarIsRedrawnInPlaceBelowPrintedLines) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, true);
    progress.show({.line = {.step = 1}});
    progress.redraw();
    progress.print(file, "saved");
  }
  EXPECT_EQ(written(file), "\r1 \x1b[K\r\x1b[Ksaved\n\r1 \x1b[K\r\x1b[K");
  std::fclose(file);
}

TEST(Progress, LinesArePrintedAboveTheBarOnRequest) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, /*terminal=*/true, /*lines=*/true);
    progress.show({.line = {.step = 2}});
    progress.redraw();
    progress.line({.line = {.step = 2, .total = 4}});
  }
  EXPECT_NE(written(file).find("\r\x1b[Kstep 2/4\n"), std::string::npos);
  std::fclose(file);
}

}  // namespace
}  // namespace dsj::cli
