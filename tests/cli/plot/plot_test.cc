// dsj plot: reading curves, the terminal's output, the page.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cli/plot/plot_page.h"
#include "cli/plot/plot_picture.h"
#include "cli/plot/plot_text.h"
#include "cli/verbs.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"

namespace dsj::cli {
namespace {

std::string line(int64_t step, const std::string& loss) {
  return "{\"step\":" + std::to_string(step) + ",\"loss\":" + loss +
         ",\"lr\":1e-5,\"grad_norm\":0.5,\"tokens_per_second\":300.5}\n";
}

Result<RunCurves> curves_of(const std::string& text) {
  MemoryFiles files;
  EXPECT_TRUE(files.make_dirs("runs/out"));
  EXPECT_TRUE(files.write_atomically("runs/out/metrics.jsonl", text));
  return read_curves(files, "runs/out/");
}

TEST(Plot, ReadsCompleteLinesWithFiniteValues) {
  const auto run = curves_of(line(1, "3.5") + line(2, "null") + "{\"step\":2,\"eval_loss\":2.5}\n" +
                             line(3, "2.0") + line(3, "1.5") + "garbage\n" + "{\"step\":4,\"lo");
  ASSERT_TRUE(run) << run.error().to_string();
  EXPECT_EQ(run->name, "out");
  EXPECT_EQ(run->steps, 3);
  ASSERT_EQ(run->curves.size(), 5u);
  EXPECT_EQ(run->curves[0].name, "loss");
  EXPECT_EQ(run->curves[0].points, (Points{{1, 3.5}, {3, 1.5}})) << "the later attempt's";
  EXPECT_EQ(run->curves[1].name, "eval_loss");
  EXPECT_EQ(run->curves[1].points, (Points{{2, 2.5}}));
}

TEST(Plot, ReportsValuesThatAreNotFinite) {
  const auto run =
      curves_of(line(1, "3.5") + line(2, "\"NaN\"") + line(3, "NaN") + line(4, "\"Infinity\"") +
                line(4, "2.5") + "{\"step\":5,\"loss\":\"NaN\",\"lr\":\"NaN\"}\n");
  ASSERT_TRUE(run) << run.error().to_string();
  const Curve& loss = run->curves[0];
  EXPECT_EQ(loss.points, (Points{{1, 3.5}, {4, 2.5}}));
  EXPECT_EQ(loss.not_finite, (std::vector<double>{2, 3, 5}));
  const std::string text = chart_text(loss, {.columns = 60});
  EXPECT_EQ(
      text.substr(0, text.find('\n')),
      "loss  last 2.5000, min 2.5000 at 4, max 3.5000 at 1; not finite in 3 steps, the first 2");
  const std::string page = plot_page({*run});
  EXPECT_NE(page.find("<p>out: not finite in 3 steps, the first 2</p>"), std::string::npos);
  EXPECT_NE(page.find("<p>out: not finite in step 5</p>"), std::string::npos) << "the rate's";
  EXPECT_NE(page.find("\"bad\":[2.0,3.0,5.0]"), std::string::npos);
  EXPECT_EQ(plot_svg({*run}, "loss")->find("nan"), std::string::npos) << "no shape lies nowhere";
}

TEST(Plot, ARunThatWasNeverFiniteHasAPageThatSaysSo) {
  const auto run = curves_of("{\"step\":1,\"loss\":\"NaN\"}\n{\"step\":2,\"loss\":\"NaN\"}\n");
  ASSERT_TRUE(run);
  ASSERT_EQ(run->curves.size(), 1u);
  EXPECT_EQ(chart_text(run->curves[0], {}), "loss  not finite in 2 steps, the first 1\n");
  const std::string page = plot_page({*run});
  EXPECT_NE(page.find("not finite in 2 steps"), std::string::npos);
  const auto picture = plot_svg({*run}, "loss");
  ASSERT_TRUE(picture);
  EXPECT_EQ(picture->find("inf"), std::string::npos);
  EXPECT_EQ(picture->find("nan"), std::string::npos);
}

TEST(Plot, EachDifficultyIsACurveAfterTheOthers) {
  const auto run = curves_of(
      "{\"step\":1,\"loss\":2,\"difficulty\":{\"seqlen\":8,\"random_ltd\":64}}\n"
      "{\"step\":2,\"loss\":1,\"difficulty\":{\"seqlen\":16,\"<i>\":1,\"x\":\"no\"}}\n");
  ASSERT_TRUE(run);
  EXPECT_EQ(
      curve_names({*run}),
      (std::vector<std::string>{"loss", "eval_loss", "lr", "grad_norm", "tokens_per_second",
                                "difficulty.<i>", "difficulty.random_ltd", "difficulty.seqlen"}));
  EXPECT_EQ(run->curves.back().points, (Points{{1, 8}, {2, 16}}));
  const std::string page = plot_page({*run});
  EXPECT_NE(page.find("<h2>difficulty.seqlen</h2>"), std::string::npos);
  EXPECT_EQ(page.find("<i>"), std::string::npos) << "names come from a file";
}

TEST(Plot, TheErrorOfAMissingFileSaysWhatToName) {
  MemoryFiles files;
  const auto run = read_curves(files, "nowhere");
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().kind, ErrorKind::BadInput);
  EXPECT_EQ(run.error().where, "nowhere/metrics.jsonl");
}

TEST(Plot, RunsWithTheSameNameAreDistinguishedByTheirPaths) {
  EXPECT_EQ(run_names({"a/run", "b/run/", "c/other"}),
            (std::vector<std::string>{"a/run", "b/run", "other"}));
  EXPECT_EQ(run_names({"x/1/run", "y/1/run"}), (std::vector<std::string>{"x/1/run", "y/1/run"}));
  EXPECT_EQ(run_names({"a/run", "a/run"}).front(), run_names({"a/run", "a/run"}).back())
      << "one run twice has one name";
}

TEST(Plot, ThinningKeepsSpikesAndOrder) {
  Points points;
  for (int i = 0; i < 10'000; ++i) points.emplace_back(i, i == 7777 ? 100.0 : 1.0 / (i + 1));
  const Points kept = thinned(points, 200);
  EXPECT_LE(kept.size(), 200u);
  EXPECT_TRUE(std::ranges::is_sorted(kept));
  EXPECT_NE(std::ranges::find(kept, std::pair{7777.0, 100.0}), kept.end());
  EXPECT_EQ(thinned(points, 20'000), points);
}

TEST(Plot, ChartFallsFromTopLeftToBottomRight) {
  const Curve curve{"loss", {{1, 4}, {2, 3}, {3, 2}, {4, 1}}};
  const std::string text = chart_text(curve, {.columns = 24, .rows = 4, .ascii = true});
  EXPECT_EQ(text,
            "loss  last 1.0000, min 1.0000 at 4, max 4.0000 at 1\n"
            "    4.0000 |****\n"
            "           |   ****\n"
            "           |      ****\n"
            "    1.0000 |         ***\n"
            "            1          4\n");
  const std::string dots = chart_text(curve, {.columns = 24, .rows = 4});
  EXPECT_NE(dots.find("    4.0000 ┤⠉⠒"), std::string::npos) << dots;
  EXPECT_EQ(dots.find('\x1b'), std::string::npos);
}

TEST(Plot, OnePointAndAFlatCurveAreDrawn) {
  EXPECT_NE(chart_text({"lr", {{5, 1e-5}}}, {.columns = 40, .ascii = true}).find('*'),
            std::string::npos);
  const std::string flat = chart_text({"lr", {{1, 2}, {9, 2}}}, {.columns = 40, .ascii = true});
  EXPECT_EQ(std::ranges::count(flat, '*'), 28) << flat;
}

TEST(Plot, ThePageIsSelfContained) {
  auto run = curves_of(line(1, "3.5") + line(2, "2.5"));
  ASSERT_TRUE(run);
  run->name = "a</script>b";
  run->status = {{"phase", "Complete"},
                 {"training", {{"resolvedConfig", {{"precision", "bf16"}}}}}};
  const std::string page = plot_page({*run, *run});
  for (const char* part :
       {"<h2>loss <small>nats per target token</small></h2>", "data-chart=\"tokens_per_second\"",
        "bf16", "Complete", "a&lt;/script&gt;b", "\"y\":[3.5,2.5]"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  for (const char* part : {"src=", "<link", "@import", "fetch(", "<h2>eval_loss"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
  // The namespace of SVG is an address that is never opened.
  EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg"));
  EXPECT_EQ(page.find("</script>"), page.rfind("</script>")) << "data ends no script";
  EXPECT_EQ(page.find("location.reload"), std::string::npos);
  EXPECT_NE(plot_page({*run}, 2).find("setTimeout(() => location.reload(), 2000);"),
            std::string::npos);
}

TEST(Plot, TicksAreRoundAndWithinTheCurve) {
  std::string texts;
  for (const double tick : round_ticks(0.03, 0.97, 5)) texts += tick_text(tick) + " ";
  EXPECT_EQ(texts, "0.2 0.4 0.6 0.8 ");
  EXPECT_EQ(round_ticks(1, 200, 7), (std::vector<double>{50, 100, 150, 200}));
  EXPECT_EQ(round_ticks(3, 3, 5), (std::vector<double>{3}));
  std::mt19937 draw(11);
  std::uniform_real_distribution<double> exponent(-9, 9);
  for (int i = 0; i < 1000; ++i) {
    const double low = std::pow(10, exponent(draw)) * (i % 2 ? 1 : -1);
    const double high = low + std::pow(10, exponent(draw));
    const auto ticks = round_ticks(low, high, 5);
    if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) {
      EXPECT_EQ(ticks, std::vector<double>{low});
      continue;
    }
    ASSERT_GE(ticks.size(), 2u) << low << " " << high;
    EXPECT_LE(ticks.size(), 7u) << low << " " << high;
    const double step = ticks[1] - ticks[0];
    EXPECT_GE(ticks.front(), low - step * 1e-6);
    EXPECT_LE(ticks.back(), high + step * 1e-6);
    const double lead = step / std::pow(10, std::floor(std::log10(step) + 1e-6));
    EXPECT_TRUE(std::abs(lead - 1) < 1e-3 || std::abs(lead - 2) < 1e-3 || std::abs(lead - 5) < 1e-3)
        << lead;
  }
  EXPECT_EQ(tick_text(200), "200");
  EXPECT_EQ(tick_text(1e-5), "1e-05");
}

TEST(Plot, ChartsFitTheLinesOfATerminal) {
  const Curve curve{"loss", {{1, 3}, {2, 2}, {9, 1}}};
  const auto lines_of = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  for (int count = 1; count <= 12; ++count) {
    const std::vector<Curve> curves(static_cast<size_t>(count), curve);
    for (int lines = 8 + count; lines < 200; ++lines) {
      const std::string text = charts_text(curves, {}, lines);
      ASSERT_LE(lines_of(text), lines) << count << " curves in " << lines;
    }
    EXPECT_EQ(lines_of(charts_text(curves, {}, 0)), count * 11) << "no terminal, no limit";
  }
  const std::string five = charts_text(std::vector<Curve>(5, curve), {}, 20);
  EXPECT_EQ(lines_of(five), 5 + 8 + 1 + 1) << five;
}

TEST(Plot, ThePictureHasTheCurveAndWhatRan) {
  auto run = curves_of(line(1, "3.5") + line(2, "3.25") + line(3, "2.5"));
  ASSERT_TRUE(run);
  run->name = "a<b";
  const auto alone = plot_svg({*run}, "loss");
  ASSERT_TRUE(alone) << alone.error().to_string();
  // Steps 1 to 3 lie on 70 to 850, losses 2.5 to 3.5 on 214 to 10.
  EXPECT_NE(alone->find("points=\"70.00,10.00 460.00,61.00 850.00,214.00\""), std::string::npos)
      << *alone;
  EXPECT_TRUE(alone->starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(alone->ends_with("</svg>\n"));
  EXPECT_NE(alone->find("a&lt;b"), std::string::npos);
  EXPECT_EQ(alone->find("class="), std::string::npos) << "the page's style is not there";

  run->status = {{"worldSize", 2},
                 {"training",
                  {{"resolvedConfig",
                    {{"precision", "bf16"},
                     {"zero_optimization", {{"stage", 3}}},
                     {"optimizer", {{"type", "AdamW"}}}}}}}};
  const auto told = plot_svg({*run}, "loss");
  ASSERT_TRUE(told);
  EXPECT_NE(told->find(">2 ranks, ZeRO stage 3, bf16, AdamW<"), std::string::npos) << *told;

  auto other = *run;
  other.name = "other";
  const auto two = plot_svg({*run, other}, "loss");
  ASSERT_TRUE(two);
  EXPECT_NE(two->find("fill=\"#dc2626\">other<"), std::string::npos) << "the key";
  EXPECT_NE(two->find("stroke=\"#dc2626\""), std::string::npos);
  const auto none = plot_svg({*run}, "eval_loss");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::BadInput);
}

TEST(Plot, VerbWritesThePageIntoTheOutputDirectory) {
  const std::string out = testing::TempDir() + "plot-" + std::to_string(getpid());
  PosixFiles files;
  ASSERT_TRUE(files.make_dirs(out));
  ASSERT_TRUE(files.write_atomically(out + "/metrics.jsonl", line(1, "3.5") + line(2, "2.5")));
  testing::internal::CaptureStdout();
  const std::vector<std::string> args = {out, "--ascii", "--svg", out + "/loss.svg"};
  EXPECT_EQ(run_plot(args), 0);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_NE(shown.find("loss  last 2.5000"), std::string::npos) << shown;
  EXPECT_TRUE(files.read_all(out + "/plot.html"));
  EXPECT_TRUE(files.read_all(out + "/loss.svg"));
  testing::internal::CaptureStdout();
  const std::vector<std::string> as_json = {out, "-o", "json"};
  EXPECT_EQ(run_plot(as_json), 0);
  const auto drawn = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(drawn["page"], out + "/plot.html");
  EXPECT_EQ(drawn["runs"][0]["steps"], 2);
  EXPECT_EQ(drawn["runs"][0]["curves"]["loss"]["points"],
            nlohmann::json::parse("[[1.0, 3.5], [2.0, 2.5]]"));
  const std::vector<std::string> nowhere = {out + "/nowhere"};
  EXPECT_EQ(run_plot(nowhere), 2);
  EXPECT_TRUE(files.remove_all(out));
}

}  // namespace
}  // namespace dsj::cli
