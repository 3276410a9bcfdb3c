// dsj get [NAME]: lists jobs in the server's columns.
#include <cstdio>

#include "cli/cluster/object_result.h"
#include "cli/cluster/patience.h"
#include "cli/cluster/table.h"
#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"
#include "kube/watch.h"

namespace dsj::cli {
namespace {

constexpr std::chrono::seconds kWatchQuiet{600};

struct GetOptions {
  ClusterFlags flags;
  std::string name, output;
  bool all = false, watch = false;
};

class Get {
 public:
  Get(const GetOptions& options, Session& session)
      : options_(options),
        session_(session),
        ns_(options.all ? "" : session.ns),
        view_{.wide = options.output == "wide", .with_namespace = options.all} {}

  int objects() {
    Json all = Json::array();
    if (!options_.name.empty()) {
      auto job = session_.client.get(jobs_resource(), ns_, options_.name);
      if (!job) return failed(job.error());
      all.push_back(std::move(*job));
    } else {
      const auto listed = session_.client.list(jobs_resource(), ns_, {},
                                               [&](const Json& job) { all.push_back(job); });
      if (!listed) return failed(listed.error());
    }
    if (options_.output == "name") {
      for (const Json& job : all) std::printf("%s\n", word(job, "metadata.name").c_str());
      return 0;
    }
    const Json shown = options_.name.empty()
                           ? Json{{"apiVersion", "v1"}, {"kind", "List"}, {"items", all}}
                           : all[0];
    std::fputs(object_text(shown, options_.output).c_str(), stdout);
    return 0;
  }

  int table() {
    const auto table = session_.client.table(jobs_resource(), ns_, options_.name);
    if (!table) return failed(table.error());
    Rows rows = body(*table, view_);
    if (rows.empty() && !options_.watch) {
      std::fprintf(stderr, "No DeepSpeedJobs%s.\n",
                   options_.all ? "" : (" in namespace " + ns_).c_str());
      return 0;
    }
    rows.insert(rows.begin(), heading(*table, view_));
    std::fputs(columns_text(rows).c_str(), stdout);
    std::fflush(stdout);
    return options_.watch ? watch(word(*table, "metadata.resourceVersion"), rows) : 0;
  }

 private:
  int failed(const kube::ApiError& error) {
    return report_api("get", session_, options_.name.empty() ? "" : "job " + options_.name, error);
  }

  /// Prints a line per change in the first table's columns. After Gone it watches from now on.
  int watch(std::string version, const Rows& shown) {
    std::vector<size_t> widths(shown[0].size());
    for (const auto& row : shown)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    Patience patience("get", session_.clock);
    while (true) {
      auto lines = session_.client.watch_table(jobs_resource(), ns_, options_.name, version,
                                               session_.cancel);
      if (!lines && lines.error().kind == kube::ApiError::Kind::Gone) {
        version.clear();
      } else if (!lines && !patience.lasts(lines.error())) {
        return failed(lines.error());
      }
      while (lines) {
        patience.renew();
        const auto line = (*lines)->next(kWatchQuiet);
        if (!line && line.error().kind == kube::NetError::Kind::Timeout) continue;
        if (!line && line.error().kind == kube::NetError::Kind::Cancelled) return 0;
        if (!line || !*line) break;  // restart the watch at the last version
        const auto event = kube::parse_watch_event(**line);
        if (!event || event->kind == kube::WatchEvent::Kind::Error) {
          version.clear();
          break;
        }
        print(event->object, widths, version);
      }
      if (session_.clock.sleep(kLookAgain, session_.cancel)) return 0;
    }
  }

  /// Only the first table of a watch has columns, so the list's columns are used.
  void print(Json table, const std::vector<size_t>& widths, std::string& version) {
    if (!items(table, "columnDefinitions").empty())
      columns_ = table["columnDefinitions"];
    else
      table["columnDefinitions"] = columns_;
    for (const Json& row : items(table, "rows"))
      if (auto seen = word(row, "object.metadata.resourceVersion"); !seen.empty()) version = seen;
    for (auto& row : body(table, view_)) {
      for (size_t i = 0; i + 1 < row.size() && i < widths.size(); ++i)
        row[i].resize(std::max(row[i].size(), widths[i]), ' ');
      std::fputs(columns_text({row}).c_str(), stdout);
    }
    std::fflush(stdout);
  }

  const GetOptions& options_;
  Session& session_;
  const std::string ns_;
  const TableView view_;
  Json columns_ = Json::array();
};

}  // namespace

int run_get(Arguments args, const Connect& connect) {
  ArgumentParser parser{"Lists DeepSpeedJobs, in the columns of the resource.", "dsj get"};
  GetOptions options;
  parser.option("NAME", options.name, "one job (default: all of the namespace)");
  add_cluster_flags(parser, options.flags);
  parser.flag("-A,--all-namespaces", options.all, "of all namespaces");
  parser.flag("-w,--watch", options.watch, "print a line per change, until interrupted");
  parser.option("-o,--output", options.output, "wide, json, yaml or name")
      .one_of({"wide", "json", "yaml", "name"});
  if (const auto over = parser.parse(args)) return *over;
  const bool table = options.output.empty() || options.output == "wide";
  if (options.all && !options.name.empty())
    return report("get", Error{ErrorKind::BadInput, "NAME and -A are both given", "", "keep one"});
  if (options.watch && !table)
    return report("get", Error{ErrorKind::BadInput, "-w prints tables only", "",
                               "kubectl get dsj -w -o json"});
  const auto session = connect(options.flags);
  if (!session) return report("get", session.error());
  Get get(options, **session);
  return table ? get.table() : get.objects();
}

}  // namespace dsj::cli
