// dsj validate FILE: checks a ds_config or a DeepSpeedJob, without starting it.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/check/job_check.h"
#include "cli/input.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "job/argument_table.h"
#include "job/dsconfig/keys/key_table.h"
#include "job/dsconfig/read/check.h"
#include "job/spec/resource.h"

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

/// A finding at the error's "FILE:LINE:COLUMN".
Finding finding_of(const Error& error, const std::string& file) {
  Finding finding{Severity::Error, "", error.message, error.hint};
  if (error.where.starts_with(file + ":"))
    std::sscanf(error.where.c_str() + file.size(), ":%d:%d", &finding.line, &finding.column);
  return finding;
}

/// The findings about a file, and what it leaves to its job.
struct Verdict {
  std::vector<Finding> findings;
  std::vector<Note> notes;
  bool valid() const { return only_warnings(findings); }
};

Verdict verdict_on(const Input& input, const std::string& file, FilesAre files) {
  if (input.syntax) return {{finding_of(*input.syntax, file)}, {}};
  if (input.job) {
    const CheckOptions options{.files = input.for_cluster ? FilesAre::InContainers : files};
    return {check_job(*input.job, options, ThisMachine()).findings, {}};
  }
  dsconfig::Resolution alone = dsconfig::resolve_alone(input.ds_config.value);
  dsconfig::locate(alone.findings, input.ds_config.positions);
  return {std::move(alone.findings), std::move(alone.notes)};
}

/// The job of the findings; for a bare ds_config a stand-in.
jobspec::Job job_of(const Input& input, const std::string& file) {
  if (input.job) return *input.job;
  jobspec::Job bare;
  bare.source = bare.ds_config_source = file;
  return bare;
}

void print_json(const jobspec::Job& job, const Verdict& verdict) {
  json list = json::array(), notes = json::array();
  for (const Finding& finding : verdict.findings) {
    const jobspec::FindingPlace place = jobspec::place_of(job, finding);
    json one = {{"severity", name_of(finding.severity)},
                {"file", place.file},
                {"path", place.name},
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
  std::fputs(document_text(answer).c_str(), stdout);
}

/// The plural ending of a noun after `count`.
const char* ending(int count) {
  return count == 1 ? "" : "s";
}

void print_text(const std::string& file, const jobspec::Job& job, const Verdict& verdict,
                const char* where) {
  int counts[3] = {0, 0, 0};
  for (const Finding& finding : verdict.findings) {
    ++counts[static_cast<int>(finding.severity)];
    std::puts(jobspec::to_line(job, finding).c_str());
  }
  for (const Note& note : verdict.notes)
    std::printf("%s: note: %s: %s (%s)\n", file.c_str(), note.path.c_str(), note.message.c_str(),
                note.hint.c_str());
  std::printf("%s: %s%s: %d error%s, %d unsupported, %d warning%s", file.c_str(),
              verdict.valid() ? "valid" : "not valid", where, counts[0], ending(counts[0]),
              counts[1], counts[2], ending(counts[2]));
  const int notes = static_cast<int>(verdict.notes.size());
  if (notes != 0) std::printf(", %d note%s", notes, ending(notes));
  std::puts("");
}

/// --keys: prints the key table instead of findings.
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

/// --arguments: prints how each argument is handled.
int print_arguments() {
  std::fputs(argument_table_markdown().c_str(), stdout);
  return 0;
}

/// --fields: prints docs/fields.md or, for a file of crds/, the expected content of that file.
int print_fields(const std::string& file) {
  if (file.empty()) {
    std::fputs(jobspec::fields_markdown().c_str(), stdout);
    return 0;
  }
  PosixFiles files;
  const auto committed = files.read_all(file);
  if (!committed) return report("validate", committed.error());
  const auto text = jobspec::resource_text(*committed);
  if (!text) return report("validate", text.error());
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace

int run_validate(Arguments args) {
  ArgumentParser parser{
      "Checks a ds_config.json, a DeepSpeedJob, or the arguments of a torchrun line. `dsj run` "
      "starts every job that passes. The command opens the files that a job names and checks "
      "every row. It checks a manifest with a pod template, or with another field for clusters "
      "only, as a cluster does. A note lists what a ds_config leaves to its job; it is not an "
      "error. Exit code: 0 valid, 1 invalid, 2 usage.",
      "dsj validate"};
  std::string file, output, keys;
  std::vector<std::string> overrides;
  bool strict = false, elsewhere = false, arguments = false, fields = false;
  const auto given = parser.option(
      "FILE", file,
      "a ds_config (JSON or Hjson) or a DeepSpeedJob (YAML); or a line: --nproc_per_node=2 ...");
  add_format_and_output(parser, output);
  parser.option("--set", overrides, "spec.path=value, any number of times").one_word_each();
  parser.flag("--strict", strict, "an unknown key is an error");
  parser.flag("--elsewhere", elsewhere,
              "the job is for another machine: a file that is not here is a warning");
  const auto table =
      parser.option("--keys", keys, "no FILE: every ds_config key, as markdown or json")
          .one_of({"markdown", "json"});
  given.excludes(table);
  parser.flag("--arguments", arguments, "no FILE: how each argument is handled, as markdown");
  parser.flag("--fields", fields,
              "the fields of a DeepSpeedJob, as markdown; FILE of crds/: the resource from them");
  JobWords words = split_words(args, {{"-o"},
                                      {"--output"},
                                      {"--set"},
                                      {"--strict", false},
                                      {"--elsewhere", false},
                                      {"--keys"},
                                      {"--arguments", false},
                                      {"--fields", false},
                                      {"--help", false},
                                      {"-h", false}});
  words.own.insert(words.own.end(), words.file.begin(), words.file.end());
  if (const auto over = parser.parse(words.own)) return *over;
  if (!keys.empty()) return print_keys(keys);
  if (arguments) return print_arguments();
  if (fields) return print_fields(file);
  if (file.empty() && words.line.empty())
    return report("validate", Error{ErrorKind::BadInput, "no FILE was given", "", "see --help"});

  const auto input = words.line.empty() ? read_input(file, overrides, Reading::ByContent)
                                        : read_line(words.line, overrides);
  if (!input) return report("validate", input.error());
  if (file.empty()) file = input->job->source;
  Verdict verdict = verdict_on(*input, file, elsewhere ? FilesAre::Elsewhere : FilesAre::Here);
  if (strict) dsconfig::make_strict(verdict.findings);
  const jobspec::Job job = job_of(*input, file);
  if (output == "json")
    print_json(job, verdict);
  else
    print_text(file, job, verdict, input->for_cluster ? " for a cluster" : "");
  return verdict.valid() ? 0 : 1;
}

}  // namespace dsj::cli
