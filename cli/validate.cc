// dsj validate FILE: what is wrong with a ds_config or a DeepSpeedJob, before anything starts.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/verbs.h"
#include "common/dsconfig/check.h"
#include "common/dsconfig/key_table.h"

namespace dsj::cli {
namespace {

using dsconfig::Finding;
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

std::vector<Finding> findings_of(const Input& input) {
  if (input.job) {
    const Surroundings around = look_around(*input.job);
    auto findings = jobspec::resolve(*input.job, around.facts).findings;
    findings.insert(findings.end(), around.findings.begin(), around.findings.end());
    return findings;
  }
  auto findings = dsconfig::resolve_alone(input.ds_config.value).findings;
  dsconfig::locate(findings, input.ds_config.positions);
  return findings;
}

void print_json(bool valid, const std::vector<Finding>& findings) {
  json list = json::array();
  for (const Finding& finding : findings) {
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
  const json answer = {{"valid", valid}, {"findings", list}};
  std::puts(answer.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

void print_text(const std::string& file, const Input& input, bool valid,
                const std::vector<Finding>& findings) {
  jobspec::Job bare;
  bare.source = bare.ds_config_source = file;
  int counts[3] = {0, 0, 0};
  for (const Finding& finding : findings) {
    ++counts[static_cast<int>(finding.severity)];
    std::puts(jobspec::to_line(input.job ? *input.job : bare, finding).c_str());
  }
  std::printf("%s: %s: %d errors, %d unsupported, %d warnings\n", file.c_str(),
              valid ? "valid" : "not valid", counts[0], counts[1], counts[2]);
}

/// "FILE:LINE:COLUMN" as a finding's place.
Finding finding_of(const Error& error, const std::string& file) {
  Finding finding{Severity::Error, "", error.message, error.hint};
  if (error.where.starts_with(file + ":"))
    std::sscanf(error.where.c_str() + file.size(), ":%d:%d", &finding.line, &finding.column);
  return finding;
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

}  // namespace

int run_validate(Arguments args) {
  CLI::App app{"Checks a ds_config.json or a DeepSpeedJob. Exit code: 0 valid, 1 not, 2 usage.",
               "dsj validate"};
  std::string file, output = "text", keys;
  bool strict = false;
  auto* given =
      app.add_option("FILE", file, "a ds_config (JSON or Hjson) or a DeepSpeedJob (YAML)");
  app.add_option("-o,--output", output, "text or json")->check(CLI::IsMember({"text", "json"}));
  app.add_flag("--strict", strict, "a key that nobody reads is an error");
  auto* table = app.add_option("--keys", keys, "no FILE: every ds_config key, as markdown or json")
                    ->check(CLI::IsMember({"markdown", "json"}));
  given->excludes(table);
  if (const auto over = parse(app, args)) return *over;
  if (!keys.empty()) return print_keys(keys);
  if (file.empty())
    return report("validate", Error{ErrorKind::BadInput, "no FILE was given", "", "see --help"});

  const auto input = read_input(file);
  if (!input) return report("validate", input.error());
  std::vector<Finding> findings =
      input->syntax ? std::vector{finding_of(*input->syntax, file)} : findings_of(*input);
  if (strict) dsconfig::make_strict(findings);
  bool valid = true;
  for (const Finding& finding : findings) valid = valid && finding.severity != Severity::Error;
  if (output == "json")
    print_json(valid, findings);
  else
    print_text(file, *input, valid, findings);
  return valid ? 0 : 1;
}

}  // namespace dsj::cli
