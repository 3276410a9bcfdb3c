// dsj describe NAME: describes one job.
#include <cstdio>

#include "cli/cluster/description.h"
#include "cli/cluster/verbs.h"
#include "cli/result_format.h"
#include "common/argument_parser.h"

namespace dsj::cli {

int run_describe(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Shows one job: progress, checkpoint, ds_config with the origin of every \"auto\", "
      "conditions, ranks by pod and node, failures with their last log lines, events.",
      "dsj describe"};
  ClusterFlags flags;
  std::string name, format;
  parser.option("NAME", name, "the job").required();
  add_cluster_flags(parser, flags);
  add_format_and_output(parser, format);
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(flags);
  if (!session) return report("describe", session.error());
  const auto what = look_at_job(**session, name);
  if (!what) return report_api("describe", **session, "job " + name, what.error());
  std::fputs((format == "json" ? document_text(to_json(*what))
                               : to_text(*what, now_seconds((*session)->clock)))
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace dsj::cli
