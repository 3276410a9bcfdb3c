#!/usr/bin/env python3
"""The Helm chart on a real API server: values, rights, the pods' security level, and attacks that the agent policy refuses.

Usage: tests/cluster/cluster.py run --api chart_check.py REPOSITORY BIN GTEST_REPORT. Exit 1 on a failure. Needs helm and kubectl
on PATH; without them everything is skipped, loudly.
"""
import base64
import filecmp
import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts"))
import dist_images  # noqa: E402
from cases import Report, Skip, expect  # noqa: E402
from kube import LONG, crds_served, eventually, free_port, kubectl, run  # noqa: E402
from stranger import SHOWN, Stranger  # noqa: E402

JOB = {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob",
       "spec": {"deepspeed": {"config": {"train_batch_size": "auto"}},
                "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/tmp/o"},
                "workers": {"replicas": 2, "slotsPerWorker": 1}}}
BAD_VALUES = [["replicas=0"], ["replicas=two"], ["rbac.scope=Everywhere"], ["rbac.scope=Namespaces"], ["watchNamespaces={Team_A}"],
              ["image.operator.pullPolicy=Sometimes"], ["imagge.operator.tag=1"], ["rbac.createe=true"], ["image.worker.repository="],
              ["monitoring.podMonitor.interval=soon"], ["webhook.failurePolicy=Maybe"], ["fullnameOverride=Not_A_Name"],
              ["workers.defaultTemplate=-h200"], ["webhook.certManager.issuer=ca"], ["unhealthyNodes.mark=Taint"],
              ["workers.podSecurityContext=restricted"], ["workers.securityContext.privileged=true"], ["workers.securityContext.readOnlyRootFilesystem=no"]]


def objects_of(text):
    """(kind, namespace, name) of each object of a rendered chart."""
    found = []
    for part in re.split(r"^---$", text, flags=re.MULTILINE):
        kind = re.search(r"^kind: (\S+)", part, re.MULTILINE)
        if kind:
            metadata = re.search(r"^metadata:\n((?:  .*\n)+)", part, re.MULTILINE).group(1)
            field = {name: re.search(rf"^  {name}: (\S+)", metadata, re.MULTILINE) for name in ("name", "namespace")}
            found.append((kind.group(1), field["namespace"].group(1) if field["namespace"] else "", field["name"].group(1)))
    return found


