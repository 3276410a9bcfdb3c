#include "cli/run/run_sentences.h"

#include <csignal>

#include "common/format.h"
#include "job/contract.h"
#include "job/report/step_line.h"

namespace dsj::cli {
namespace {

std::string about_failure(const report::Failure& failure, const RunStatus& status,
                          const std::string& output_dir) {
  std::string text = "attempt " + std::to_string(failure.attempt) + " failed after step " +
                     std::to_string(failure.step) + ": " + failure.message;
  const bool by_others = failure.signal == SIGKILL && failure.reason != "HangDetected";
  if (by_others) text += "; if nobody killed it, the kernel did because memory ran out";
  if (failure.rank >= 0) {
    text += "\n  log: " + output_dir + "/" + contract::kLogsDir + "/rank-" +
            std::to_string(failure.rank) + ".log";
  }
  if (!failure.last_words.empty()) text += "\n" + quoted(failure.last_words);
  if (!failure.restart) return text;
  const auto saved = status.saved_step();
  return text + "\nrestart " + std::to_string(failure.restarts_used) + " of " +
         std::to_string(failure.restart_limit) +
         (failure.pause_ms > 0 ? " in " + std::to_string(failure.pause_ms) + " ms, "
                               : " at once, ") +
         (saved ? "from the checkpoint of step " + std::to_string(*saved) : "from the start");
}

std::string about_evaluation(const report::Eval& eval) {
  const std::string loss =
      eval.loss ? report::shown_number("%.4f", *eval.loss) : "unknown: no row has a target";
  std::string text = text::format("step %ld eval_loss %s (%ld rows", eval.step, loss.c_str(),
                                  eval.rows.value_or(0));
  if (const int64_t without = eval.rows_without_target.value_or(0); without > 0 && eval.loss)
    text += ", " + std::to_string(without) + " without a target";
  return text + ")";
}

std::string about_skipped(const report::Step& step) {
  return "warning: step " + std::to_string(step.step) + " was skipped" +
         (step.bad_gradient ? ": the gradient of " + *step.bad_gradient + " is not finite" : "");
}

/// How long the steps waited for a save; empty if no step follows or the time is unknown.
std::string about_stall(const report::Checkpoint& saved) {
  if (!saved.stall_seconds || saved.last.value_or(false)) return {};
  return text::format(", the steps waited %.0f ms", *saved.stall_seconds * 1000);
}

std::string without_line_end(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string result = "  | ";
  for (const char c : text) result += c == '\n' ? std::string("\n  | ") : std::string(1, c);
  return result;
}

std::optional<Sentence> sentence_of(const report::Report& told, const RunStatus& status,
                                    const std::string& output_dir) {
  using namespace report;
  using Said = std::optional<Sentence>;
  return std::visit(
      overloaded{
          [](const Attempt& one) -> Said {
            return {{"attempt " + std::to_string(one.attempt) + ": " +
                     std::to_string(one.world_size) + " ranks"}};
          },
          [](const Resumed& resumed) -> Said {
            return {
                {"resumed from step " + std::to_string(resumed.step) + " (" + resumed.path + ")"}};
          },
          [](const Damage& damage) -> Said {
            return {{"warning: " + damage.message, true}};
          },
          [](const Checkpoint& saved) -> Said {
            return {{"saved step " + std::to_string(saved.step) + " (" + saved.path + ")" +
                     about_stall(saved)}};
          },
          [](const Eval& eval) -> Said { return {{about_evaluation(eval)}}; },
          [](const Note& note) -> Said { return {{without_line_end(note.text)}}; },
          [](const Exported& exported) -> Said { return {{"model written to " + exported.path}}; },
          [](const Warning& warning) -> Said {
            const std::string who =
                warning.rank ? "rank " + std::to_string(*warning.rank) + ": " : "";
            return {{"warning: " + who + warning.message, true}};
          },
          [&](const Failure& failure) -> Said {
            return {{about_failure(failure, status, output_dir), true}};
          },
          [](const Stragglers& told) -> Said {
            return {{told.who ? "slow: " + *told.who : "no rank delays the others any more", true}};
          },
          [](const Step& step) -> Said {
            if (!step.skipped.value_or(false)) return {};
            return {{about_skipped(step), true}};
          },
          [](const Resolved&) -> Said { return {}; }, [](const CutRows&) -> Said { return {}; },
          [](const Log&) -> Said { return {}; }, [](const Memory&) -> Said { return {}; },
          [](const End&) -> Said { return {}; }},
      told);
}

}  // namespace dsj::cli
