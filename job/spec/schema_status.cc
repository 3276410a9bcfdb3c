// What the operator and agent 0 report about a job. The structs that are written are
// operator/observe/own_status.h and job/report/events.h; tests compare the rows with them.
#include "job/spec/schema_rows.h"

namespace dsj::jobspec::rows {
namespace {

using namespace range;
using nlohmann::json;

/// A number as text, because it may be NaN; null if it is unknown.
Row figure(const char* name, std::string description) {
  return text(name, {}, kAny, std::move(description)).with({{"nullable", true}});
}

Row conditions() {
  return list(
             "conditions", {},
             "For programs: Accepted, Suspended, Scheduled, Initialized, Running, Restarting, "
             "Progressing, Complete, Failed; Ready, Reconciling and Stalled for Flux, Argo CD and "
             "kstatus.",
             0,
             {text("type", {}, from_to(0, 316), "Name of the condition.").needs(),
              choice("status", {}, {"True", "False", "Unknown"}, "True, False or Unknown.").needs(),
              text("reason", {}, from_to(0, 1024), "One word for programs.").needs(),
              text("message", {}, from_to(0, 32768),
                   "A sentence for people. It quotes the scheduler, the kubelet or the quota.")
                  .needs(),
              whole("observedGeneration", {}, kAny,
                    "Generation of the spec that the condition describes."),
              row("lastTransitionTime", Type::Time, {}, "When status changed last.").needs()})
      .with({{"x-kubernetes-list-type", "map"},
             {"x-kubernetes-list-map-keys", json::array({"type"})}});
}

Row restarts() {
  return object("restarts", {}, "The restart budget.",
                {whole("total", {}, kAny, "Restarts since the job was created."),
                 whole("counted", {}, kAny, "Restarts charged since the newest checkpoint."),
                 whole("limit", {}, kAny, "backoffLimit."),
                 whole("savedStep", {}, kAny, "Step of the newest checkpoint at the last restart."),
                 whole("uncounted", {}, kAny, "Consecutive restarts that were not charged."),
                 whole("attempt", {}, kAny, "The newest attempt whose end was processed."),
                 row("lastTime", Type::Time, {}, "When the last restart began."),
                 row("notBefore", Type::Time, {}, "No pod is created before this time.")});
}

Row elastic_size() {
  return object("elastic", {}, "The size of an elastic job.",
                {whole("replicas", {}, kAny, "Workers of the gang in force."),
                 whole("wantedReplicas", {}, kAny, "Workers in the accepted spec."),
                 whole("resizes", {}, kAny, "Changes of the size."),
                 text("message", {}, kAny, "Why the size changed."),
                 row("changedTime", Type::Time, {}, "When the size changed."),
                 row("growableTime", Type::Time, {},
                     "Since when a larger gang has its nodes and waits for a checkpoint."),
                 whole("growableStep", {}, kAny, "Step of the newest checkpoint at that time."),
                 row("sparesTime", Type::Time, {},
                     "Since when pods of a larger gang hold nodes that are too few."),
                 row("notBefore", Type::Time, {},
                     "No pod of a larger gang asks for a node before this time."),
                 whole("setbacks", {}, kAny,
                       "Shrinks and failed tries to grow, without a quiet hour between them.")});
}

Row unhealthy_nodes() {
  return list("unhealthyNodes", {},
              "Nodes on which ranks could not start or which rejected a pod, and which new pods "
              "avoid.",
              32,
              {text("node", {}, kAny, "The node's name."),
               text("message", {}, kAny, "What its agent found."),
               row("time", Type::Time, {}, "When it was found last."),
               whole("times", {}, kAny, "How often it was found since it entered the list."),
               row("until", Type::Time, {},
                   "Until when it is avoided, because its kubelet rejected a pod; absent if "
                   "avoidSeconds applies.")})
      .with({{"x-kubernetes-list-type", "atomic"}});
}

Row training_report() {
  return object(
      "training", {}, "The running attempt, as agent 0 reports it.",
      {whole("attempt", {}, kAny, "Number of the attempt: one per start of the ranks."),
       whole("step", {}, kAny, "The last optimizer step that ended."),
       whole("stopStep", {}, kAny, "The step at which the attempt stopped on request."),
       whole("totalSteps", {}, kAny, "Steps of the whole job."),
       whole("progressPercentage", {}, kAny, "step as a percentage of totalSteps."),
       whole("estimatedRemainingSeconds", {}, kAny, "Estimated from the last steps."),
       whole("worldSize", {}, kAny, "Ranks of the attempt."),
       figure("loss", "Mean loss of the last step."),
       figure("learningRate", "Learning rate of the last step."),
       figure("gradNorm", "Norm of the last step's gradient before clipping."),
       figure("lossScale", "fp16: the loss scale."),
       figure("tokensPerSecond", "Tokens of all ranks per second."),
       text("badGradient", {}, kAny,
            "If the last step was skipped: a parameter whose gradient has NaN or infinity."),
       whole("skippedSteps", {}, kAny, "Steps of the attempt that were skipped; absent if none."),
       whole("cutRows", {}, kAny, "Rows that were cut to the maximum length."),
       whole("cutTokens", {}, kAny, "Tokens that were cut off these rows."),
       whole("rowsWithoutTarget", {}, kAny, "Cut rows that kept none of their targets."),
       figure("evalLoss", "Loss of the last evaluation."),
       whole("evalStep", {}, kAny, "Step of the last evaluation."),
       text("modelPath", {}, kAny, "The exported model."),
       text("stragglers", {}, kAny,
            "Ranks that slow down the others in each step; absent if none."),
       row("peakBytes", Type::Counts, {}, "Peak memory of a rank by class, in bytes."),
       row("lastUpdatedTime", Type::Time, {}, "When agent 0 wrote last."),
       row("lastFailure", Type::AnyObject, {}, "The last failure of a rank, as agent 0 saw it."),
       list("earlierFailures", {},
            "Failures before lastFailure that restarts does not include yet.", 10, {})
           .with({{"x-kubernetes-list-type", "atomic"}}),
       row("resolvedConfig", Type::AnyObject, {}, "The ds_config with every \"auto\" resolved.")
           .with({{"x-kubernetes-map-type", "atomic"}})});
}

Row checkpoints() {
  return object(
      "checkpoint", {}, "The newest checkpoints, as agent 0 reports them.",
      {object("lastSaved", {}, "The newest checkpoint on disk.",
              {whole("step", {}, kAny, "Its step."), text("path", {}, kAny, "Its directory."),
               row("time", Type::Time, {}, "When it was complete."),
               whole("worldSize", {}, kAny, "Ranks that wrote it."),
               whole("sizeBytes", {}, kAny, "Size of all its files."),
               figure("durationSeconds", "How long saving took.")}),
       object("lastRestored", {}, "The checkpoint that the running attempt started from.",
              {whole("step", {}, kAny, "Its step."), text("path", {}, kAny, "Its directory."),
               row("time", Type::Time, {}, "When it was read.")}),
       object("lastDamaged", {},
              "The damaged checkpoints that the ranks skipped at their last start.",
              {whole("step", {}, kAny, "Their highest step."),
               text("message", {}, kAny,
                    "The checkpoint that the run resumed from; new name, file, block and tensor of "
                    "each damaged one."),
               whole("attempt", {}, kAny, "The attempt that found them."),
               row("time", Type::Time, {}, "When they were found.")})});
}

}  // namespace

Row status_row() {
  return object("status", {}, "What the operator and agent 0 report. Nothing else writes it.",
                {whole("observedGeneration", {}, kAny,
                       "Generation of the spec that the status describes; -1 if no operator has "
                       "seen the job."),
                 text("phase", {}, kAny,
                      "For people: Pending, Starting, Running, Restarting, Suspending, Suspended, "
                      "Refused, Complete or Failed."),
                 text("reason", {}, kAny,
                      "The reason of the condition that explains the phase; absent if the phase "
                      "needs no explanation."),
                 conditions(),
                 row("startTime", Type::Time, {},
                     "When the job started; with a queue, when the queue admitted its pods."),
                 row("completionTime", Type::Time, {}, "When the job ended."),
                 row("stopRequestedTime", Type::Time, {},
                     "When the running attempt was asked to save and stop."),
                 row("incompleteTime", Type::Time, {},
                     "Since when workers with nodes wait for the others."),
                 text("revision", {}, kAny, "Hash of the spec that the pods run."),
                 text("specHash", {}, kAny,
                      "Hash of the accepted spec, if defaults of a newer CRD made it differ from "
                      "revision."),
                 object("template", {}, "The DeepSpeedJobTemplate that the pods were made with.",
                        {text("name", {}, kAny, "Its name."),
                         whole("generation", {}, kAny, "Its generation at that time.")}),
                 text("configMapName", {}, kAny, "The ConfigMap that the pods mount."),
                 whole("incarnation", {}, kAny, "The highest pod number used so far."),
                 whole("keyRun", {}, kAny,
                       "The run whose Secret with worker 0's key, NAME-dsj-key-KEYRUN, may exist."),
                 text("keyUid", {}, kAny, "The uid of that Secret. No other is deleted."),
                 whole("completedAttempt", {}, kAny,
                       "The attempt that an agent reported as complete: every rank ended with exit "
                       "code 0."),
                 row("completedAttemptTime", Type::Time, {},
                     "Start of the time that the other agents have to end."),
                 object("timeouts", {}, "Timeouts of the spec in force, for agent 0.",
                        {whole("saveSeconds", {}, kAny, "checkpoint.onSuspend.timeoutSeconds."),
                         whole("stepSeconds", {}, kAny, "liveness.stepTimeoutSeconds.")}),
                 whole("worldSize", {}, kAny, "Ranks of the gang."),
                 whole("zeroStage", {}, kAny, "Stage of the accepted ds_config."),
                 whole("replicas", {}, kAny, "Pods of the gang, for the scale subresource."),
                 text("selector", {}, kAny,
                      "Selects the pods of the gang, for the scale subresource."),
                 text("workers", {}, kAny, "Running workers and all workers, such as 3/4."),
                 restarts(),
                 elastic_size(),
                 unhealthy_nodes(),
                 whole("damageToldAttempt", {}, kAny,
                       "The newest attempt whose damaged checkpoints an event has reported."),
                 row("lastFailure", Type::AnyObject, {}, "The newest entry of failureHistory."),
                 list("failureHistory", {},
                      "The last ten failures: pod, node, rank, exit code or signal, last lines of "
                      "the log.",
                      10, {})
                     .with({{"x-kubernetes-list-type", "atomic"}}),
                 training_report().by(kAgent),
                 checkpoints().by(kAgent)})
      // Before the operator has seen a job: kstatus would report a job without a status as current.
      .with({{"default", {{"observedGeneration", -1}}}})
      .by(kOperator);
}

}  // namespace dsj::jobspec::rows
