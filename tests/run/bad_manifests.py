"""Manifests that must not run, and where each is stopped. Read by refusals_check.py, which tries each and prints docs/reports/refusals.md.

A case is (what it is, where it is stopped, a word of the message, the change). The change is a merge patch (null removes) of
GOOD, for a new job; EDITS are made to a job that runs. Where: CRD (the resource's schema), policy (the chart's job policy),
webhook, Accepted (condition Accepted=False).
"""
import copy

GOOD = {
    "apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob",
    "spec": {
        "deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"},
                                 "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
                                 "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8}}},
        "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/tmp/o", "learningRate": 1e-6},
        "workers": {"replicas": 2, "slotsPerWorker": 1}}}


def merged(base, patch):
    """RFC 7396."""
    if not isinstance(patch, dict) or not isinstance(base, dict):
        return copy.deepcopy(patch)
    out = dict(base)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key, {}), value)
    return out


def config(**keys):
    return {"spec": {"deepspeed": {"config": keys}}}


def training(**keys):
    return {"spec": {"training": keys}}


def workers(**keys):
    return {"spec": {"workers": keys}}


def spec(**keys):
    return {"spec": keys}


def elastic(least, most, **keys):
    return {"spec": {"elastic": {"minReplicas": least, "maxReplicas": most}, "deepspeed": {"config": keys}}}


def pod(**keys):
    return {"spec": {"workers": {"template": {"spec": keys}}}}


def worker(**keys):
    return pod(containers=[dict(name="worker", **keys)])


def name(text):
    return {"metadata": {"name": text}}


def config_map(map_name, key="ds_config.json"):
    return {"spec": {"deepspeed": {"config": None, "configFrom": {"configMapKeyRef": {"name": map_name, "key": key}}}}}


# Made before the cases: name, key, text.
CONFIG_MAPS = [("typo", "ds_config.json", '{"zero_optimizaton": {"stage": 2}}'), ("broken", "ds_config.json", '{"a": [1,'),
               ("list", "ds_config.json", "[1, 2]"), ("other-key", "config.json", "{}"),
               ("twice", "ds_config.json", '{"zero_optimization": {"stage": 1}, "zero_optimization": {"stage": 2}}')]

CRD, POLICY, WEBHOOK, ACCEPTED = "CRD", "policy", "webhook", "Accepted"