class Chart:
    def __init__(self, repository, binaries=""):
        self.operator = os.path.join(binaries, "dsj-operator")
        self.chart = os.path.join(repository, "charts/deepspeedjob")
        self.room = tempfile.mkdtemp()

    # ---- the package of `make dist`
    def package(self):
        """helm reads it, it renders what the folder renders, and the images' digests are in it and in its values."""
        digests = {f"dsj-{name}:1.2.3-dev.g0": "sha256:" + letter * 64 for name, letter in (("operator", "a"), ("worker", "b"))}
        packages = []
        for name in ("first", "second"):
            folder = os.path.join(self.room, name)
            os.mkdir(folder)
            packages.append(dist_images.package_chart(folder, dist_images.semver("1.2.3.dev0+g0"), digests))
            dist_images.write_values(folder, digests)
        expect(filecmp.cmp(*packages, shallow=False), "the same chart gave two packages")
        run("helm", "lint", packages[0], "--kube-version", "1.30.0")
        about = run("helm", "show", "chart", packages[0]).stdout
        expect("version: 1.2.3-dev.g0" in about and all(f"{name}@{digest}" in about for name, digest in digests.items()), about)
        words = ["--kube-version", "1.30.0", "--include-crds"]
        folder, packed = (run("helm", "template", "r", chart, *words).stdout for chart in (self.chart, packages[0]))
        expect(re.sub(r"\b0\.1\.0\b", "1.2.3-dev.g0", folder) == packed, "the package renders something else")
        packed = run("helm", "template", "r", packages[0], *words, "-f", os.path.join(self.room, "first/image-digests.yaml")).stdout
        for digest, name in (("a", "operator"), ("b", "worker")):
            expect(f"dsj-{name}@sha256:{digest * 64}" in packed, f"{name} is not named by its digest")

    # ---- values
    def values(self):
        run("helm", "lint", self.chart, "--kube-version", "1.30.0")
        for bad in BAD_VALUES:
            words = [word for value in bad for word in ("--set", value)]
            done = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", *words, check=False)
            expect(done.returncode != 0 and "schema" in done.stderr, f"{bad} is taken: {done.stderr}")
        print(f"result: chart: {len(BAD_VALUES)} bad values refused")
        old = run("helm", "template", "r", self.chart, "--kube-version", "1.29.0", check=False)
        expect(old.returncode != 0 and "1.30" in old.stderr, "an older Kubernetes is refused")
        bare = run("helm", "template", "r", self.chart, "--no-hooks", "--kube-version", "1.30.0", "--set", "crds.install=false,agentPolicy.enabled=false,jobPolicy.enabled=false,keyPolicy.enabled=false,ownPolicy.enabled=false,jobNamespaces.enabled=false,webhook.enabled=false,"
                   "networkPolicy.enabled=false,rbac.create=false,serviceAccount.create=false,monitoring.service=false").stdout
        kinds = sorted(line.split()[1] for line in bare.splitlines() if line.startswith("kind:"))
        expect(kinds == ["Deployment"], f"everything else can be left out: {kinds}")
        roles = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", "--set", "rbac.scope=Namespaces", "--set",
                    "watchNamespaces={team}").stdout
        expect("alidatingWebhookConfiguration" not in roles and "DSJ_WEBHOOK" not in roles, "roles alone have no webhook")
        expect("kind: ClusterRole" not in roles and 'DSJ_READ_NODES, value: "false"' in roles, "roles alone have no rights over the cluster")
        words = ("--set", "rbac.scope=Namespaces", "--set", "watchNamespaces={team}")
        wide = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", *words, "--set", "rbac.clusterRoles=true").stdout
        expect(wide.count("kind: ClusterRole\n") == 4 and 'DSJ_READ_NODES, value: "true"' in wide, "rights over the cluster on request")
        for value in ("unhealthyNodes.mark=taint", "workers.defaultTemplate=h200", "monitoring.readers[0].name=p,monitoring.readers[0].kind=User"):
            done = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", *words, "--set", value, check=False)
            expect(done.returncode != 0 and "rbac.clusterRoles=true" in done.stderr, f"{value} without rights over the cluster: {done.stderr}")
        for selector, wanted in (("pool=a", "amd64"), ("kubernetes\\.io/arch=arm64", "arm64")):
            text = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", "--set", f"nodeSelector.{selector}").stdout
            expect(text.count(f"kubernetes.io/arch: {wanted}") == 2, f"nodes for {selector}")

    def security_context(self):
        """Each field can be another or none; OpenShift gives the user."""
        def rendered(*words):
            return run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", "--set", "crds.install=false", *words).stdout
        expect("runAsUser: 65532" in rendered(), "a user by default")
        free = rendered("--set", "podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null")
        expect("runAsNonRoot: true" in free and not re.search("runAsUser|runAsGroup", free) and "readOnlyRootFilesystem: true" in free, "no fixed user")
        other = rendered("--set", "podSecurityContext.runAsUser=1000,podSecurityContext.fsGroup=7,securityContext.readOnlyRootFilesystem=false")
        expect(all(word in other for word in ("runAsUser: 1000", "fsGroup: 7", "readOnlyRootFilesystem: false", "drop:")), "other values")

    def workers_security_context(self):
        """The values reach the operator as JSON, field by field; without any there is an empty object."""
        def told(*words):
            text = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", "--show-only", "templates/deployment.yaml", *words).stdout
            return [json.loads(json.loads(re.search(rf"name: {name}, value: (.*)}}", text)[1]))
                    for name in ("DSJ_POD_SECURITY_CONTEXT", "DSJ_SECURITY_CONTEXT")]
        pod = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        container = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
        expect(told() == [pod, container], told())
        other = told("--set", "workers.podSecurityContext.runAsNonRoot=null,workers.podSecurityContext.fsGroup=7",
                     "--set", "workers.securityContext.readOnlyRootFilesystem=false")
        expect(other == [{"seccompProfile": pod["seccompProfile"], "fsGroup": 7}, {**container, "readOnlyRootFilesystem": False}], other)
        none = told("--set", "workers.podSecurityContext=null,workers.securityContext=null")
        expect(none == [{}, {}], none)

    def names(self):
        """Names and labels follow the values that users of helm expect; no label of the selector can be overridden."""
        def deployment(*words, release="r"):
            text = run("helm", "template", release, self.chart, "-n", "ops", "--kube-version", "1.30.0", "--show-only", "templates/deployment.yaml",
                       *[word for value in words for word in ("--set", value)]).stdout
            return json.loads(run("kubectl", "create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", given=next(part for part in text.split("---\n") if "kind: Deployment\n" in part)).stdout)
        for release, words, name in (("r", (), "r-deepspeedjob"), ("my-deepspeedjob", (), "my-deepspeedjob"), ("r", ("nameOverride=trainer",), "r-trainer"),
                                     ("trainer", ("nameOverride=trainer",), "trainer"), ("r", ("nameOverride=a", "fullnameOverride=b"), "b")):
            expect(deployment(*words, release=release)["metadata"]["name"] == name, f"{release} {words}")
        made = deployment("commonLabels.team=a", "commonLabels.app\\.kubernetes\\.io/name=mine", "nameOverride=trainer")
        expect(made["metadata"]["labels"]["team"] == made["spec"]["template"]["metadata"]["labels"]["team"] == "a", made)
        selector = made["spec"]["selector"]["matchLabels"]
        expect(selector == {"app.kubernetes.io/name": "trainer", "app.kubernetes.io/instance": "r", "app.kubernetes.io/component": "operator"}, selector)
        expect(selector.items() <= made["spec"]["template"]["metadata"]["labels"].items(), made)

    def versions(self):
        """A version may have build metadata, as the digest that Flux appends: every label's value is one all the same."""
        chart = os.path.join(self.room, "versioned")
        shutil.copytree(self.chart, chart)
        path = os.path.join(chart, "Chart.yaml")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for version in ("0.1.0+5f1c2ab90d11", "0.1.0+" + "5f1c2ab90d11" * 6, "1.2.3-rc.1+a.b-c"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub(r"^(version|appVersion): .*", rf"\1: {version}", text, flags=re.MULTILINE))
            found = run("helm", "template", "r", chart, "--kube-version", "1.30.0").stdout
            labels = re.findall(r"(?:helm.sh/chart|app.kubernetes.io/version): (.*)", found)
            wrong = {value for value in labels if not re.fullmatch(r'"?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"?', value)}
            expect(labels and not wrong, f"version {version}: {wrong}")

    def matrix(self):
        """Values that concern each other, each with each: the manifests are whole, and each object is there when it should be."""
        scopes = {"whole": [], "some": ["watchNamespaces={team,other}"],
                  "roles": ["rbac.scope=Namespaces", "watchNamespaces={team,other}", "rbac.clusterRoles=true", "rbac.readNodes=false"]}
        hooks = {"own": [], "off": ["webhook.enabled=false"], "cert-manager": ["webhook.certManager.enabled=true"],
                 "issuer": ["webhook.certManager.enabled=true", "webhook.certManager.issuerRef.name=ca",
                            "webhook.certManager.issuerRef.kind=ClusterIssuer"]}
        extras = {"bare": ["monitoring.service=false", "monitoring.review=false", "networkPolicy.enabled=false", "crds.install=false", "agentPolicy.enabled=false",
                           "jobPolicy.enabled=false", "keyPolicy.enabled=false", "ownPolicy.enabled=false", "jobNamespaces.enabled=false"],
                  "all": ["monitoring.podMonitor.enabled=true", "monitoring.rules.enabled=true", "monitoring.dashboards.enabled=true",
                          "monitoring.readers[0].kind=User", "monitoring.readers[0].name=prometheus", "podDisruptionBudget.enabled=true", "scheduling.volcano=true", "scheduling.kueue=true", "replicas=3", "workers.defaultTemplate=h200",
                          "image.pullSecrets[0].name=pull", "fullnameOverride=trainer", "resources.limits.memory=1Gi",
                          "unhealthyNodes.mark=taint"]}
        count = 0
        for scope, hook, extra in itertools.product(scopes, hooks, extras):
            words = [word for value in scopes[scope] + hooks[hook] + extras[extra] for word in ("--set", value)]
            text = run("helm", "template", "r", self.chart, "-n", "ops", "--no-hooks", "--kube-version", "1.30.0", *words).stdout
            found = objects_of(text)
            at = f"{scope} x {hook} x {extra}"
            expect(len(set(found)) == len(found), f"{at}: an object twice: {found}")
            kinds = [kind for kind, _, _ in found]
            webhook = hook != "off" and scope != "roles"
            managed = webhook and hook in ("cert-manager", "issuer")
            wanted = {"ValidatingWebhookConfiguration": webhook, "Certificate": managed, "Issuer": managed and hook == "cert-manager",
                      "PodMonitor": extra == "all", "ServiceMonitor": extra == "all", "PrometheusRule": extra == "all", "PodDisruptionBudget": extra == "all",
                      "CustomResourceDefinition": 2 * (extra == "all"), "ValidatingAdmissionPolicy": 6 * (extra == "all"),
                      "Role": 3 if scope == "roles" else 1, "Deployment": 1}
            for kind, number in wanted.items():
                expect(kinds.count(kind) == int(number), f"{at}: {kinds.count(kind)} {kind}, not {int(number)}")
            names = {name for _, _, name in found}
            expect(("r-deepspeedjob-ops-webhook" in names or "trainer-ops-webhook" in names) == (webhook and not managed),
                   f"{at}: the right to write the caBundle: {sorted(names)}")
            expect(("DSJ_WEBHOOK_CERTIFICATES" in text) == managed and ("name: DSJ_WEBHOOK, " in text) == (webhook and not managed),
                   f"{at}: where the certificates come from")
            expect(("inject-ca-from: ops/" in text) == managed, f"{at}: who writes the caBundle")
            expect(("DSJ_DEFAULT_TEMPLATE" in text) == (extra == "all"), at)
            expect(("DSJ_MARK_NODES, value: taint" in text) == ("-node-marks" in text) == (extra == "all"),
                   f"{at}: the right to mark nodes goes with the choice")
            expect((re.search(r"resources: \[pods\]\n +verbs: \[patch\]", text) is not None) == (extra == "all"), f"{at}: pods are patched for Kueue alone")
            expect(("DSJ_METRICS_ADDRESS" in text) == ("tokenreviews" in text) == (extra == "all"), f"{at}: who reads the metrics")
            count += 1
        print(f"result: chart: {count} combinations of values are whole")

    def marks(self):
        """What may be left on an unfit node: each choice has the rights that it needs."""
        verbs = {}
        for choice in ("none", "annotate", "taint"):
            text = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", "--set", "rbac.readNodes=false",
                       "--set", f"unhealthyNodes.mark={choice}").stdout
            verbs[choice] = re.findall(r"resources: \[nodes\]\n +verbs: \[(.*)\]", text)
        expect(verbs == {"none": [], "annotate": ["patch"], "taint": ["patch", "get"]}, verbs)

    def more_values(self):
        """Monitoring, names, arguments: what each puts into the manifests."""
        every = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", "--set", "monitoring.podMonitor.enabled=true", "--set",
                    "monitoring.rules.enabled=true", "--set", "monitoring.dashboards.enabled=true", "--set", "monitoring.rules.labels.team=a",
                    "--set", "fullnameOverride=trainer", "--set", "extraArgs={--workers=8}", "--set", "extraEnv[0].name=TZ",
                    "--set", "extraEnv[0].value=UTC", "--set", "webhook.failurePolicy=Fail", "--set", "image.worker.digest=sha256:" + "a" * 64, "--set", "networkPolicy.egress.limit=true", "--set", "jobNamespaces.matchLabels.training=yes", "--set", "watchNamespaces={team}").stdout
        kinds = [line.split()[1] for line in every.splitlines() if line.startswith("kind:")]
        expect(kinds.count("PodMonitor") == kinds.count("ServiceMonitor") == kinds.count("PrometheusRule") == 1, kinds)
        open_to_all = run("helm", "template", "r", self.chart, "--kube-version", "1.30.0", "--set", "monitoring.review=false", "--set",
                          "monitoring.podMonitor.enabled=true").stdout
        expect(open_to_all.count("kind: PodMonitor") == 2 and "29404" not in open_to_all and "tokenreviews" not in open_to_all,
               "metrics without a review")
        for word in ("alert: DeepSpeedJobNoLeader", "{{ $labels.pod }}", "team: a", "deepspeedjob-job.json:", "deepspeedjob-operator.json:",
                     "name: trainer-metrics", "- --workers=8", "name: TZ", "failurePolicy: Fail", 'DSJ_EGRESS, value: "[{\\"ports\\"', "grafana_dashboard: \"1\"",
                     "dsj-worker@sha256:" + "a" * 64, "labels['training'] == 'yes'",
                     "matchNames:"):
            expect(word in every, f"{word} is not in the manifests")
        expect("r-deepspeedjob" not in every, "fullnameOverride names every object")

    # ---- installation and rights
    def install(self):
        run("helm", "install", "r", self.chart, "-n", "ops", "--create-namespace", "--set", "podDisruptionBudget.enabled=true")
        crds_served()
        deployment = json.loads(kubectl("-n", "ops", "get", "deployment", "r-deepspeedjob", "-o", "json").stdout)
        kubectl("create", "namespace", "strict")
        kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
        kubectl("-n", "strict", "create", "serviceaccount", "r-deepspeedjob")
        template = deployment["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator", "namespace": "strict",
                                                               "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
        kubectl("create", "--dry-run=server", "-f", "-", thing=pod)
        del pod["spec"]["securityContext"]["runAsNonRoot"]

        def loose():
            return kubectl("create", "--dry-run=server", "-f", "-", thing=pod, check=False).stderr
        eventually(lambda: "runAsNonRoot" in loose(), lambda: f"the namespace is strict after a moment: {loose()}")

    def template_is_a_pod(self):
        """The template's schema is this API server's of a pod, and kubectl explains it."""
        run(sys.executable, os.path.join(self.chart, "../../scripts/pod_template_schema.py"), "--check")
        def explain(*words):
            return kubectl("explain", *words, check=False).stdout
        eventually(lambda: "As pod.spec.containers" in explain("deepspeedjobs.spec.workers.template.spec.containers.resources"),
                   "a new resource is explained after a moment")
        every = explain("deepspeedjobs", "--recursive")
        expect("topologySpreadConstraints" in every and "stepTimeoutSeconds" in every, every[-500:])

    def merges(self):
        """Two managers of server-side apply each own entries of one list, as of a pod's."""
        def apply(manager, container, **pod):
            worker = dict({"name": "worker"}, **container)
            part = {"apiVersion": JOB["apiVersion"], "kind": JOB["kind"], "metadata": {"name": "shared", "namespace": "merging"},
                    "spec": {"workers": {"template": {"spec": dict({"containers": [worker]}, **pod)}}}}
            if manager == "user":
                part["spec"] = dict(JOB["spec"], suspend=True, workers=dict(JOB["spec"]["workers"], **part["spec"]["workers"]))
            return kubectl("apply", "--server-side", "--field-manager=" + manager, "-f", "-", thing=part, check=False)
        kubectl("create", "namespace", "merging")
        first = apply("user", {"image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 1}],
                               "volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=[{"name": "v", "emptyDir": {}}],
                      imagePullSecrets=[{"name": "a"}], initContainers=[{"name": "first", "image": "i"}])
        expect(first.returncode == 0, first.stderr)
        second = apply("policy", {"env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 1, "protocol": "UDP"}],
                                  "volumeMounts": [{"name": "w", "mountPath": "/w"}]}, volumes=[{"name": "w", "emptyDir": {}}],
                       imagePullSecrets=[{"name": "b"}], initContainers=[{"name": "second", "image": "i"}])
        expect(second.returncode == 0, second.stderr)

        def names(key, things):
            return sorted(str(thing[key]) for thing in things)

        def template():
            pod = json.loads(kubectl("-n", "merging", "get", "dsj", "shared", "-o", "json").stdout)["spec"]["workers"]["template"]["spec"]
            return pod, pod["containers"][0]
        pod, worker = template()
        expect(len(pod["containers"]) == 1 and worker["image"] == "i", pod)
        found = [names("name", worker["env"]), names("protocol", worker["ports"]), names("mountPath", worker["volumeMounts"]),
                 names("name", pod["volumes"]), names("name", pod["imagePullSecrets"]), names("name", pod["initContainers"])]
        expect(found == [["A", "B"], ["TCP", "UDP"], ["/v", "/w"], ["v", "w"], ["a", "b"], ["first", "second"]], found)
        conflict = apply("policy", {"env": [{"name": "A", "value": "3"}]})
        expect(conflict.returncode != 0 and "conflict" in conflict.stderr, conflict.stderr)
        gone = apply("policy", {"env": [{"name": "C", "value": "3"}]})
        expect(gone.returncode == 0 and names("name", template()[1]["env"]) == ["A", "C"], f"{gone.stderr} {template()}")
        kubectl("-n", "merging", "delete", "dsj", "shared")
        print("result: chart: two managers of server-side apply share 6 lists of a template")

    def manager(self):
        """spec.managedBy never changes, as batch/v1's: neither another value, nor one that comes or goes."""
        def change(name, patch):
            return kubectl("-n", "merging", "patch", "dsj", name, "--type", "merge", "-p", json.dumps({"spec": patch}), check=False)
        def make(name, value):
            more = {"managedBy": value} if value else {}
            return kubectl("create", "-f", "-", check=False, thing=dict(
                JOB, metadata={"name": name, "namespace": "merging"}, spec=dict(JOB["spec"], suspend=True, **more)))
        for wrong in ("multikueue", "/a", "a/", "A.b/c", "-a/b", "a..b/c", "a/b c", "a/" + "b" * 62):
            done = make("wrong", wrong)
            expect(done.returncode != 0 and "managedBy" in done.stderr, f"managedBy {wrong}: {done.stdout}{done.stderr}")
        for name, value in (("own", ""), ("far", "kueue.x-k8s.io/multikueue")):
            done = make(name, value)
            expect(done.returncode == 0, done.stderr)
        for name, value in (("own", "kueue.x-k8s.io/multikueue"), ("far", "a.io/b"), ("far", None)):
            done = change(name, {"managedBy": value})
            expect(done.returncode != 0 and "the controller of a job does not change" in done.stderr, f"{name} {value}: {done.stderr}")
            expect(change(name, {"suspend": False}).returncode == 0, "another edit")
        fresh = json.loads(kubectl("-n", "merging", "get", "dsj", "far", "-o", "json").stdout)
        expect(fresh["status"] == {"observedGeneration": -1}, f"a job that no operator has seen is not current for kstatus: {fresh.get('status')}")
        for name in ("own", "far"):
            kubectl("-n", "merging", "delete", "dsj", name)

    def rights(self):
        operator = "system:serviceaccount:ops:r-deepspeedjob"

        def may(*words):
            return kubectl("auth", "can-i", *words, "--as", operator, check=False).stdout.strip() == "yes"
        # What a role gives counts after a moment; what none gives never does.
        for words in (["list", "deepspeedjobs.training.dsj.dev", "-A"], ["create", "pods", "-n", "team"], ["delete", "pods", "-n", "team"],
                      ["create", "roles", "-n", "team"], ["watch", "nodes"], ["get", "deepspeedjobtemplates.training.dsj.dev"], ["create", "networkpolicies.networking.k8s.io", "-n", "team"],
                      ["patch", "deepspeedjobs.training.dsj.dev", "--subresource=status", "-n", "team"],
                      ["update", "leases.coordination.k8s.io/r-deepspeedjob", "-n", "ops"],
                      ["create", "leases.coordination.k8s.io", "-n", "ops"],
                      ["update", "networkpolicies.networking.k8s.io", "-n", "team"],
                      ["patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/r-deepspeedjob-ops"]):
            eventually(lambda words=words: may(*words), f"the operator may not {words}")
        for words in (["get", "secrets", "-A"], ["list", "secrets", "-n", "team"], ["update", "secrets", "-n", "team"],
                      ["patch", "secrets", "-n", "team"], ["patch", "pods", "-n", "team"], ["patch", "roles", "-n", "team"],
                      ["create", "pods", "--subresource=exec", "-n", "team"], ["escalate", "roles", "-n", "team"],
                      ["bind", "roles", "-n", "team"], ["patch", "deepspeedjobs.training.dsj.dev", "-n", "team"],
                      ["create", "clusterroles"], ["update", "nodes"], ["patch", "nodes"], ["get", "nodes"], ["list", "deepspeedjobtemplates.training.dsj.dev"],
                      ["patch", "deepspeedjobtemplates.training.dsj.dev"],
                      ["patch", "networkpolicies.networking.k8s.io", "-n", "team"], ["list", "podgroups.scheduling.volcano.sh", "-n", "team"],
                      ["create", "leases.coordination.k8s.io", "-n", "team"],
                      ["update", "leases.coordination.k8s.io/another", "-n", "ops"],
                      ["impersonate", "users"], ["create", "serviceaccounts", "--subresource=token", "-n", "team"],
                      ["patch", "validatingwebhookconfigurations.admissionregistration.k8s.io"],
                      ["list", "validatingwebhookconfigurations.admissionregistration.k8s.io"],
                      ["delete", "validatingwebhookconfigurations.admissionregistration.k8s.io/r-deepspeedjob-ops"],
                      ["patch", "validatingadmissionpolicies.admissionregistration.k8s.io"]):
            expect(not may(*words), f"the operator may {words}")
        kubectl("create", "namespace", "team")

        def role(name, group, resource, verbs):
            return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name, "namespace": "team"},
                    "rules": [{"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": ["tune"]}]}
        kubectl("create", "--dry-run=server", "--as", operator, "-f", "-",
                thing=role("tune-worker", "training.dsj.dev", "deepspeedjobs/status", ["get", "patch"]))
        more = kubectl("create", "--dry-run=server", "--as", operator, "-f", "-", thing=role("more", "", "secrets", ["get"]), check=False)
        expect("attempting to grant" in more.stderr, f"it grants only what it holds: {more.stderr}")
        self.keys(operator)

    @staticmethod
    def user(namespace):
        """One who may make pods and Secrets there, and nothing else: an administrator has every right, that to keys included."""
        kubectl("-n", namespace, "create", "role", "maker", "--verb=create", "--resource=pods", "--resource=secrets")
        kubectl("-n", namespace, "create", "rolebinding", "maker", "--role=maker", "--user=jane")
        return ("--as", "jane")

    def keys(self, operator):
        """Worker 0's keys: what the operator may make, and who may mount them."""
        def secret(kind):
            return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {
                        "name": "tune-dsj-key-1", "namespace": "team",
                        "annotations": {"kubernetes.io/service-account.name": "default"}},
                    "stringData": {"key.pem": "secret"}}

        def pod(name, index, secret_of, key="1", **more):
            source = {"secret": {"name": f"{secret_of}-dsj-key-{key}", "optional": True}}
            return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team", "labels": {
                        "training.dsj.dev/job-name": "tune", "training.dsj.dev/replica-index": index}},
                    "spec": {"containers": [{"name": "worker", "image": "none", **more}],
                             "volumes": [{"name": "keys", "projected": {"sources": [source]}}]}}

        def make(thing, *who):
            return kubectl("create", "--dry-run=server", *who, "-f", "-", thing=thing, check=False)
        for namespace in ("team", "kube-system"):
            kubectl("-n", namespace, "create", "serviceaccount", "default", check=False)
        own = "training.dsj.dev/worker-key"
        as_operator, as_user = ("--as", operator), self.user("team")
        variable = {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "tune-dsj-key-1", "key": "key.pem"}}}]}
        plain = pod("thief", "0", "tune")
        plain["spec"]["volumes"] = [{"name": "keys", "secret": {"secretName": "tune-dsj-key-1"}}]
        authority = pod("tune-worker-1-1", "1", "tune", env=[{"name": "DSJ_JOIN_AUTHORITY", "value": "own"}])
        del authority["spec"]["volumes"]
        bad = [("the operator makes another Secret", secret("Opaque"), as_operator),
               ("the operator makes a token for an account", secret("kubernetes.io/service-account-token"), as_operator),
               ("a user's pod mounts a key", pod("tune-worker-0-1", "0", "tune"), as_user),
               ("a user's pod mounts a key as a volume", plain, as_user),
               ("worker 1 mounts worker 0's key", pod("tune-worker-1-1", "1", "tune"), as_operator),
               ("worker 0 mounts another job's key", pod("tune-worker-0-1", "0", "other"), as_operator),
               ("the operator makes a pod in kube-system", dict(pod("x", "0", "tune"), metadata={"name": "x", "namespace": "kube-system"}),
                as_operator),
               ("a user's pod mounts a key of an older operator", pod("tune-worker-0-1", "0", "tune", "1-0"), as_user),
               ("a user's pod with an authority for the operator to believe", authority, as_user),
               ("a key in a variable", pod("tune-worker-0-1", "0", "tune", **variable), as_operator)]
        for what, thing, who in bad:  # of three policies, each in force after a moment of its own; nothing is made here
            eventually(lambda thing=thing, who=who: "denied request" in make(thing, *who).stderr,
                       lambda what=what, thing=thing, who=who: f"{what}: {make(thing, *who)}")
        expect(make(pod("other", "0", "tune"), *as_user).stderr.count("denied request"), "a user's pod by another name")
        for what, done in (("a key", make(secret(own), *as_operator)), ("worker 0", make(pod("tune-worker-0-1", "0", "tune"), *as_operator)),
                           ("a user's own Secret", make(secret("Opaque")))):
            expect(done.returncode == 0, f"{what}: {done.stderr}")
        print(f"result: chart: {len(bad)} ways to a key, or out of its namespaces, are refused")

    def teams(self):
        """Each team has an operator of its own, beside one of the whole cluster: no release refuses another's pods, and no user's pod
        has a key."""
        labels = {"training.dsj.dev/job-name": "tune", "training.dsj.dev/replica-index": "0"}
        keys = {"projected": {"sources": [{"secret": {"name": "tune-dsj-key-1", "optional": True}}]}}

        def make(namespace, *who):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tune-worker-0-1", "namespace": namespace, "labels": labels},
                   "spec": {"containers": [{"name": "worker", "image": "none"}], "volumes": [{"name": "keys", **keys}]}}
            return kubectl("create", "--dry-run=server", *who, "-f", "-", thing=pod, check=False)
        operators = {}
        for team in ("a", "b"):
            kubectl("create", "namespace", f"team-{team}")
            kubectl("-n", f"team-{team}", "create", "serviceaccount", "default", check=False)
            run("helm", "install", "dsj", self.chart, "-n", f"ops-{team}", "--create-namespace", "--set", "rbac.scope=Namespaces",
                "--set", f"watchNamespaces={{team-{team}}}", "--set", "crds.install=false")
            operators[team] = ("--as", f"system:serviceaccount:ops-{team}:dsj-deepspeedjob")
            user = self.user(f"team-{team}")
        for team, other in (("a", "b"), ("b", "a")):  # a policy and a role are in force after a moment each
            eventually(lambda team=team: "denied request" in make(f"team-{team}", *user).stderr,
                       lambda team=team: f"a user's: {make(f'team-{team}', *user)}")
            eventually(lambda team=team: make(f"team-{team}", *operators[team]).returncode == 0,
                       lambda team=team: f"team {team}'s own: {make(f'team-{team}', *operators[team])}")
            expect("cannot create resource" in make(f"team-{team}", *operators[other]).stderr, f"{other}'s in team {team}")
        expect(all("denied request" in make(f"team-{team}", *user).stderr for team in ("a", "b")), "users' pods, still")
        for team in ("a", "b"):
            run("helm", "uninstall", "dsj", "-n", f"ops-{team}")
        print("result: chart: 3 operators in one cluster, each makes its own pods")

    # ---- attacks
    def config_of(self, name, token):
        admin = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json").stdout)
        cluster = {key: value for key, value in admin["clusters"][0]["cluster"].items()}
        path = os.path.join(self.room, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
                       "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
                       "users": [{"name": "u", "user": {"token": token}}]}, file)
        return path

    def pod(self, name, account):
        made = kubectl("create", "-o", "json", "-f", "-", thing={
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"},
            "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "none"}]}})
        token = kubectl("-n", "team", "create", "token", account, "--bound-object-kind", "Pod", "--bound-object-name", name,
                        "--bound-object-uid", json.loads(made.stdout)["metadata"]["uid"]).stdout.strip()
        return self.config_of(name, token)

    def attacks(self):
        for name in ("tune", "other"):
            kubectl("create", "-f", "-", thing=dict(JOB, metadata={"name": name, "namespace": "team"}))
        for account in ("tune-worker", "own"):
            kubectl("-n", "team", "create", "serviceaccount", account)
        # Rights beyond the agent's, so that what refuses is the policy and not RBAC.
        kubectl("-n", "team", "create", "role", "wide", "--verb=*", "--resource=deepspeedjobs.training.dsj.dev",
                "--resource=deepspeedjobs.training.dsj.dev/status")
        kubectl("-n", "team", "create", "rolebinding", "wide", "--role=wide", "--serviceaccount=team:tune-worker",
                "--serviceaccount=team:own")
        zero, one = self.pod("tune-worker-0-1", "tune-worker"), self.pod("tune-worker-1-1", "tune-worker")
        others_zero, ci = self.pod("other-worker-0-1", "own"), self.pod("pipeline-7", "own")
        longer = self.pod("tune-worker-0-x-worker-0-1", "own")
        unbound = self.config_of("unbound", kubectl("-n", "team", "create", "token", "tune-worker").stdout.strip())

        def status(config, fields, job="tune"):
            return kubectl("apply", "--server-side", "--force-conflicts", "--subresource=status", "--field-manager=dsj-agent", "-f", "-",
                           thing={"apiVersion": JOB["apiVersion"], "kind": JOB["kind"], "metadata": {"name": job, "namespace": "team"},
                                  "status": fields}, check=False, config=config)

        def merge(config, patch, *words):
            return kubectl("-n", "team", "patch", "dsj", "tune", "--type", "merge", "-p", json.dumps(patch), *words, check=False, config=config)

        saved = {"lastSaved": {"step": 5, "path": "/c/5"}}
        # The role's binding and the policy are in force after a moment each. RBAC refuses in other words than the policy.
        eventually(lambda: "denied request" in status(one, {"training": {"attempt": 1}}).stderr,
                   lambda: f"no policy: {status(one, {'training': {'attempt': 1}})}")
        good = [
            ("worker 0 writes its attempt", status(zero, {"training": {"attempt": 3, "step": 1}})),
            ("and its checkpoint", status(zero, {"training": {"attempt": 3, "step": 9}, "checkpoint": saved})),
            ("the operator writes its fields", merge(None, {"status": {"phase": "Running"}}, "--subresource=status")),
            ("worker 0 goes on beside them", status(zero, {"training": {"attempt": 4, "step": 10}, "checkpoint": saved})),
            ("a pod that is no worker edits a job", merge(ci, {"spec": {"suspend": False}})),
            ("and makes one without a name of its own", kubectl("create", "-f", "-", thing=dict(
                JOB, metadata={"generateName": "tune-", "namespace": "team"}), check=False, config=ci)),
        ]
        for what, done in good:
            expect(done.returncode == 0, f"{what}: {done.stderr}")
        bad = [
            ("an attempt that is over", status(zero, {"training": {"attempt": 3, "step": 99}})),
            ("no attempt any more", status(zero, {"training": {"step": 99}})),
            ("the operator's phase", status(zero, {"training": {"attempt": 4}, "phase": "Complete"})),
            ("conditions", merge(zero, {"status": {"conditions": []}}, "--subresource=status")),
            ("the operator's phase taken away", merge(zero, {"status": {"phase": None}}, "--subresource=status")),
            ("the spec", merge(zero, {"spec": {"suspend": True}})),
            ("labels", merge(zero, {"metadata": {"labels": {"a": "b"}}})),
            ("another job", status(zero, {"training": {"attempt": 9}}, job="other")),
            ("another worker", status(one, {"training": {"attempt": 9}})),
            ("another job's worker 0", status(others_zero, {"training": {"attempt": 9}})),
            ("worker 0 of a job with a longer name", status(longer, {"training": {"attempt": 9}})),
            ("the account without a pod", status(unbound, {"training": {"attempt": 9}})),
            ("deletion of its job", kubectl("-n", "team", "delete", "dsj", "tune", "--wait=false", check=False, config=zero)),
            ("a job of its own", kubectl("create", "-f", "-", thing=dict(JOB, metadata={"name": "more", "namespace": "team"}),
                                         check=False, config=zero)),
        ]
        for what, done in bad:
            expect(done.returncode != 0 and "r-deepspeedjob-ops-agent" in done.stderr and "denied request" in done.stderr,
                   f"{what} is not refused: {done.stdout}{done.stderr}")
            print(f"refused {what}: {done.stderr.strip().splitlines()[-1][-110:]}")
        print(f"result: chart: {len(good)} writes taken, {len(bad)} attacks refused by the agent policy")
        left = json.loads(kubectl("-n", "team", "get", "dsj", "tune", "-o", "json").stdout)
        expect(left["status"]["training"] == {"attempt": 4, "step": 10}, left["status"])
        for phase, found in ((left["status"]["phase"], True), ("Complete", False)):
            chosen = kubectl("-n", "team", "get", "dsj", "--field-selector", "status.phase=" + phase, "-o", "name").stdout
            expect(("/tune" in chosen) == found, f"jobs with the phase {phase}: {chosen}")

    def metrics(self):
        """The metrics of the running operator are for those whom the chart's ClusterRole lets read them."""
        tokens = {}
        for name in ("reader", "stranger"):
            kubectl("-n", "ops", "create", "serviceaccount", name)
            tokens[name] = kubectl("-n", "ops", "create", "token", name).stdout.strip()
        kubectl("create", "clusterrolebinding", "reader", "--clusterrole=r-deepspeedjob-ops-metrics-reader", "--serviceaccount=ops:reader")
        trusting = ssl._create_unverified_context()  # as a scraper: the certificate is the operator's own

        def get(url, token=""):
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
            try:
                with urllib.request.urlopen(request, timeout=LONG, context=trusting if url.startswith("https") else None) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
        url = f"https://{self.metrics_address}/metrics"
        eventually(lambda: get(url, tokens["reader"])[0] == 200, lambda: get(url, tokens["reader"]))
        expect("deepspeedjob_leader 1" in get(url, tokens["reader"])[1], "the reader sees them")
        for what, wanted, seen in (("a stranger", 403, get(url, tokens["stranger"])), ("nobody", 401, get(url)),
                                   ("a made-up token", 401, get(url, "made.up.token")),
                                   ("plain HTTP", 404, get(f"http://{self.health_address}/metrics"))):
            expect(seen[0] == wanted, f"{what}: {seen}")
        print("result: chart: metrics are read by 1 of 4 askers")

    # ---- the operator itself, with the rights that the chart gives it and no other
    def enough(self):
        expect(os.access(self.operator, os.X_OK), f"{self.operator} is not built")
        kubectl("-n", "team", "delete", "dsj,pods", "--all", "--force", "--grace-period=0")
        config = self.config_of("operator", kubectl("-n", "ops", "create", "token", "r-deepspeedjob").stdout.strip())
        log = os.path.join(self.room, "operator.log")
        deployment = json.loads(kubectl("-n", "ops", "get", "deployment", "r-deepspeedjob", "-o", "json").stdout)
        told = {entry["name"]: entry.get("value", "") for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
        self.metrics_address, self.health_address = (f"127.0.0.1:{free_port()}" for _ in range(2))
        told.update(DSJ_NAMESPACE="ops", DSJ_POD_NAME="operator-1", KUBECONFIG=config, DSJ_METRICS_ADDRESS=self.metrics_address)

        def names():
            return kubectl("-n", "team", "get", "pods,services,configmaps,serviceaccounts,roles,rolebindings", "-o", "name",
                           "-l", "training.dsj.dev/job-name=whole").stdout.split()
        command, environment = self.as_anybody(told)
        with open(log, "wb") as output:
            process = subprocess.Popen([*command, "--health-address=" + self.health_address, "--webhook-address=127.0.0.1:0"],
                                       env=environment, stdout=output, stderr=output)
        try:
            kubectl("create", "-f", "-", thing=dict(JOB, metadata={"name": "whole", "namespace": "team"}))
            eventually(lambda: len(names()) == 7, lambda: f"{names()}: {self.text(log)}")
            eventually(lambda: self.authorities() == 1, lambda: f"the webhook has no authority: {self.text(log)}")
            self.metrics()
            kubectl("-n", "team", "patch", "dsj", "whole", "--type", "merge", "-p", '{"spec": {"suspend": true}}')
            eventually(lambda: not [name for name in names() if name.startswith("pod/")], lambda: f"{names()}: {self.text(log)}")
        finally:
            process.terminate()
            process.wait(LONG)
        expect("forbidden" not in self.text(log).lower(), self.text(log))
        kubectl("-n", "team", "delete", "dsj", "whole")
        for name in ("tune", "other"):
            kubectl("create", "-f", "-", thing=dict(JOB, metadata={"name": name, "namespace": "team"}))

    def as_anybody(self, told):
        """(command, environment) of the operator under a random user of group 0 without HOME, where that can be had; else as it is."""
        config = told["KUBECONFIG"]
        os.chmod(config, 0o640)
        os.chmod(self.room, 0o750)
        stranger = Stranger({"bin": os.path.dirname(os.path.abspath(self.operator)), "room": os.path.dirname(config)})
        try:
            command = [*stranger.command("room"), f"{SHOWN}/bin/{os.path.basename(self.operator)}"]
        except Skip as why:
            print(f"result: chart: the operator does not run as a random user: NOT RUN ({why})")
            return [self.operator], dict(os.environ, **told)
        print(f"result: chart: the operator runs as user {stranger.uid} of group 0")
        return command, stranger.environment(**dict(told, KUBECONFIG=f"{SHOWN}/room/{os.path.basename(config)}"))

    @staticmethod
    def authorities():
        """In the webhook's bundle."""
        bundle = kubectl("get", "validatingwebhookconfiguration", "r-deepspeedjob-ops", "-o",
                         "jsonpath={.webhooks[0].clientConfig.caBundle}").stdout
        return base64.b64decode(bundle).count(b"BEGIN CERTIFICATE")

    @staticmethod
    def text(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- the resources stayed, and so did the jobs
    def again(self):
        """helm takes the resources that it kept, under the same name of the release; under another only if it is told to."""
        before = kubectl("-n", "team", "get", "dsj", "-o", "name").stdout
        run("helm", "install", "r", self.chart, "-n", "ops")
        run("helm", "uninstall", "r", "-n", "ops")
        other = run("helm", "install", "other", self.chart, "-n", "ops", check=False)
        expect(other.returncode != 0 and "invalid ownership metadata" in other.stderr, f"another release: {other.stderr}")
        run("helm", "install", "other", self.chart, "-n", "ops", "--take-ownership")
        run("helm", "uninstall", "other", "-n", "ops")
        run("helm", "install", "third", self.chart, "-n", "ops", "--set", "crds.install=false")
        run("helm", "uninstall", "third", "-n", "ops")
        expect(kubectl("-n", "team", "get", "dsj", "-o", "name").stdout == before, "every job is still there")

    def without_resources(self):
        """An upgrade to crds.install=false deletes no resource: one that is not kept is refused, a kept one stays with its jobs."""
        before = kubectl("-n", "team", "get", "dsj", "-o", "name").stdout
        run("helm", "install", "other", self.chart, "-n", "ops", "--set", "crds.keep=false")
        for plural in ("deepspeedjobs", "deepspeedjobtemplates"):  # as a first install without `keep` leaves them
            kubectl("annotate", "crd", plural + ".training.dsj.dev", "helm.sh/resource-policy-")
        refused = run("helm", "upgrade", "other", self.chart, "-n", "ops", "--set", "crds.install=false,crds.keep=false", check=False)
        expect(refused.returncode != 0 and "would delete deepspeedjobs.training.dsj.dev" in refused.stderr, f"an upgrade that deletes the resource: {refused.stderr}")
        run("helm", "upgrade", "other", self.chart, "-n", "ops", "--set", "crds.keep=true")
        for keep in ("true", "false"):
            run("helm", "upgrade", "other", self.chart, "-n", "ops", "--set", f"crds.install=false,crds.keep={keep}")
            expect(kubectl("-n", "team", "get", "dsj", "-o", "name").stdout == before, "every job is still there")
        run("helm", "uninstall", "other", "-n", "ops")
        expect(kubectl("-n", "team", "get", "dsj", "-o", "name").stdout == before, "every job is still there")

    # ---- the other scope, and the end
    def leave(self):
        run("helm", "upgrade", "r", self.chart, "-n", "ops", "--set", "rbac.scope=Namespaces", "--set", "watchNamespaces={team}")
        operator = "system:serviceaccount:ops:r-deepspeedjob"
        for words, right in ((["create", "pods", "-n", "team"], "yes"), (["create", "pods", "-n", "strict"], "no"), (["watch", "nodes"], "no"),
                             (["get", "deepspeedjobtemplates.training.dsj.dev"], "no")):
            def answer(words=words):
                return kubectl("auth", "can-i", *words, "--as", operator, check=False).stdout.strip()
            eventually(lambda answer=answer, right=right: answer() == right, lambda words=words, answer=answer: f"{words}: {answer()}")
        run("helm", "uninstall", "r", "-n", "ops")
        kubectl("get", "crd", "deepspeedjobs.training.dsj.dev")
        expect(kubectl("-n", "team", "get", "dsj", "-o", "name").stdout.count("/") == 2, "the jobs are there after uninstalling")
        rest = kubectl("get", "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingwebhookconfiguration", "-l", "app.kubernetes.io/instance=r", "-o", "name").stdout
        expect(rest == "", f"left behind: {rest}")


def main():
    chart, report = Chart(sys.argv[1], sys.argv[2]), Report("Chart", sys.argv[3])
    for case in (chart.package, chart.values, chart.security_context, chart.workers_security_context, chart.names, chart.versions, chart.matrix, chart.marks, chart.more_values, chart.install, chart.template_is_a_pod, chart.merges, chart.manager, chart.rights, chart.teams, chart.attacks, chart.enough, chart.leave, chart.again, chart.without_resources):
        report.run(case.__name__, case, tools=("helm", "kubectl"))
    shutil.rmtree(chart.room, ignore_errors=True)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
