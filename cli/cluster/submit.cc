// dsj submit JOB.yaml: checks a manifest like the operator and creates the job. Bad input creates
// nothing.
#include <cstdio>

#include "cli/cluster/object_result.h"
#include "cli/cluster/verbs.h"
#include "cli/cluster/waiting.h"
#include "cli/input.h"
#include "common/argument_parser.h"
#include "job/contract.h"
#include "job/spec/job.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

using dsconfig::Finding;

constexpr char kStandardInput[] = "/dev/stdin";

struct SubmitOptions {
  ClusterFlags flags;
  std::string file, name;
  bool dry_run = false, wait = false;
};

/// Returns the object to create. Prints the findings of `dsj validate` on stderr.
Result<Json> manifest_of(const SubmitOptions& options) {
  const bool piped = options.file == "-";
  DSJ_TRY(const std::string text, dsconfig::text_of_file(piped ? kStandardInput : options.file));
  // A file that the manifest names lies beside it, or where the command runs.
  const std::string source = piped ? "stdin" : options.file;
  DSJ_TRY(auto document, jobspec::parse_yaml(text, source));
  Json manifest = std::move(document.value);
  if (!manifest.is_object() || word(manifest, "kind") != contract::kKind)
    return bad_input("this is not a DeepSpeedJob", source, "kind: DeepSpeedJob is expected");
  DSJ_TRY_STATUS(take_in_config(manifest, source));
  if (!options.name.empty()) manifest["metadata"]["name"] = options.name;
  DSJ_TRY(auto job, jobspec::read_cluster_manifest(manifest));
  job.source = source;
  // A ConfigMap can be read only in the cluster.
  const auto findings = job.ds_config_map ? job.findings : jobspec::resolve(job, {}).findings;
  bool good = true;
  for (const Finding& finding : findings) {
    std::fprintf(stderr, "%s\n", jobspec::to_line(job, finding).c_str());
    good = good && finding.severity == Finding::Severity::Warning;
  }
  if (!good) return bad_input("the job cannot run; nothing was created", source);
  return manifest;
}

/// `name`: set to the job's name, which the API server may have generated.
int submit(const SubmitOptions& options, Json manifest, Session& session, std::string& name,
           ObjectResult& result) {
  name = word(manifest, "metadata.name");
  const std::string ns = options.flags.ns.empty() ? word(manifest, "metadata.namespace") : "";
  if (!ns.empty() && ns != session.ns)
    return report("submit", Error{ErrorKind::BadInput, "the manifest is for namespace " + ns,
                                  options.file, "submit it with -n " + ns});
  manifest["metadata"].erase("namespace");
  if (options.dry_run) {
    std::printf("%s can be created in namespace %s\n", name.c_str(), session.ns.c_str());
    return 0;
  }
  const auto made = session.client.create(jobs_resource(), session.ns, manifest);
  if (!made && made.error().kind == kube::ApiError::Kind::AlreadyExists)
    return report("submit", Error{ErrorKind::BadInput, "a job with this name exists", "job " + name,
                                  "kubectl apply -f changes it; --name makes another"});
  if (!made) return report_api("submit", session, "job " + name, made.error());
  name = word(*made, "metadata.name");
  std::printf("%s is created; dsj logs -f %s follows it\n", name.c_str(), name.c_str());
  std::fflush(stdout);
  if (!options.wait) {
    result.answered(*made);
    return 0;
  }
  const Wait wait{.verb = "submit",
                  .name = name,
                  .uid = word(*made, "metadata.uid"),
                  .timeout = {},
                  .progress = true};
  return wait_for_job(session, wait, [&](const Json& job) -> std::optional<Answer> {
    if (word(job, "status.phase") == "Complete") return Answer{};
    return given_up(name, job);
  });
}

}  // namespace

int run_submit(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Creates a job in a cluster, after the checks of `dsj validate`. The ds_config may be a file "
      "beside the manifest, as for `dsj run`.",
      "dsj submit"};
  SubmitOptions options;
  parser.option("-f,--filename,FILE", options.file, "a DeepSpeedJob (YAML); -: standard input")
      .required();
  add_cluster_flags(parser, options.flags);
  parser.option("--name", options.name, "the job's name (default: the manifest's)");
  const auto dry = parser.flag("--dry-run", options.dry_run, "only check the manifest");
  parser.flag("--wait", options.wait, "wait until the job has ended; the exit code is then 0 or 1");
  ObjectResult result(parser);
  result.excludes(dry);
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(options.flags);
  if (!session) return report("submit", session.error());
  auto manifest = manifest_of(options);
  if (!manifest) return report("submit", manifest.error());
  std::string name;
  return result.of("submit", **session, name,
                   [&] { return submit(options, std::move(*manifest), **session, name, result); });
}

}  // namespace dsj::cli
