// dsj validate FILE: what is wrong with a ds_config or a DeepSpeedJob, before anything starts.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "job/argument_table.h"
#include "job/dsconfig/check.h"
#include "job/dsconfig/key_table.h"

namespace dsj::cli {
namespace {

using dsconfig::Finding;
using dsconfig::Note;
using nlohmann::json;
using Severity = Finding::Severity;

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return "error";
    case Severity::Unsupported:
      return "unsupported";
    case Severity::Warning:
      return "warning";
  }
  return "error";
}

/// "FILE:LINE:COLUMN" as a finding's place.
Finding finding_of(const Error& error, const std::string& file) {
  Finding finding{Severity::Error, "", error.message, error.hint};
  if (error.where.starts_with(file + ":"))
    std::sscanf(error.where.c_str() + file.size(), ":%d:%d", &finding.line, &finding.column);
  return finding;
}

/// What is wrong with a file, and what it leaves to its job.
struct Verdict {
  std::vector<Finding> findings;
  std::vector<Note> notes;
  bool valid() const {
    return std::ranges::none_of(findings,
                                [](const auto& one) { return one.severity == Severity::Error; });
  }
};

Verdict verdict_on(const Input& input, const std::string& file) {
  if (input.syntax) return {{finding_of(*input.syntax, file)}, {}};
  if (input.job) {
    const Surroundings around = look_around(*input.job);
    auto findings = jobspec::resolve(*input.job, around.facts).findings;
    findings.insert(findings.end(), around.findings.begin(), around.findings.end());
    return {std::move(findings), {}};
  }
  dsconfig::Resolution alone = dsconfig::resolve_alone(input.ds_config.value);
  dsconfig::locate(alone.findings, input.ds_config.positions);
  return {std::move(alone.findings), std::move(alone.notes)};
}

void print_json(const Verdict& verdict) {
  json list = json::array(), notes = json::array();
  for (const Finding& finding : verdict.findings) {
    json one = {{"severity", name_of(finding.severity)},
                {"path", finding.path},
                {"message", finding.message},
                {"hint", finding.hint}};
    if (finding.line > 0) {
      one["line"] = finding.line;
      one["column"] = finding.column;
    }
    list.push_back(std::move(one));
  }
  for (const Note& note : verdict.notes)
    notes.push_back({{"path", note.path}, {"message", note.message}, {"hint", note.hint}});
  const json answer = {{"valid", verdict.valid()}, {"findings", list}, {"notes", notes}};
  std::puts(answer.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

/// Of a noun, after `count`.
const char* ending(int count) {
  return count == 1 ? "" : "s";
}

void print_text(const std::string& file, const Input& input, const Verdict& verdict) {
  jobspec::Job bare;
  bare.source = bare.ds_config_source = file;
  int counts[3] = {0, 0, 0};
  for (const Finding& finding : verdict.findings) {
    ++counts[static_cast<int>(finding.severity)];
    std::puts(jobspec::to_line(input.job ? *input.job : bare, finding).c_str());
  }
  for (const Note& note : verdict.notes)
    std::printf("%s: note: %s: %s (%s)\n", file.c_str(), note.path.c_str(), note.message.c_str(),
                note.hint.c_str());
  std::printf("%s: %s: %d error%s, %d unsupported, %d warning%s", file.c_str(),
              verdict.valid() ? "valid" : "not valid", counts[0], ending(counts[0]), counts[1],
              counts[2], ending(counts[2]));
  const int notes = static_cast<int>(verdict.notes.size());
  if (notes != 0) std::printf(", %d note%s", notes, ending(notes));
  std::puts("");
}

/// --keys: the table itself instead of a file's findings.
int print_keys(const std::string& format) {
  if (format == "json") {
    const auto table = dsconfig::key_table_json();
    if (!table) return report("validate", table.error());
    std::puts(table->dump(2).c_str());
    return 0;
  }
  const auto page = dsconfig::key_table_markdown();
  if (!page) return report("validate", page.error());
  std::fputs(page->c_str(), stdout);
  return 0;
}

/// --arguments: what becomes of every argument.
int print_arguments() {
  std::fputs(argument_table_markdown().c_str(), stdout);
  return 0;
}

}  // namespace

int run_validate(Arguments args) {
  ArgumentParser parser{
      "Checks a ds_config.json or a DeepSpeedJob. A note says what a ds_config leaves to "
      "its job; it is no error. Exit code: 0 valid, 1 not, 2 usage.",
      "dsj validate"};
  std::string file, output = "text", keys;
  bool strict = false, arguments = false;
  const auto given =
      parser.option("FILE", file, "a ds_config (JSON or Hjson) or a DeepSpeedJob (YAML)");
  parser.option("-o,--output", output, "text or json").one_of({"text", "json"});
  parser.flag("--strict", strict, "a key that nobody reads is an error");
  const auto table =
      parser.option("--keys", keys, "no FILE: every ds_config key, as markdown or json")
          .one_of({"markdown", "json"});
  given.excludes(table);
  parser.flag("--arguments", arguments, "no FILE: what becomes of each argument, as markdown");
  if (const auto over = parser.parse(args)) return *over;
  if (!keys.empty()) return print_keys(keys);
  if (arguments) return print_arguments();
  if (file.empty())
    return report("validate", Error{ErrorKind::BadInput, "no FILE was given", "", "see --help"});

  const auto input = read_input(file);
  if (!input) return report("validate", input.error());
  Verdict verdict = verdict_on(*input, file);
  if (strict) dsconfig::make_strict(verdict.findings);
  if (output == "json")
    print_json(verdict);
  else
    print_text(file, *input, verdict);
  return verdict.valid() ? 0 : 1;
}

}  // namespace dsj::cli
