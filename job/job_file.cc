#include "job/job_file.h"

#include <algorithm>
#include <vector>

#include "common/text.h"

namespace dsj {
namespace {

using nlohmann::json;

Result<std::string> text_field(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end())
    return bad_input("a field is missing", std::string("job.json: ") + key);
  if (!found->is_string())
    return bad_input("expected a string, found " + std::string(found->type_name()),
                     std::string("job.json: ") + key);
  return found->get<std::string>();
}

Result<int64_t> positive_field(const json& object, const char* key) {
  const std::string where = std::string("job.json: ") + key;
  const auto found = object.find(key);
  if (found == object.end()) return bad_input("a field is missing", where);
  if (!found->is_number_integer() || found->get<int64_t>() < 1)
    return bad_input("expected a whole number of at least 1, found " + found->dump(), where);
  return found->get<int64_t>();
}

}  // namespace

Result<JobFile> job_file_from_json(const json& object) {
  if (!object.is_object()) return bad_input("expected an object", "job.json");
  static const std::vector<std::string> known = {
      "name", "run", "attempt", "worldSize", "outputDir", "training", "dsConfig", "dsConfigSource"};
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return bad_input("\"" + key + "\" is not a field of job.json", "job.json",
                       text::did_you_mean(key, known));
  JobFile job;
  DSJ_TRY(job.name, text_field(object, "name"));
  if (object.contains("run")) {
    DSJ_TRY(job.run, text_field(object, "run"));
  }
  DSJ_TRY(job.attempt, positive_field(object, "attempt"));
  DSJ_TRY(const int64_t world, positive_field(object, "worldSize"));
  if (world > 1'000'000) return bad_input("the world size is too large", "job.json: worldSize");
  job.world_size = static_cast<int>(world);
  DSJ_TRY(job.output_dir, text_field(object, "outputDir"));
  DSJ_TRY(job.ds_config_source, text_field(object, "dsConfigSource"));
  if (!object.contains("training")) return bad_input("a field is missing", "job.json: training");
  DSJ_TRY(job.training, training_args_from_json(object["training"], "job.json: training"));
  if (!object.contains("dsConfig")) return bad_input("a field is missing", "job.json: dsConfig");
  job.ds_config = object["dsConfig"];
  if (!job.ds_config.is_object()) return bad_input("expected an object", "job.json: dsConfig");
  return job;
}

json to_json(const JobFile& job) {
  json object = {{"name", job.name},
                 {"attempt", job.attempt},
                 {"worldSize", job.world_size},
                 {"outputDir", job.output_dir},
                 {"training", to_json(job.training)},
                 {"dsConfig", job.ds_config},
                 {"dsConfigSource", job.ds_config_source}};
  if (!job.run.empty()) object["run"] = job.run;
  return object;
}

}  // namespace dsj
