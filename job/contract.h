// The contract between operator, command line, agent and rank: environment names, file names, exit
// codes, labels. These rooms never include each other. They share this file, worker_job.h and
// report/, which describes their messages. The names are stable.
#pragma once

namespace dsj::contract {

// ---- environment of a rank: torchrun's names, and ours
inline constexpr char kEnvRank[] = "RANK";
inline constexpr char kEnvLocalRank[] = "LOCAL_RANK";
inline constexpr char kEnvWorldSize[] = "WORLD_SIZE";
inline constexpr char kEnvLocalWorldSize[] = "LOCAL_WORLD_SIZE";
inline constexpr char kEnvGroupRank[] = "GROUP_RANK";
inline constexpr char kEnvMasterAddr[] = "MASTER_ADDR";
inline constexpr char kEnvMasterPort[] = "MASTER_PORT";
/// Path of job.json (job_file.h).
inline constexpr char kEnvJobFile[] = "DSJ_JOB_FILE";
/// launcher: Command with a ds_config: the path of kDsConfigFile, the ds_config as plain JSON.
inline constexpr char kEnvDsConfig[] = "DSJ_DS_CONFIG";
inline constexpr char kDsConfigFile[] = "ds_config.json";
/// Number of the inherited pipe that takes event lines (report/events.h).
inline constexpr char kEnvEventFd[] = "DSJ_EVENT_FD";
/// Rank 0 only: number of the inherited socket, already listening, for the store.
inline constexpr char kEnvStoreFd[] = "DSJ_STORE_FD";
/// 1: the process records its startup times (common/startup_trace.h). Another number: the same, and
/// the time at which the parent launched it. The lines go to kStartupFile, beside job.json.
inline constexpr char kEnvStartupTrace[] = "DSJ_STARTUP_TRACE";
inline constexpr char kStartupFile[] = "startup.jsonl";

// ---- under the output directory
inline constexpr char kMetricsFile[] = "metrics.jsonl";
inline constexpr char kStatusFile[] = "status.yaml";
inline constexpr char kCheckpointsDir[] = "checkpoints";
inline constexpr char kModelDir[] = "model";
inline constexpr char kModelsDir[] = "models";  ///< for saveOnlyModel
inline constexpr char kLogsDir[] = "logs";
/// checkpoints/attempt, the fence: it holds the number of the only attempt that may publish.
inline constexpr char kAttemptFile[] = "attempt";

// ---- exit codes of dsj-train and dsj-agent. dsj run exits with 0, 1, 2, 3, 7 or 130. A code that
// dsj's verbs also use has the same meaning there (cli/exit_codes.h).
enum ExitCode : int {
  kExitDone = 0,          ///< the last step is done, saved and exported; only this is 0
  kExitFailed = 1,        ///< this rank failed; a new attempt from the last checkpoint may help
  kExitBadInput = 2,      ///< the user's input is wrong; no attempt will help
  kExitEnvironment = 3,   ///< library, space or permission; no attempt will help here
  kExitNotFinite = 7,     ///< loss, gradients or weights are not finite; no attempt will help
  kExitPeerLost = 86,     ///< another rank died or hung; a new attempt may help
  kExitPreempted = 87,    ///< stopped on request; every rank saved the same step
  kExitInterrupted = 130  ///< dsj run only: stopped by Ctrl-C or SIGTERM
};

/// Whether a rank's exit code means that another attempt cannot get further.
constexpr bool ends_the_job(int exit_code) {
  return exit_code == kExitBadInput || exit_code == kExitEnvironment || exit_code == kExitNotFinite;
}
/// The reason of a rank that exits with kExitNotFinite.
inline constexpr char kReasonNotFinite[] = "NotFinite";
/// Exit code of a shell and of the dynamic loader: the program did not start, because it or one of
/// its libraries is missing.
inline constexpr int kExitNotStarted = 127;

// ---- the resource
inline constexpr char kGroup[] = "training.dsj.dev";
inline constexpr char kVersion[] = "v1alpha1";
inline constexpr char kPlural[] = "deepspeedjobs";
inline constexpr char kKind[] = "DeepSpeedJob";
/// Field managers: the agent owns status.training and status.checkpoint, the operator all else.
inline constexpr char kOperatorManager[] = "dsj-operator";
inline constexpr char kAgentManager[] = "dsj-agent";
inline constexpr char kLabelJobName[] = "training.dsj.dev/job-name";
inline constexpr char kLabelReplicaType[] = "training.dsj.dev/replica-type";  ///< "worker"
inline constexpr char kLabelReplicaIndex[] = "training.dsj.dev/replica-index";
inline constexpr char kLabelIncarnation[] = "training.dsj.dev/incarnation";
inline constexpr char kLabelManagedBy[] = "app.kubernetes.io/managed-by";  ///< "dsj-operator"
/// On pods and ConfigMaps: the revision of the accepted spec that the pod runs.
inline constexpr char kLabelRevision[] = "training.dsj.dev/revision";
/// On pods: status.restarts.total when the pod was created.
inline constexpr char kAnnotationRestarts[] = "training.dsj.dev/restarts";
/// On a ConfigMap of an older operator: its set of keys (operator/render/keys.h).
inline constexpr char kLabelKeys[] = "training.dsj.dev/keys";
/// The type of a key's Secret. The chart's policies match it.
inline constexpr char kKeySecretType[] = "training.dsj.dev/worker-key";
/// On a pod or PodGroup: its scheduling group (operator/render/render_gang.h).
inline constexpr char kLabelGang[] = "training.dsj.dev/gang";
inline constexpr char kContainerName[] = "worker";  ///< our container in the template

// ---- a worker's pod, `<job>-worker-<index>-<incarnation>`. Its first container runs
// `dsj-agent --pod`; with launcher: Command, `dsj-agent --pod -- PROGRAM ARGUMENT...`. The operator
// sets these variables; kEnvPod* and kEnvServiceAccount come from the downward API.
inline constexpr char kEnvJobName[] = "DSJ_JOB_NAME";
inline constexpr char kEnvNamespace[] = "DSJ_NAMESPACE";
inline constexpr char kEnvJobUid[] = "DSJ_JOB_UID";
inline constexpr char kEnvWorker[] = "DSJ_WORKER";            ///< index, from 0
inline constexpr char kEnvIncarnation[] = "DSJ_INCARNATION";  ///< of its pod; starts at 1, rises
/// kLabelRevision of its pod. When the job's status.revision differs from this or spec.suspend
/// becomes true, agent 0 stops the job at one step, as for SIGTERM, and every agent ends. Compare
/// status.revision, not the spec: a spec that the operator refused does not change it.
inline constexpr char kEnvRevision[] = "DSJ_REVISION";
/// Worker 0's name at the headless Service: `<job>-worker-0.<service>.<namespace>.svc`.
inline constexpr char kEnvWorkerZeroHost[] = "DSJ_WORKER_ZERO_HOST";
inline constexpr char kEnvPodName[] = "DSJ_POD_NAME";
inline constexpr char kEnvPodIp[] = "DSJ_POD_IP";
inline constexpr char kEnvServiceAccount[] = "DSJ_SERVICE_ACCOUNT";  ///< spec.serviceAccountName
/// The authority that signed the certificate of worker 0's agent, as PEM (join_keys.h), and the run
/// of the gang that its key was made for. Unset if there is one worker.
inline constexpr char kEnvJoinAuthority[] = "DSJ_JOIN_AUTHORITY";
inline constexpr char kEnvJoinRun[] = "DSJ_JOIN_RUN";
/// The mounted ConfigMap of the job: job.json (worker_job.h) and, if the operator could read them,
/// the cluster's public token keys.
inline constexpr char kConfigMountPath[] = "/etc/dsj";
inline constexpr char kWorkerJobFile[] = "job.json";
inline constexpr char kTokenKeysFile[] = "jwks.json";
/// The projected service account token with which workers join. Its audience is kAudiencePrefix +
/// the job's uid.
inline constexpr char kTokenMountPath[] = "/var/run/secrets/dsj";
inline constexpr char kTokenFile[] = "token";
inline constexpr char kAudiencePrefix[] = "training.dsj.dev/job/";
/// An emptyDir, because the root file system is read-only.
inline constexpr char kScratchMountPath[] = "/run/dsj";
/// launcher: Command: an init container of the agent's image copies the agent, its loader and its
/// libraries here, for a container of any image (agent/install.h, worker_job.h).
inline constexpr char kAgentMountPath[] = "/opt/dsj-agent";
inline constexpr char kInstalledAgent[] = "dsj-agent";
inline constexpr char kInstalledLoader[] = "ld.so";
inline constexpr char kInstalledLibraries[] = "lib";
inline constexpr char kTerminationLog[] = "/dev/termination-log";
inline constexpr int kJoinPort = 29400;     ///< worker 0's agent, for the other agents
inline constexpr int kMetricsPort = 29401;  ///< every agent: /metrics and /healthz

// ---- the operator's own pod, as charts/deepspeedjob creates it. There kEnvNamespace is the
// operator's namespace, and kEnvPodName its identity in the leader election.
inline constexpr char kEnvWorkerImage[] = "DSJ_WORKER_IMAGE";
inline constexpr char kEnvImagePullPolicy[] = "DSJ_IMAGE_PULL_POLICY";  ///< may be empty
inline constexpr char kEnvTmpSizeLimit[] = "DSJ_TMP_SIZE_LIMIT";
inline constexpr char kEnvWatchNamespaces[] = "DSJ_WATCH_NAMESPACES";  ///< "a,b"; empty: everywhere
inline constexpr char kEnvReadNodes[] = "DSJ_READ_NODES";              ///< "true", "false"
inline constexpr char kEnvNetworkPolicy[] = "DSJ_NETWORK_POLICY";      ///< "true", "false"
inline constexpr char kEnvEgress[] = "DSJ_EGRESS";                     ///< JSON; may be empty
inline constexpr char kEnvVolcano[] = "DSJ_VOLCANO";                   ///< "true", "false"
inline constexpr char kEnvKueue[] = "DSJ_KUEUE";                       ///< "true", "false"
inline constexpr char kEnvLeaseName[] = "DSJ_LEASE_NAME";              ///< in its own namespace
inline constexpr int kOperatorMetricsPort = 29404;  ///< /metrics for reviewed readers
inline constexpr int kOperatorPort = 29402;         ///< /metrics, /healthz (alive), /readyz

// ---- what operator and agents read of each other's output
// An agent's termination message is report/termination_message.h's object. Its exit code is an
// ExitCode. Only kExitDone with kReasonCompleted is success.
inline constexpr char kReasonCompleted[] = "Completed";
inline constexpr char kReasonPreempted[] = "Preempted";
inline constexpr char kReasonBackoffLimitExceeded[] = "BackoffLimitExceeded";
// Agent 0 writes status.training and status.checkpoint (report/status.h). Of these the operator
// reads attempt, which is published before ranks start and never falls; stopStep, lastUpdatedTime,
// lastFailure, earlierFailures; and lastSaved.step, lastDamaged.
// Of the operator's status, agent 0 reads revision and restarts {counted, total, savedStep}, which
// are restart_budget.h's used, total and saved_step.

}  // namespace dsj::contract
