// The rules of the training arguments, including those without a key in ds_config.
#include <cmath>
#include <sstream>

#include "common/day.h"
#include "common/template_word.h"
#include "common/text.h"
#include "job/dsconfig/config/loss_normalization.h"
#include "job/dsconfig/sections/parts.h"
#include "job/training_schema.h"

namespace dsj::dsconfig {

namespace {

void check_range(const NumberRange& range, const std::string& path, double found, Report& out) {
  const auto error = [&](const char* expected, double bound) {
    out.error(path, "found " + text::number(found) + ", expected " + expected + " " +
                        text::number(bound));
  };
  if (range.least && (range.least_open ? found <= *range.least : found < *range.least))
    error(range.least_open ? "more than" : "at least", *range.least);
  if (range.most && (range.most_open ? found >= *range.most : found > *range.most))
    error(range.most_open ? "less than" : "at most", *range.most);
}

void check_choice(const TrainingField& field, const std::string& path, const std::string& found,
                  Report& out) {
  std::string expected, word;
  for (std::istringstream words{std::string(field.choices)}; words >> word;) {
    if (word == found) return;
    expected += (expected.empty() ? "" : " or ") + word;
  }
  const bool takes_file = std::string_view(field.name) == "chatTemplate";
  if (takes_file && template_word(found) != TemplateWord::Name) return;
  out.error(path, "\"" + found + "\" is not a choice",
            "expected " + expected + (takes_file ? ", or a .jinja file, or a template" : ""));
}

}  // namespace

void check_arguments(const TrainingArgs& args, Report& out) {
  for (const TrainingField& field : training_fields()) {
    const std::string path = std::string("training.") + field.name;
    if (const auto number = number_of(field, args)) check_range(field.range, path, *number, out);
    if (const auto text = text_of(field, args); text && !field.choices.empty())
      check_choice(field, path, *text, out);
  }
  if (args.logging_strategy.value_or("steps") == "steps" && args.logging_steps == 0.0)
    out.error("training.loggingSteps", "found 0, expected more than 0");
  const auto whole_or_share = [&](const char* name, const std::optional<double>& value) {
    if (value && *value > 1 && (*value != std::floor(*value) || *value > 1e15))
      out.error(std::string("training.") + name,
                "found " + text::number(*value) +
                    ", expected a whole number of steps, or a share of the run below 1");
  };
  whole_or_share("loggingSteps", args.logging_steps);
  whole_or_share("saveSteps", args.save_steps);
  whole_or_share("evalSteps", args.eval_steps);
  if (args.group_by_length.value_or(false) && !args.shuffle.value_or(true))
    out.error("training.groupByLength",
              "training.shuffle is false, and groups of one length are drawn from a random order",
              "leave one of the two out");

  if (args.mask_history.value_or(false) && args.train_on_inputs.value_or(false))
    out.error("training.maskHistory",
              "training.trainOnInputs makes every token a target, the history's too",
              "leave one of the two out");
  if (args.chat_date && !seconds_of_day(*args.chat_date))
    out.error("training.chatDate", "\"" + *args.chat_date + "\" is not a day",
              "expected YYYY-MM-DD");

  check_objective(args, out);
  const auto& normalization = args.loss_normalization;
  const bool judges = args.objective == "dpo" || args.objective == "orpo" ||
                      args.objective == "kto" || args.objective == "reward";
  out.origin("loss_normalization",
             normalization.value_or(
                 name_of(judges ? LossNormalization::MicroBatch : LossNormalization::Token)),
             normalization ? "training.lossNormalization" : kHuggingFaceDefault);
}

void check_row_length(const Source& in, Report& out) {
  const auto& asked = in.args.max_seq_length;
  const auto& positions = in.facts.positions;
  if (!asked || !positions || *asked <= *positions) return;
  const std::string of = " and the model's max_position_embeddings " + std::to_string(*positions);
  if (in.facts.positions_learned)
    out.warning("training.maxSeqLength",
                "it is " + std::to_string(*asked) + of + ": longer rows are cut there",
                "the model has no parameters for later positions");
  else
    out.warning("training.maxSeqLength",
                "it is " + std::to_string(*asked) + of +
                    ": the model never saw later positions, and rows are trained on there all the "
                    "same",
                "leave maxSeqLength out to cut rows at the model's length");
}

}  // namespace dsj::dsconfig