CASES = [
    # ---- the object
    ("a name of 41 characters", CRD, "at most 40", name("a" * 41)),
    ("a name that begins with a digit", CRD, "a letter first", name("1st-try")),
    ("a name with a dot", CRD, "at most 40 of a-z, 0-9 and -", name("v1.tune")),
    ("no spec.deepspeed", CRD, "spec.deepspeed: a field is missing", spec(deepspeed=None)),
    ("no spec.training", CRD, "spec.training: Required", spec(training=None)),
    ("an unknown field of spec", CRD, 'unknown field "spec.trainning"', spec(trainning={"maxSteps": 1})),
    ("an unknown policy field", CRD, 'unknown field "spec.runPolicy.ttl"', spec(runPolicy={"ttl": 3})),
    ("suspend: \"yes\"", CRD, "spec.suspend", spec(suspend="yes")),
    # ---- where the ds_config is
    ("neither config nor configFrom", CRD, "exactly one of config and configFrom", {"spec": {"deepspeed": {"config": None}}}),
    ("config and configFrom", CRD, "exactly one of config and configFrom",
     {"spec": {"deepspeed": {"configFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}}}),
    ("configFrom without a key", CRD, "configMapKeyRef.key: Required",
     {"spec": {"deepspeed": {"config": None, "configFrom": {"configMapKeyRef": {"name": "c"}}}}}),
    ("a file on the user's machine", CRD, 'unknown field "spec.deepspeed.configFrom.file"',
     {"spec": {"deepspeed": {"config": None, "configFrom": {"file": "ds_config.json"}}}}),
    ("the ds_config as a string", CRD, "spec.deepspeed.config", {"spec": {"deepspeed": {"config": "{}"}}}),
    ("a ConfigMap that does not exist", ACCEPTED, "configmap nowhere:", config_map("nowhere")),
    ("a ConfigMap without that key", ACCEPTED, 'no key "ds_config.json"', config_map("other-key")),
    ("a ConfigMap whose text ends early", ACCEPTED, "configmap broken:1", config_map("broken")),
    ("a ConfigMap that holds a list", ACCEPTED, "expected an object of settings", config_map("list")),
    ("a ConfigMap with a key twice", ACCEPTED, "zero_optimization", config_map("twice")),
    ("a ConfigMap with a typo in a key", ACCEPTED, 'did you mean "zero_optimization"', config_map("typo")),
    # ---- ds_config
    ("a typo in a section", WEBHOOK, 'did you mean "zero_optimization"', config(zero_optimizaton={"stage": 2})),
    ("a typo in a key", WEBHOOK, 'did you mean "overlap_comm"', config(zero_optimization={"overlap_com": True})),
    ("a key in the wrong section", WEBHOOK, "wrong section", config(reduce_bucket_size=5e8)),
    ("ZeRO stage 7", WEBHOOK, "zero_optimization.stage", config(zero_optimization={"stage": 7})),
    ("ZeRO stage \"two\"", WEBHOOK, "zero_optimization.stage", config(zero_optimization={"stage": "two"})),
    ("a negative bucket", WEBHOOK, "reduce_bucket_size", config(zero_optimization={"reduce_bucket_size": -1})),
    ("a batch that does not divide", WEBHOOK, "train_batch_size", config(train_batch_size=7, train_micro_batch_size_per_gpu=2)),
    ("no batch size at all", WEBHOOK, "batch", config(train_micro_batch_size_per_gpu=None)),
    ("a batch of 0", WEBHOOK, "train_batch_size", config(train_batch_size=0)),
    ("fp16 and bf16 in ds_config", WEBHOOK, "fp16", config(fp16={"enabled": True}, bf16={"enabled": True})),
    ("bf16 in ds_config, fp16 in training", WEBHOOK, "fp16", {"spec": {"deepspeed": {"config": {"bf16": {"enabled": True}}}, "training": {"fp16": True}}}),
    ("a learning rate unlike training's", WEBHOOK, "spec.deepspeed.config.optimizer.params.lr",
     config(optimizer={"params": {"lr": 1e-3}})),
    ("a batch unlike training's", WEBHOOK, "train_micro_batch_size_per_gpu",
     {"spec": {"deepspeed": {"config": {"train_micro_batch_size_per_gpu": 4}}, "training": {"perDeviceTrainBatchSize": 2}}}),
    ("clipping unlike training's", WEBHOOK, "gradient_clipping", {"spec": {"deepspeed": {"config": {"gradient_clipping": 0.5}}, "training": {"maxGradNorm": 1.0}}}),
    ("an unknown optimizer", WEBHOOK, "optimizer.type", config(optimizer={"type": "AdamV"})),
    ("a typo in an optimizer's parameter", WEBHOOK, "weight_decay", config(optimizer={"params": {"weight_decai": 0.1}})),
    ("a beta of 2", WEBHOOK, "betas", config(optimizer={"params": {"betas": [2, 0.9]}})),
    ("an unknown LR schedule", WEBHOOK, "scheduler.type", config(scheduler={"type": "WarmupWarp"})),
    ("a parameter of another LR schedule", WEBHOOK, "scheduler.params", config(scheduler={"type": "WarmupLR", "params": {"cycle_min_lr": 0.1}})),
    ("NVMe offload without a path", WEBHOOK, "nvme_path", config(zero_optimization={"stage": 3, "offload_param": {"device": "nvme"}})),
    ("offload to an unknown device", WEBHOOK, "offload_optimizer.device", config(zero_optimization={"offload_optimizer": {"device": "tape"}})),
    ("a section that is a number", WEBHOOK, "spec.deepspeed.config.fp16", config(fp16=3)),
    ("steps_per_print: -1", WEBHOOK, "steps_per_print", config(steps_per_print=-1)),
    ("known, but not built: LoCo", ACCEPTED, "zeropp_loco_param", config(zero_optimization={"stage": 3, "zeropp_loco_param": {"err_beta": 0.8}})),
    ("known, but not built: AMP's O3", ACCEPTED, "amp.opt_level", config(zero_optimization={"stage": 0}, amp={"enabled": True, "opt_level": "O3"})),
    ("AMP with ZeRO", WEBHOOK, "amp.enabled", config(zero_optimization={"stage": 2}, amp={"enabled": True})),
    # ---- training arguments
    ("an unknown training argument", CRD, 'unknown field "spec.training.learningRatee"', training(learningRatee=1e-3)),
    ("no model", CRD, "modelNameOrPath or dataPath is missing", training(modelNameOrPath=None)),
    ("no data", CRD, "modelNameOrPath or dataPath is missing", training(dataPath=None)),
    ("no output directory", CRD, "outputDir: Required", training(outputDir=None)),
    ("an output directory to be overwritten", WEBHOOK, "has effect with dsj run only", training(overwriteOutputDir=True)),
    ("a row length of 2 billion", CRD, "maxSeqLength", training(maxSeqLength=2000000000)),
    ("an output directory on the worker's own file system, read-only", WEBHOOK, "is on no volume of the container", training(outputDir="/o")),
    ("a job that no ConfigMap holds", WEBHOOK, "expected at most 1015808", config(tensorboard={"job_name": "x" * 600_000})),
    ("a relative output directory", CRD, "expected an absolute path", training(outputDir="out")),
    ("a model name of the hub", CRD, "expected an absolute path", training(modelNameOrPath="Qwen/Qwen2.5-0.5B")),
    ("relative data", CRD, "expected an absolute path", training(dataPath="./d.json")),
    ("relative evaluation data", CRD, "expected an absolute path", training(evalDataPath="e.json")),
    ("bf16 and fp16 in training", CRD, "both on", training(bf16=True, fp16=True)),
    ("one argument under two names", CRD, "the same argument", training(maxSeqLength=512, modelMaxLength=512)),
    ("learningRate: \"fast\"", CRD, "learningRate", training(learningRate="fast")),
    ("a negative learning rate", CRD, "learningRate", training(learningRate=-1e-3)),
    ("one and a half steps", CRD, "maxSteps", training(maxSteps=1.5)),
    ("a batch per device of 0", CRD, "perDeviceTrainBatchSize", training(perDeviceTrainBatchSize=0)),
    ("negative accumulation", CRD, "gradientAccumulationSteps", training(gradientAccumulationSteps=-4)),
    ("a warm-up of 150 %", CRD, "warmupRatio", training(warmupRatio=1.5)),
    ("saving every -5 steps", CRD, "saveSteps", training(saveSteps=-5)),
    ("bf16: \"maybe\"", CRD, "spec.training.bf16", training(bf16="maybe")),
    ("an LR schedule that no library has", WEBHOOK, "lrSchedulerType", training(lrSchedulerType="cosinus")),
    ("an optimizer that no library has", WEBHOOK, "optim", {"spec": {"deepspeed": {"config": {"optimizer": None}}, "training": {"optim": "adamw_torhc"}}}),
    ("an unknown save strategy", WEBHOOK, "saveStrategy", training(saveStrategy="sometimes")),
    ("an unknown chat template", WEBHOOK, "chatTemplate", training(chatTemplate="smalltalk")),
    ("LoRA without targets", WEBHOOK, "name modules, or write all-linear", training(lora={"r": 8, "targetModules": []})),
    ("LoRA of rank 0", WEBHOOK, "spec.training.lora.r", training(lora={"r": 0})),
    ("LoRA with PEFT's name", WEBHOOK, 'write "alpha" here', training(lora={"lora_alpha": 16})),
    ("LoRA with PiSSA", WEBHOOK, "PiSSA takes", training(lora={"initLoraWeights": "pissa"})),
    # ---- workers and their pods
    ("no workers", CRD, "spec.workers.replicas", workers(replicas=0)),
    ("replicas: \"two\"", CRD, "spec.workers.replicas", workers(replicas="two")),
    ("half a worker", CRD, "spec.workers.replicas", workers(replicas=1.5)),
    ("no slots", CRD, "spec.workers.slotsPerWorker", workers(slotsPerWorker=0)),
    ("a million ranks", CRD, "more than 65536 ranks", workers(replicas=1000, slotsPerWorker=1000)),
    ("minReplicas above replicas", CRD, "minReplicas is larger", workers(minReplicas=3)),
    ("maxReplicas below replicas", CRD, "maxReplicas is smaller", workers(maxReplicas=1)),
    ("bounds of an elastic job in the wrong place", ACCEPTED, "spec.elastic: {minReplicas, maxReplicas}", workers(minReplicas=1, maxReplicas=4)),
    ("another API's elasticPolicy", ACCEPTED, "spec.elastic: {minReplicas, maxReplicas}", spec(elasticPolicy={"minReplicas": 1})),
    ("an elastic job with more workers than it may have", CRD, "from elastic.minReplicas to elastic.maxReplicas", elastic(1, 1)),
    ("an elastic job without an upper bound", CRD, "maxReplicas: Required", spec(elastic={"minReplicas": 1})),
    ("an elastic job whose batch follows its size", WEBHOOK, "the batch would change with the number of workers", elastic(1, 4)),
    ("an elastic job that Kueue admits", ACCEPTED, "partial admission only for batch Jobs",
     merged(elastic(1, 4, train_batch_size=8, train_micro_batch_size_per_gpu=1), spec(runPolicy={"schedulingPolicy": {"scheduler": "kueue", "queue": "q"}}))),
    ("a topology without a mode", CRD, "topology.mode: Required", workers(topology={"key": "rack"})),
    ("a topology by an invalid label", CRD, "spec.workers.topology.key", workers(topology={"key": "my rack", "mode": "Required"})),
    ("a topology together with a required pod affinity", WEBHOOK, "cannot be combined with spec.workers.topology",
     merged(workers(topology={"key": "rack", "mode": "Required"}),
            pod(containers=[{"name": "worker"}], affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "cache"}}}]}}))),
    ("a topology for Volcano", ACCEPTED, "tiers of its HyperNodes",
     merged(workers(topology={"key": "rack", "mode": "Required"}), spec(runPolicy={"schedulingPolicy": {"scheduler": "volcano"}}))),
    ("tensor parallelism", CRD, "spec.parallelism.tensor", spec(parallelism={"tensor": 2})),
    ("a template without the container worker", POLICY, 'name the container that runs the ranks "worker"', pod(containers=[{"name": "trainer"}])),
    ("a template with two containers worker", CRD, 'Duplicate value: {"name":"worker"}', pod(containers=[{"name": "worker"}, {"name": "worker"}])),
    ("two variables of one name", CRD, "containers[0].env[1]: Duplicate value", worker(env=[{"name": "A", "value": "0"}, {"name": "A", "value": "1"}])),
    ("a template whose containers are not a list", CRD, "template.spec.containers", pod(containers="worker")),
    ("a template that is a list", CRD, "spec.workers.template", workers(template=[])),
    ("a reserved environment variable", POLICY, "DSJ_*", worker(env=[{"name": "DSJ_WORKER", "value": "0"}])),
    ("a label of the operator's in the template", POLICY, "labels: training.dsj.dev/*",
     merged(worker(), workers(template={"metadata": {"labels": {"training.dsj.dev/replica-index": "0"}}}))),
    ("an annotation of the operator's in the template", POLICY, "annotations: training.dsj.dev/*",
     merged(worker(), workers(template={"metadata": {"annotations": {"training.dsj.dev/avoided-nodes": "node-1"}}}))),
    ("a host name in the template", POLICY, "set by the operator", pod(hostname="x")),
    ("a node in the template", POLICY, "set by the operator", pod(nodeName="node-1")),
    ("another DNS on the host's network", WEBHOOK, "expected ClusterFirstWithHostNet",
     pod(containers=[{"name": "worker"}], hostNetwork=True, dnsPolicy="ClusterFirst")),
    ("restartPolicy in the template", POLICY, "expected Never", pod(restartPolicy="Always")),
    ("a template without the account's token", POLICY, "automountServiceAccountToken: expected true", pod(automountServiceAccountToken=False)),
    ("a variable without a name", CRD, "env[0].name: Required", worker(env=[{"value": "0"}])),
    ("a mount without a path", CRD, "volumeMounts[0].mountPath: Required", worker(volumeMounts=[{"name": "v"}])),
    ("volumes that are not a list", CRD, "template.spec.volumes", pod(volumes="/data")),
    ("a label that is a number", CRD, "template.metadata.labels", workers(template={"metadata": {"labels": {"a": 1}}})),
    ("a cluster template that does not exist", ACCEPTED, "deepspeedjobtemplate nowhere:", workers(templateRef={"name": "nowhere"})),
    ("a reference to a template without a name", CRD, "templateRef.name: Required", workers(templateRef={})),
    ("a typo in a pod", WEBHOOK, 'unknown field "spec.tolerationz"', pod(tolerationz=[])),
    ("a typo in a container", WEBHOOK, 'unknown field "spec.containers[0].resource"', worker(resource={})),
    ("a port that is a list", CRD, "ports[0].containerPort", worker(ports=[{"containerPort": [80]}])),
    ("memory that is an object", CRD, "resources.limits.memory", worker(resources={"limits": {"memory": {"Gi": 1}}})),
    ("an affinity that is a string", CRD, "template.spec.affinity", pod(affinity="near")),
    ("a deadline of single pods", WEBHOOK, "spec.runPolicy.activeDeadlineSeconds ends the job", pod(activeDeadlineSeconds=3600)),
    ("the container worker starts again by itself", WEBHOOK, "the job restarts its ranks", worker(restartPolicy="Always")),
    ("rules that start the container worker again", WEBHOOK, "would restart the agent",
     worker(restartPolicy="Never", restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}])),
    ("last words in another file", WEBHOOK, "the agent writes its last words there", worker(terminationMessagePath="/tmp/words")),
    ("root, and never root", WEBHOOK, "runAsNonRoot is true", worker(securityContext={"runAsUser": 0, "runAsNonRoot": True})),
    ("root in a sidecar of a pod that is never root", WEBHOOK, "containers[mesh].securityContext.runAsUser",
     pod(securityContext={"runAsNonRoot": True}, containers=[{"name": "worker"}, {"name": "mesh", "image": "i", "securityContext": {"runAsUser": 0}}])),
    ("privileged without more privileges", WEBHOOK, "privileged is true",
     worker(securityContext={"privileged": True, "allowPrivilegeEscalation": False})),
    ("CAP_SYS_ADMIN without more privileges", WEBHOOK, "adds CAP_SYS_ADMIN",
     worker(securityContext={"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": False})),
    ("a mount where the operator mounts", WEBHOOK, "the operator mounts /etc/dsj",
     merged(worker(volumeMounts=[{"name": "v", "mountPath": "/etc/dsj/"}]), pod(volumes=[{"name": "v", "emptyDir": {}}]))),
    ("a volume with a name of the operator's", WEBHOOK, "the name of one of the operator's",
     merged(worker(), pod(volumes=[{"name": "dsj-tmp", "emptyDir": {}}]))),
    ("a container with a name of the operator's", WEBHOOK, "the name of one of the operator's",
     pod(containers=[{"name": "worker"}, {"name": "dsj-agent", "image": "i"}])),
    ("GPUs of another vendor", WEBHOOK, "amd.com/gpu: the ranks of this engine train on GPUs of NVIDIA", worker(resources={"limits": {"amd.com/gpu": 1}})),
    ("an accelerator that is not a GPU", WEBHOOK, "google.com/tpu", worker(resources={"limits": {"google.com/tpu": 4}})),
    ("two ranks on a part of a GPU", WEBHOOK, "a process sees one of them",
     merged(worker(resources={"limits": {"nvidia.com/gpu.shared": 2}}), workers(slotsPerWorker=2))),
    ("more ranks than GPUs", WEBHOOK, "each rank needs a GPU of its own",
     merged(worker(resources={"limits": {"nvidia.com/gpu": 1}}), workers(slotsPerWorker=2))),
    ("a device claim and no word on the device", WEBHOOK, "resource claims are unknown",
     merged(worker(resources={"claims": [{"name": "gpu"}]}), pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}]))),
    ("a queue in the policy, another on the job", WEBHOOK, "kueue.x-k8s.io/queue-name",
     merged({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "a"}}}, spec(runPolicy={"schedulingPolicy": {"scheduler": "kueue", "queue": "b"}}))),
    # ---- programs
    ("launcher: Command without a program", WEBHOOK, "needs a container with a program", spec(launcher="Command")),
    ("launcher: Command without an image", WEBHOOK, "name the image that contains the program",
     merged(worker(command=["train"]), spec(launcher="Command"))),
    ("launcher: Command without a command", WEBHOOK, "write it as the command", merged(worker(image="i"), spec(launcher="Command"))),
    ("a command without launcher: Command", WEBHOOK, "set by the operator", worker(command=["train"])),
    # ---- policies
    ("an unknown launcher", CRD, "spec.launcher", spec(launcher="Torchrun")),
    ("restartPolicy: Always", CRD, "spec.restartPolicy", spec(restartPolicy="Always")),
    ("a negative budget", CRD, "spec.backoffLimit", spec(backoffLimit=-1)),
    ("a deadline of 0 s", CRD, "activeDeadlineSeconds", spec(runPolicy={"activeDeadlineSeconds": 0})),
    ("a time with a unit", CRD, "ttlSecondsAfterFinished", spec(runPolicy={"ttlSecondsAfterFinished": "10m"})),
    ("an unknown cleanPodPolicy", CRD, "cleanPodPolicy", spec(runPolicy={"cleanPodPolicy": "Some"})),
    ("a failure rule without an action", CRD, "action: Required", spec(failurePolicy={"rules": [{"onReasons": ["OOMKilled"]}]})),
    ("a failure rule that matches everything", CRD, "would match every failure", spec(failurePolicy={"rules": [{"action": "FailJob"}]})),
    ("an exit code of 300", CRD, "onExitCodes", spec(failurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"values": [300]}}]})),
    ("pods given up at once", CRD, "forceDeleteAfterSeconds", spec(failurePolicy={"nodeFailure": {"forceDeleteAfterSeconds": 1}})),
    ("a hang after 0 s", CRD, "stepTimeoutSeconds", spec(liveness={"stepTimeoutSeconds": 0})),
]

# Edits of a job that runs; {"scale": N} by the scale subresource, where no schema, policy or webhook sees the job.
BEFORE_EDITS = config(train_batch_size=8, train_micro_batch_size_per_gpu=2)
EDITS = [
    ("edit: another model", CRD, "the model of a job does not change", training(modelNameOrPath="/other")),
    ("edit: another output directory", CRD, "the output directory of a job does not change", training(outputDir="/other")),
    ("edit: another launcher", CRD, "the launcher of a job does not change", spec(launcher="Command")),
    ("edit: a template without the container worker", POLICY, '"worker", once', pod(containers=[{"name": "x"}])),
    ("edit: a typo in ds_config", WEBHOOK, 'did you mean "zero_optimization"', config(zero_optimizaton={"stage": 3})),
    ("edit: a batch that does not divide", WEBHOOK, "train_batch_size", config(train_batch_size=7)),
    ("edit: scaled, so that the batch does not divide", ACCEPTED, "train_batch_size", {"scale": 3}),
    ("edit: a ConfigMap that does not exist", ACCEPTED, "configmap nowhere:", config_map("nowhere")),
]
