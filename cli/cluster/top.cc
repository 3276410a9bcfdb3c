// dsj top: lists the running jobs by speed, fastest first.
#include <algorithm>
#include <cstdio>

#include "cli/cluster/table.h"
#include "cli/cluster/verbs.h"
#include "cli/result_format.h"
#include "common/argument_parser.h"
#include "common/format.h"
#include "common/text.h"

namespace dsj::cli {
namespace {

struct TopOptions {
  ClusterFlags flags;
  std::string name, format;
  bool all = false;
};

double speed_of(const Json& job) {
  return text::parse_double(word(job, "status.training.tokensPerSecond")).value_or(0);
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::vector<std::string> row_of(const Json& job, int64_t now, bool with_namespace) {
  const int64_t ranks = whole(job, "status.training.worldSize", 0);
  const double speed = speed_of(job);
  const std::string total = word(job, "status.training.totalSteps");
  const std::string left = word(job, "status.training.estimatedRemainingSeconds");
  std::vector<std::string> row;
  if (with_namespace) row.push_back(word(job, "metadata.namespace"));
  row.insert(row.end(),
             {word(job, "metadata.name"), std::to_string(ranks),
              or_dash(word(job, "status.training.step")) + (total.empty() ? "" : "/" + total),
              or_dash(word(job, "status.training.loss")), text::format("%.0f", speed),
              ranks > 0 ? text::format("%.0f", speed / static_cast<double>(ranks)) : "-",
              left.empty() ? "-" : left + "s",
              age_text(word(job, "status.training.lastUpdatedTime"), now)});
  return row;
}

/// The values that a job has reported, under the names of its status.
Json entry_of(const Json& job) {
  Json entry = {{"namespace", word(job, "metadata.namespace")},
                {"name", word(job, "metadata.name")}};
  for (const char* field : {"worldSize", "step", "totalSteps", "loss", "tokensPerSecond",
                            "estimatedRemainingSeconds", "lastUpdatedTime"})
    if (const Json* value = find(job, std::string("status.training.") + field))
      entry[field] = *value;
  return entry;
}

}  // namespace

int run_top(Arguments args, const Connect& connect) {
  ArgumentParser parser{"Shows how fast the running jobs train, fastest first.", "dsj top"};
  TopOptions options;
  parser.option("NAME", options.name, "one job (default: all running jobs)");
  add_cluster_flags(parser, options.flags);
  parser.flag("-A,--all-namespaces", options.all, "of all namespaces");
  add_format_and_output(parser, options.format);
  if (const auto over = parser.parse(args)) return *over;
  if (options.all && !options.name.empty())
    return report("top", Error{ErrorKind::BadInput, "NAME and -A are both given", "", "keep one"});
  const auto session = connect(options.flags);
  if (!session) return report("top", session.error());
  const std::string ns = options.all ? "" : (*session)->ns;
  std::vector<Json> jobs;
  if (!options.name.empty()) {
    const auto job = (*session)->client.get(jobs_resource(), ns, options.name);
    if (!job) return report_api("top", **session, "job " + options.name, job.error());
    jobs.push_back(*job);
  } else {
    const auto listed = (*session)->client.list(jobs_resource(), ns, {}, [&](const Json& job) {
      if (word(job, "status.phase") == "Running") jobs.push_back(job);
    });
    if (!listed) return report_api("top", **session, "", listed.error());
  }
  if (jobs.empty() && options.format != "json") {
    std::fprintf(stderr, "no job runs%s\n", ns.empty() ? "" : (" in namespace " + ns).c_str());
    return 0;
  }
  std::ranges::stable_sort(jobs,
                           [](const Json& a, const Json& b) { return speed_of(a) > speed_of(b); });
  if (options.format == "json") {
    Json list = Json::array();
    for (const Json& job : jobs) list.push_back(entry_of(job));
    std::fputs(document_text({{"jobs", list}}).c_str(), stdout);
    return 0;
  }
  Rows rows = {{"NAME", "RANKS", "STEP", "LOSS", "TOK/S", "TOK/S/RANK", "ETA", "REPORTED"}};
  if (options.all) rows[0].insert(rows[0].begin(), "NAMESPACE");
  for (const Json& job : jobs)
    rows.push_back(row_of(job, now_seconds((*session)->clock), options.all));
  std::fputs(columns_text(rows).c_str(), stdout);
  return 0;
}

}  // namespace dsj::cli
