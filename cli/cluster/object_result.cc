#include "cli/cluster/object_result.h"

#include "cli/cluster/json_path.h"
#include "job/spec/yaml.h"

namespace dsj::cli {

std::string object_text(const kube::Json& object, const std::string& format) {
  if (format == "name") return word(object, "metadata.name") + "\n";
  return format == "json" ? document_text(object) : jobspec::to_yaml(object);
}

ObjectResult::ObjectResult(ArgumentParser& parser)
    : argument_(parser.option("-o,--output", format_, "json, yaml or name: the job as it is then")
                    .one_of({"json", "yaml", "name"})) {}

int ObjectResult::print(const char* verb_name, Session& session, const std::string& name,
                        StdoutAside& aside) {
  if (job_) {
    aside.print(object_text(*job_, format_));
    return 0;
  }
  const auto job = session.client.get(jobs_resource(), session.ns, name);
  if (!job) return report_api(verb_name, session, "job " + name, job.error());
  aside.print(object_text(*job, format_));
  return 0;
}

}  // namespace dsj::cli
