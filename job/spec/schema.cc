#include "job/spec/schema.h"

#include <regex>

#include "job/contract.h"
#include "job/spec/cluster_spec.h"
#include "job/spec/job.h"
#include "job/spec/schema_rows.h"

namespace dsj::jobspec {
namespace {

using namespace rows;
using namespace range;

constexpr double kRanksMax = 65'536;
constexpr double kTextMax = 4096;  // of a text that becomes a container's field
/// A field may contain a whole Jinja template. Models' own have up to 20 KiB.
constexpr double kChatTemplateMax = 65'536;
constexpr int kLabelKeyMax = 253 + 1 + 63;
constexpr char kLabelKey[] =
    R"(^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?)"
    R"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$)";
constexpr char kControllerName[] =
    R"(^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$)";
constexpr char kNotBuilt[] = "not built in this version";
constexpr char kElasticHere[] = "spec.elastic: {minReplicas, maxReplicas} is this operator's";
constexpr char kElasticExample[] = "elastic: {minReplicas: 2, maxReplicas: 4}";

NumberRange seconds(double least) {
  return from_to(least, 365.0 * 24 * 3600);
}

bool is_object_name(const std::string& text) {
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

/// volcano is the second enumerator; the first is None.
Target gang_scheduler() {
  Target target = to(&Scheduling::scheduler);
  target.set = [](void* owner, const nlohmann::json& word, const std::vector<std::string>&) {
    static_cast<Scheduling*>(owner)->scheduler = word == "volcano" ? GangScheduler::Volcano
                                                 : word == "kueue" ? GangScheduler::Kueue
                                                                   : GangScheduler::None;
  };
  target.get = nullptr;
  target.preset = nullptr;
  return target;
}

Row deepspeed() {
  return object(
             "deepspeed", {}, "The ds_config. Left out only with launcher Command.",
             {row("config", Type::AnyObject, {}, "The ds_config as it is, \"auto\" included.")
                  .hints("write its keys below config, not as one text"),
              object(
                  "configFrom", {}, "The source of the ds_config, instead of config.",
                  {text("file", {}, kAny, "A file beside the manifest.").by(kLocal),
                   object(
                       "configMapKeyRef", {},
                       "A key of a ConfigMap in the job's namespace; JSON, or Hjson with comments. "
                       "The job keeps the text that it started with.",
                       {text("name", {}, from_to(1, 253), "The name of the ConfigMap.").needs(),
                        text("key", {}, from_to(1, 253), "The key in the ConfigMap's data.")
                            .needs()})
                       .needs_in_cluster()})})
      .rule("has(self.config) != has(self.configFrom)", "give exactly one of config and configFrom")
      .by(kOperator | kEngine | kLocal);
}

Type type_of(const TrainingField& field) {
  using A = TrainingArgs;
  const auto is = [&]<typename Value>(Value A::*) {
    return std::holds_alternative<Value A::*>(field.member);
  };
  if (field.takes_flag || is(&A::lr_scheduler_kwargs)) return Type::Any;
  if (is(&A::max_steps)) return Type::Whole;
  if (is(&A::learning_rate)) return Type::Number;
  if (is(&A::bf16)) return Type::Flag;
  return is(&A::lora) ? Type::AnyObject : Type::Text;
}

Row training() {
  std::vector<Row> fields;
  for (const TrainingField& field : training_fields()) {
    const Type type = type_of(field);
    Row one = number(type, field.name, {}, field.range, field.description);
    const bool is_template = std::string_view(field.name) == "chatTemplate";
    if (type == Type::Text) one.range = from_to(0, is_template ? kChatTemplateMax : kTextMax);
    if (field.alias)
      fields.push_back(number(type, field.alias, {}, field.range,
                              std::string("Another name for ") + field.name + "."));
    const std::string name = field.name;
    if (name == "modelNameOrPath")
      fields.push_back(std::move(one).fixed("the model of a job does not change"));
    else if (name == "outputDir")
      fields.push_back(
          std::move(one)
              .needs_in_cluster()
              .fixed("the output directory of a job does not change")
              .rule("self.startsWith('/')", "expected an absolute path in the container"));
    else
      fields.push_back(std::move(one));
  }
  return object("training", {},
                "Hugging Face's TrainingArguments in camelCase; \"auto\" is resolved from them.",
                std::move(fields))
      .needs_in_cluster()
      .elsewhere()
      .rule("!(has(self.bf16) && self.bf16 && has(self.fp16) && self.fp16)",
            "bf16 and fp16 are both on")
      .rule("!(has(self.maxSeqLength) && has(self.modelMaxLength))",
            "maxSeqLength and modelMaxLength are the same argument")
      .by(kEngine | kLocal);
}

Row topology() {
  return object(
             "topology", to(&Job::policies, &Policies::topology),
             "Packs the workers by a label of the nodes: a rack, an NVLink domain.",
             {text("key", to(&Topology::key), from_to(1, kLabelKeyMax),
                   "The label. Nodes with the same value of it are one domain.")
                  .needs("name a label of the nodes, for example topology.kubernetes.io/rack; "
                         "`kubectl get nodes --show-labels` lists them")
                  .checked(is_label_key, "the key of a node label", kLabelKey),
              choice("mode", to(&Topology::mode), {"Required", "Preferred"},
                     "Required: all workers in one domain, or the job waits. Preferred: as many as "
                     "the scheduler can.")
                  .needs()})
      .by(kOperator);
}

Row workers() {
  return object("workers", {},
                "The number of pods, the ranks in each, and the template of the "
                "pods.",
                {whole("replicas", to(&Job::replicas), from_to(1, kRanksMax),
                       "Pods. For an elastic job: the wanted number, if there are nodes for them.")
                     .stored(),
                 whole("slotsPerWorker", to(&Job::slots_per_worker), from_to(1, kRanksMax),
                       "Ranks per pod, one process each.")
                     .stored(),
                 whole("minReplicas", to(&Job::min_replicas), from_to(1, kRanksMax),
                       "Known and refused below replicas: write spec.elastic."),
                 whole("maxReplicas", to(&Job::max_replicas), from_to(1, kRanksMax),
                       "Known and refused above replicas: write spec.elastic."),
                 row("template", Type::PodTemplate, {},
                     "A PodTemplateSpec. Its container \"worker\" runs the ranks."),
                 object("templateRef", {},
                        "A DeepSpeedJobTemplate with the fields that template lacks. It is read "
                        "when the job is created or edited.",
                        {text("name", {}, from_to(1, 253), "The name of the DeepSpeedJobTemplate.")
                             .needs("kubectl get deepspeedjobtemplates lists them")})
                     .hints("copy the template's fields into spec.workers.template")
                     .by(kOperator),
                 topology()})
      .with({{"default", {{"replicas", 1}, {"slotsPerWorker", 1}}}})  // rules need a default
      .rule("self.replicas * self.slotsPerWorker <= 65536", "more than 65536 ranks")
      .rule("!has(self.minReplicas) || self.minReplicas <= self.replicas",
            "minReplicas is larger than replicas")
      .rule("!has(self.maxReplicas) || self.maxReplicas >= self.replicas",
            "maxReplicas is smaller than replicas")
      .by(kOperator | kLocal);
}

Row run_policy() {
  return object(
             "runPolicy", to(&Job::policies, &Policies::run),
             "Deadlines, what remains after the job, and which scheduler places its pods.",
             {whole("activeDeadlineSeconds", to(&RunPolicy::active_deadline_seconds), seconds(1),
                    "The job fails when it has been active this long, counted from its start or "
                    "its last "
                    "resume."),
              whole("startupDeadlineSeconds", to(&RunPolicy::startup_deadline_seconds), seconds(1),
                    "The job fails when its first attempt has not started this long after the job "
                    "did."),
              whole("recoveryDeadlineSeconds", to(&RunPolicy::recovery_deadline_seconds),
                    seconds(1),
                    "How long workers with nodes wait for the others before all release their "
                    "nodes."),
              whole("ttlSecondsAfterFinished", to(&RunPolicy::ttl_seconds_after_finished),
                    seconds(0), "The job is deleted this long after it finished."),
              choice(
                  "cleanPodPolicy", to(&RunPolicy::clean_pods), {"Running", "All", "None"},
                  "Pods of a finished job that are deleted. None deletes what still runs after the "
                  "save timeout."),
              object(
                  "schedulingPolicy", to(&RunPolicy::scheduling),
                  "All pods get their nodes together, by Volcano or Kueue.",
                  {choice("scheduler", gang_scheduler(), {"volcano", "kueue", "scheduler-plugins"},
                          "Who places the gang. scheduler-plugins is known and refused.")
                       .needs("volcano or kueue"),
                   text("queue", to(&Scheduling::queue), from_to(1, 63),
                        "A Volcano Queue, or a Kueue LocalQueue of the namespace.")
                       .checked(is_object_name, "the name of an object"),
                   text("priorityClass", to(&Scheduling::priority_class), from_to(1, 63),
                        "A PriorityClass; with Kueue a WorkloadPriorityClass.")
                       .checked(is_object_name, "the name of an object"),
                   whole("minAvailable", to(&Scheduling::min_available), from_to(1, kRanksMax),
                         "Volcano: pods that are placed together; all by default."),
                   whole(
                       "scheduleTimeoutSeconds", {}, seconds(1),
                       "Known and refused: startupDeadlineSeconds ends a job that does not start.")
                       .refuses("neither Volcano nor Kueue has such a time",
                                "runPolicy.startupDeadlineSeconds ends a job that does not start")})
                  .rule("self.scheduler != 'kueue' || has(self.queue)",
                        "queue: a field is missing; name a LocalQueue")})
      .by(kOperator);
}

Row failure_rules() {
  return list(
             "rules", to(&FailurePolicy::rules),
             "The first rule that matches a failure decides. Without a match the exit code "
             "decides.",
             20,
             {text("name", to(&FailureRule::name), from_to(0, 128),
                   "The rule's name, for "
                   "messages."),
              choice("action", to(&FailureRule::action), {"FailJob", "Restart", "RestartUncounted"},
                     "FailJob ends the job; Restart counts against backoffLimit; "
                     "RestartUncounted does not.")
                  .needs(),
              object("onExitCodes", {}, "Matches a rank's exit code.",
                     {choice("operator", to(&FailureRule::exit_codes_not_in), {"In", "NotIn"},
                             "Whether the code is one of values, or none of them."),
                      number(Type::Wholes, "values", to(&FailureRule::exit_codes), from_to(1, 255),
                             "Exit codes. 0 never matches.")
                          .sized(1, 255)
                          .needs("values: [137]")}),
              number(Type::Texts, "onReasons", to(&FailureRule::reasons), from_to(0, 128),
                     "Matches these reasons of the agent or of the pod.")
                  .sized(0, 50),
              number(Type::Texts, "onPodConditions", to(&FailureRule::pod_conditions),
                     from_to(0, 128), "Matches a pod with one of these conditions True.")
                  .sized(0, 50)})
      .rule("has(self.onExitCodes) || has(self.onReasons) || has(self.onPodConditions)",
            "the rule would match every failure: give onExitCodes, onReasons or onPodConditions");
}

Row failure_policy() {
  return object(
             "failurePolicy", to(&Job::policies, &Policies::failure),
             "Which failures end the job and which restart it, and how long a node may be away.",
             {failure_rules(),
              object(
                  "nodeFailure", {}, "When a node counts as lost, and what happens then.",
                  {whole("graceSeconds", to(&FailurePolicy::node_grace_seconds), seconds(0),
                         "How long a node may be away before its pods count as lost."),
                   // The agents of a cut-off node end their ranks in ten seconds; no others may start before.
                   whole("forceDeleteAfterSeconds", to(&FailurePolicy::force_delete_after_seconds),
                         seconds(15), "How long after that its pods are given up."),
                   flag("excludeFailedNodes", to(&FailurePolicy::exclude_failed_nodes),
                        "Replacements avoid the node.")}),
              object("nodeHealth", to(&FailurePolicy::node_health),
                     "What happens when a node is unfit for ranks: memory, disk, clock, GPUs, its "
                     "link to the other nodes.",
                     {choice("action", to(&NodeHealth::action), {"Off", "Report", "Move"},
                             "Move: the pod ends and its successor avoids the node (with Kueue the "
                             "default is Report). Report: the agent's log and metrics report it. "
                             "Off: no check.")
                          .by(kOperator | kPod),
                      whole("avoidSeconds", to(&NodeHealth::avoid_seconds), seconds(600),
                            "How long later pods of the job avoid the node."),
                      // Above it, usual differences between nodes would count.
                      whole("minPeerBandwidthPercent", to(&NodeHealth::min_peer_bandwidth_percent),
                            from_to(0, 90),
                            "A node's link is too slow below this percentage of the gang's median. "
                            "0: links are not measured.")
                          .by(kPod)})})
      .by(kOperator);
}

Row parallelism() {
  std::vector<Row> kinds;
  for (const char* kind : {"tensor", "pipeline", "sequence", "expert"})
    kinds.push_back(whole(kind, {}, from_to(1, 1), "Always 1.")
                        .refuses("only data parallelism is built", "write 1, or remove it"));
  return object("parallelism", {},
                "Each is 1; sequence_parallel_size of ds_config cuts rows over ranks.",
                std::move(kinds));
}

Row initializer(const char* name, const char* fetches, const char* example) {
  return object(
      name, {},
      std::string("Fetches what training.") + fetches +
          " names. Its image gets STORAGE_URI, TARGET, STAGING and MARKER.",
      {text("storageUri", {}, from_to(1, kTextMax),
            std::string("What is fetched, such as ") + example +
                "; the image reads it. No credentials.")
           .needs("hf://ORG/MODEL, s3://BUCKET/PATH, or what the image reads"),
       text("image", {}, from_to(1, kTextMax), "The image that fetches; default: the worker's."),
       row("command", Type::Texts, {}, "Its program; default: the image's entrypoint."),
       row("args", Type::Texts, {}, "Its arguments; $(STORAGE_URI) and the like are replaced."),
       list("env", {}, "Variables that are not secrets.", 0,
            {text("name", {}, from(1), "Not STORAGE_URI, TARGET, STAGING, MARKER or DSJ_.").needs(),
             text("value", {}, kAny, "The value, used as written.")
                 .needs("what is secret comes from secretRef")})
           .hints("what is secret comes from secretRef"),
       object("secretRef", {}, "Each key of this Secret becomes a variable.",
              {text("name", {}, from_to(1, 253), "The name of a Secret in the job's namespace.")
                   .needs("name a Secret of the job's namespace")}),
       object("resources", {},
              "As in a container; default: cpu, memory and ephemeral storage of the worker.",
              {row("limits", Type::Quantities, {}, "The most that it may use."),
               row("requests", Type::Quantities, {}, "What is reserved for it.")})});
}

Row elastic() {
  return object(
             "elastic", to(&Job::policies, &Policies::elastic),
             "The number of workers follows the available nodes; each step trains on as many "
             "rows as before.",
             {whole("minReplicas", to(&Elastic::min_replicas), from_to(1, kRanksMax),
                    "With fewer workers the job waits.")
                  .needs(kElasticExample),
              whole("maxReplicas", to(&Elastic::max_replicas), from_to(1, kRanksMax),
                    "The upper limit of workers.replicas.")
                  .needs(kElasticExample),
              whole("shrinkAfterSeconds", to(&Elastic::shrink_after_seconds), seconds(1),
                    "How long the gang waits for workers without a node."),
              whole("growAfterSeconds", to(&Elastic::grow_after_seconds), seconds(1),
                    "How long a larger gang that has its nodes waits for the next checkpoint. Then "
                    "all ranks save one step.")})
      .rule("self.minReplicas <= self.maxReplicas", "minReplicas is larger than maxReplicas")
      .by(kOperator);
}

/// Rules for jobs whose ranks are this engine's.
void add_engine_rules(Row& spec) {
  const std::string other = "self.launcher == 'Command' || ";
  spec.rules.push_back({other + "has(self.deepspeed)",
                        "spec.deepspeed: a field is missing; only launcher: Command does without"});
  spec.rules.push_back(
      {other + "(has(self.training.modelNameOrPath) && has(self.training.dataPath))",
       "spec.training: modelNameOrPath or dataPath is missing; only launcher: Command does "
       "without"});
  for (const std::string name : {"modelNameOrPath", "dataPath", "evalDataPath"})
    spec.rules.push_back(
        {other + "!has(self.training." + name + ") || self.training." + name + ".startsWith('/')",
         "spec.training." + name + ": expected an absolute path in the container"});
}

Row spec() {
  Row all = object(
      "spec", {}, "What the job is and how it runs.",
      {flag(
           "suspend", to(&Job::policies, &Policies::suspend),
           "Saves one step on all ranks, then removes every pod; false continues at the next step.")
           .by(kOperator | kAgent),
       text("managedBy", {}, from_to(1, 63),
            "The controller that runs the job, as for batch/v1's Job: this operator ignores a "
            "job that names another, such as kueue.x-k8s.io/multikueue.")
           .checked(is_controller_name, "DOMAIN/NAME", kControllerName)
           .fixed("the controller of a job does not change")
           .by(kOperator),
       deepspeed(), training(), workers(),
       choice("launcher", to(&Job::launcher), {"Native", "Command"},
              "Command runs the program of the worker's container, one process per rank.")
           .stored()
           .fixed("the launcher of a job does not change")
           .by(kOperator | kAgent | kLocal),
       choice("restartPolicy", to(&Job::restart_policy), {"OnFailure", "Never"},
              "OnFailure restarts from the last checkpoint, at most backoffLimit times; Never does "
              "not restart.")
           .stored()
           .by(kOperator | kLocal),
       whole("backoffLimit", to(&Job::backoff_limit), from_to(0, kRanksMax),
             "Restarts in a row without a newer checkpoint before the job fails. Evictions, drains "
             "and lost nodes are not counted.")
           .stored()
           .by(kOperator | kAgent | kLocal),
       run_policy(), failure_policy(),
       object("liveness", {}, "When an attempt counts as hung.",
              {whole("stepTimeoutSeconds", to(&Job::policies, &Policies::step_timeout_seconds),
                     seconds(1), "An attempt hangs after this time without a step or a report.")})
           .by(kOperator | kAgent),
       object(
           "checkpoint", {}, "How a checkpoint is saved when the job is asked to stop.",
           {object("onSuspend", {}, "Saving when the job is suspended, changed or evicted.",
                   {whole("timeoutSeconds", to(&Job::policies, &Policies::save_timeout_seconds),
                          seconds(1),
                          "How long saving may take. The pods' grace period follows from it.")})})
           .by(kOperator | kAgent),
       parallelism(),
       row("model", Type::AnyObject, {},
           "Known and refused: name the model in training.modelNameOrPath.")
           .refuses(kNotBuilt, "remove it"),
       object("initializers", {},
              "Images that fetch the model and the data to the job's volume before ranks start.",
              {initializer("model", "modelNameOrPath", "hf://ORG/MODEL"),
               initializer("dataset", "dataPath", "s3://BUCKET/ROWS.json")})
           .by(kOperator),
       elastic(),
       row("elasticPolicy", Type::AnyObject, {}, "Known and refused: write spec.elastic.")
           .refuses(kNotBuilt, kElasticHere),
       row("network", Type::AnyObject, {},
           "Known and refused: the operator configures how agents communicate.")
           .refuses(kNotBuilt, "remove it")});
  add_engine_rules(all);
  return std::move(all)
      .needs()
      .rule("has(self.managedBy) == has(oldSelf.managedBy)",
            "managedBy: the controller of a job does not change")
      .rule(
          "!has(self.elastic) || (self.workers.replicas >= self.elastic.minReplicas && "
          "self.workers.replicas <= self.elastic.maxReplicas)",
          "spec.workers.replicas: expected a number from elastic.minReplicas to "
          "elastic.maxReplicas");
}

/// The mandatory name, and the fields that an API server adds and checks itself.
Row metadata() {
  std::vector<Row> fields;
  for (const char* name :
       {"name", "namespace", "labels", "annotations", "generateName", "uid", "generation",
        "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
        "managedFields", "finalizers", "ownerReferences", "selfLink"})
    fields.push_back(row(name, Type::Any, {}, ""));
  return object("metadata", {}, "", std::move(fields));
}

Row kind_of_object(const char* name, const char* value) {
  return choice(name, {}, {value}, "").needs(std::string("add ") + name + ": " + value);
}

void collect_fixed(const Field& field, const std::string& pointer, std::vector<std::string>& all) {
  for (const CelRule& rule : field.rules)
    if (rule.rule == kNeverChanges) all.push_back(pointer);
  for (const Field& inner : field.fields) collect_fixed(inner, pointer + "/" + inner.name, all);
}

}  // namespace

const Field& job_schema() {
  static const Field schema =
      object("", {}, "",
             {kind_of_object("apiVersion", kApiVersion), kind_of_object("kind", kKind), metadata(),
              spec(), status_row().elsewhere()})
          .rule(
              "self.metadata.name.size() <= 40 && "
              "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
              "metadata.name: expected at most 40 of a-z, 0-9 and -, a letter first");
  return schema;
}

const Field& template_schema() {
  static const Field schema =
      object("", {}, "",
             {kind_of_object("apiVersion", kApiVersion),
              kind_of_object("kind", "DeepSpeedJobTemplate"), metadata(),
              object("spec", {}, "What jobs that name this template have in common.",
                     {row("template", Type::PodTemplate, {},
                          "A PodTemplateSpec. Fields in a job's spec.workers.template override it.")
                          .needs()})
                  .needs()
                  .by(kOperator)});
  return schema;
}

const std::vector<std::string>& immutable_fields() {
  static const std::vector<std::string> fields = [] {
    std::vector<std::string> all;
    collect_fixed(job_schema(), "", all);
    return all;
  }();
  return fields;
}

bool is_label_key(const std::string& text) {
  static const std::regex pattern(kLabelKey);
  const size_t slash = text.find('/');
  return text.size() <= kLabelKeyMax && (slash == std::string::npos || slash <= 253) &&
         std::regex_match(text, pattern);
}

}  // namespace dsj::jobspec
