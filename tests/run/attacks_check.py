#!/usr/bin/env python3
"""What a job's pod and a stranger may not do, on a real API server with the operator and the chart's rights, in namespaces of Pod
Security level restricted. The agent policy's attacks are chart_check.py's, those on the join port pod_cluster_check.py's.

Usage: tests/cluster/cluster.py run --api attacks_check.py REPOSITORY BIN GTEST_REPORT. Exit 1 on a failure. Needs helm and kubectl
on PATH; without them everything is skipped, loudly.
"""
import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from bad_manifests import merged, pod, spec, worker  # noqa: E402
from chart_check import JOB, Chart  # noqa: E402
from cases import Report, expect  # noqa: E402
from kube import LONG, crds_served, eventually, kubectl, run  # noqa: E402

CORE, RBAC = "/api/v1/namespaces/team", "/apis/rbac.authorization.k8s.io/v1/namespaces/team"
JOBS = "/apis/training.dsj.dev/v1alpha1/namespaces/team/deepspeedjobs"
TUNE = JOBS + "/tune"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def job(name, change=None):
    return merged(merged(JOB, {"metadata": {"name": name, "namespace": "team"}}), change or {})


class Attacks:
    def __init__(self, repository, binaries):
        self.chart = Chart(repository, binaries)
        self.log = os.path.join(self.chart.room, "operator.log")
        self.process = None

    def pods(self, name):
        return json.loads(kubectl("-n", "team", "get", "pods", "-l", "training.dsj.dev/job-name=" + name, "-o", "json").stdout)["items"]

    def ask(self, method, path, body=None, token="", who=""):
        """The status of a request with this token, or as the administrator in the name of `who`."""
        config = json.loads(kubectl("config", "view", "--raw", "-o", "json").stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        if token:
            headers["Authorization"] = "Bearer " + token
        else:
            headers["Impersonate-User"] = who
            files = [os.path.join(self.chart.room, name) for name in ("client.crt", "client.key")]
            for file, name in zip(files, ("client-certificate-data", "client-key-data")):
                with open(file, "wb") as out:
                    out.write(base64.b64decode(user[name]))
            context.load_cert_chain(*files)
        request = urllib.request.Request(cluster["server"] + path, json.dumps(body).encode() if body is not None else None,
                                         headers, method=method)
        try:
            with urllib.request.urlopen(request, context=context, timeout=LONG) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def refused(self, attacks, **who):
        for what, method, path, body in attacks:
            status, said = self.ask(method, path, body, **who)
            expect(status == 403 and "forbidden" in said, f"{what}: {status} {said}")
            print(f"refused {what}: {json.loads(said)['message'][-110:]}")

    def restricted(self):
        """The operator's own pod and the pods that it makes are admitted where nothing else is."""
        def privileged(space):
            container = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
            return kubectl("create", "--dry-run=server", "-f", "-", check=False, thing={
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": space},
                "spec": {"serviceAccountName": "probe", "containers": [container]}}).stderr
        for space in ("ops", "team"):
            kubectl("create", "namespace", space)
            kubectl("label", "namespace", space, RESTRICTED)
            kubectl("-n", space, "create", "serviceaccount", "probe")
            eventually(lambda space=space: "PodSecurity" in privileged(space),
                       lambda space=space: f"the level of {space} is in force after a moment: {privileged(space)}")
        run("helm", "install", "r", self.chart.chart, "-n", "ops")
        crds_served()
        deployment = json.loads(kubectl("-n", "ops", "get", "deployment", "r-deepspeedjob", "-o", "json").stdout)
        template = deployment["spec"]["template"]
        kubectl("create", "--dry-run=server", "-f", "-", thing={
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator", "namespace": "ops", "labels": template["metadata"]["labels"]},
            "spec": template["spec"]})
        config = self.chart.config_of("operator", kubectl("-n", "ops", "create", "token", "r-deepspeedjob", "--duration=1h").stdout.strip())
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(
                [self.chart.operator, "--health-address=127.0.0.1:0", "--no-leader-election"], stdout=output, stderr=output,
                env=dict(os.environ, KUBECONFIG=config, DSJ_NAMESPACE="ops"))
        kubectl("create", "-f", "-", thing=job("tune"))
        eventually(lambda: len(self.pods("tune")) == 2, lambda: f"no pods: {Chart.text(self.log)[-1500:]}")
        for name, change in (("other", {}), ("program", merged(worker(image="i", command=["train"]), spec(launcher="Command")))):
            kubectl("create", "-f", "-", thing=job(name, change))
            eventually(lambda name=name: len(self.pods(name)) == 2, lambda: f"no pods: {Chart.text(self.log)[-1500:]}")
        for name, what, change in (("privileged", "a privileged worker", pod(containers=[{"name": "worker", "securityContext": {"privileged": True, "allowPrivilegeEscalation": True}}])),
                                   ("network", "a worker on the host's network", pod(hostNetwork=True)),
                                   ("disk", "a worker that mounts the host's disk", pod(volumes=[{"name": "h", "hostPath": {"path": "/"}}]))):
            # Each under its own name: no garbage collector runs here to end what a deleted job left behind.
            kubectl("create", "-f", "-", thing=job(name, change))

            def scheduled(name=name):
                status = json.loads(kubectl("-n", "team", "get", "dsj", name, "-o", "json").stdout).get("status", {})
                return next((entry for entry in status.get("conditions", []) if entry["type"] == "Scheduled"), {})
            eventually(lambda: "PodSecurity" in scheduled().get("message", ""), lambda: f"{what}: {scheduled()}")
            expect(scheduled()["reason"] == "Forbidden" and not self.pods(name), f"{what}: {scheduled()}")
            print(f"refused {what}: {scheduled()['message'][:110]}")
            kubectl("-n", "team", "delete", "dsj", name)
        print("result: attacks: operator and workers are admitted at Pod Security level restricted, 3 looser workers are not")

    def a_jobs_pod(self):
        """Worker 0 with the token that the kubelet would give it, and the rights that the operator gave it."""
        kubectl("-n", "team", "create", "secret", "generic", "treasure", "--from-literal=a=b")
        zero = next((entry["metadata"] for entry in self.pods("tune") if "-worker-0-" in entry["metadata"]["name"]), None)
        expect(zero, "the operator made no worker 0")
        token = kubectl("-n", "team", "create", "token", "tune-worker", "--bound-object-kind", "Pod", "--bound-object-name", zero["name"],
                        "--bound-object-uid", zero["uid"]).stdout.strip()
        for what, method, path, body in (("reads its job", "GET", TUNE, None),
                                         ("writes its attempt", "PATCH", TUNE + "/status", {"status": {"training": {"attempt": 1, "step": 0}}})):
            def answer(method=method, path=path, body=body):
                return self.ask(method, path, body, token=token)
            eventually(lambda answer=answer: answer()[0] == 200, lambda what=what, answer=answer: f"worker 0 {what}: {answer()}")
        container = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        attacks = [
            ("reads a secret", "GET", CORE + "/secrets/treasure", None), ("lists secrets", "GET", "/api/v1/secrets", None),
            ("makes a pod", "POST", CORE + "/pods", container), ("deletes a pod", "DELETE", f"{CORE}/pods/{zero['name']}", None),
            ("runs a command in a pod", "POST", f"{CORE}/pods/{zero['name']}/exec?command=sh&stdout=true", None),
            ("enters a pod", "POST", f"{CORE}/pods/{zero['name']}/attach", None),
            ("reads another's log", "GET", f"{CORE}/pods/{zero['name']}/log", None),
            ("reads a ConfigMap", "GET", CORE + "/configmaps", None), ("reads another job", "GET", JOBS + "/other", None),
            ("lists jobs", "GET", JOBS, None), ("changes its spec", "PATCH", TUNE, {"spec": {"suspend": True}}),
            ("changes another job's status", "PATCH", JOBS + "/other/status", {"status": {"training": {"attempt": 9}}}),
            ("scales its job", "PATCH", TUNE + "/scale", {"spec": {"replicas": 9}}), ("deletes its job", "DELETE", TUNE, None),
            ("widens its role", "PATCH", RBAC + "/roles/tune-worker", {"rules": []}),
            ("makes itself a token", "POST", CORE + "/serviceaccounts/tune-worker/token", {"spec": {}}),
            ("reads nodes", "GET", "/api/v1/nodes", None)]
        self.refused([("worker 0 " + what, *rest) for what, *rest in attacks], token=token)
        print(f"result: attacks: {len(attacks)} of a job's own pod refused")

    def a_stolen_operator_token(self):
        """Who has the operator's token reaches the objects that it made for jobs, and nothing else."""
        token = kubectl("-n", "ops", "create", "token", "r-deepspeedjob", "--duration=1h").stdout.strip()
        team = {"metadata": {"namespace": "team"}}
        for space in ("team", "kube-system"):
            kubectl("-n", space, "create", "configmap", "aws-auth", "--from-literal=mapRoles=[]")
        kubectl("-n", "team", "create", "service", "clusterip", "shop", "--tcp=80")
        kubectl("-n", "team", "create", "role", "shop", "--verb=get", "--resource=pods")
        kubectl("create", "-f", "-", thing={
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"serviceAccountName": "probe", "securityContext": {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
                     "containers": [{"name": "c", "image": "i", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}})
        kubectl("create", "-f", "-", thing=job("lasting", {"spec": {"suspend": True}}))

        def found(kind, name):
            return json.loads(kubectl("-n", "team", "get", kind, name, "-o", "json").stdout)
        shop, role = found("service", "shop"), found("role", "shop")
        tune = found("dsj", "tune")["metadata"]
        owner = {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "name": "tune", "uid": tune["uid"], "controller": True}
        adopted = {"metadata": {"labels": {"training.dsj.dev/job-name": "tune"}, "ownerReferences": [owner]}}
        own = next(entry["metadata"]["name"] for entry in json.loads(kubectl(
            "-n", "team", "get", "configmaps", "-l", "training.dsj.dev/job-name=tune", "-o", "json").stdout)["items"])
        made = dict(adopted, apiVersion="v1", kind="ConfigMap", metadata=dict(adopted["metadata"], name="x"))
        attacks = [
            ("patches aws-auth", "PATCH", "/api/v1/namespaces/kube-system/configmaps/aws-auth", {"data": {"mapRoles": "mine"}}),
            ("patches a foreign ConfigMap", "PATCH", CORE + "/configmaps/aws-auth", {"data": {"mapRoles": "mine"}}),
            ("adopts a foreign ConfigMap", "PATCH", CORE + "/configmaps/aws-auth", adopted),
            ("lets an own ConfigMap go", "PATCH", f"{CORE}/configmaps/{own}", {"metadata": {"ownerReferences": None}}),
            ("deletes a foreign ConfigMap", "DELETE", CORE + "/configmaps/aws-auth", None),
            ("deletes a foreign pod", "DELETE", CORE + "/pods/shop", None),
            ("changes a foreign Service", "PUT", CORE + "/services/shop", merged(shop, {"spec": {"selector": {"app": "mine"}}})),
            ("deletes a foreign Service", "DELETE", CORE + "/services/shop", None),
            ("widens a foreign Role", "PUT", RBAC + "/roles/shop", merged(role, team)),
            ("deletes a foreign Role", "DELETE", RBAC + "/roles/shop", None),
            ("deletes a foreign account", "DELETE", CORE + "/serviceaccounts/probe", None),
            ("makes a ConfigMap in kube-system", "POST", "/api/v1/namespaces/kube-system/configmaps", made),
            ("deletes a job that has not ended", "DELETE", JOBS + "/lasting", None)]
        eventually(lambda: self.ask("DELETE", CORE + "/configmaps/aws-auth?dryRun=All", None, token=token)[0] == 403,
                   "a policy is in force after a moment")
        self.refused([("the operator " + what, *rest) for what, *rest in attacks], token=token)
        zero = next(entry["metadata"]["name"] for entry in self.pods("tune"))
        for what, method, path, body in (("its own pod", "DELETE", f"{CORE}/pods/{zero}?dryRun=All", None),
                                         ("its own ConfigMap", "DELETE", f"{CORE}/configmaps/{own}?dryRun=All", None)):
            status, said = self.ask(method, path, body, token=token)
            expect(status == 200, f"{what}: {status} {said}")
        print(f"result: attacks: {len(attacks)} with the operator's token refused")

    def strangers(self):
        count = 0
        for who in ("mallory", "system:anonymous", "system:serviceaccount:team:default"):
            attacks = [
                ("makes a job", "POST", JOBS, job("theirs")), ("reads a job", "GET", TUNE, None),
                ("suspends a job", "PATCH", TUNE, {"spec": {"suspend": True}}), ("deletes a job", "DELETE", TUNE, None),
                ("scales a job", "PATCH", TUNE + "/scale", {"spec": {"replicas": 1}}),
                ("completes a job", "PATCH", TUNE + "/status", {"status": {"phase": "Complete"}}),
                ("reads the ds_config", "GET", CORE + "/configmaps", None),
                ("takes the webhook away", "DELETE", HOOKS + "/r-deepspeedjob-ops", None),
                ("takes the lead", "PATCH", "/apis/coordination.k8s.io/v1/namespaces/ops/leases/r-deepspeedjob", {"spec": {"holderIdentity": "x"}})]
            self.refused([(f"{who} {what}", *rest) for what, *rest in attacks], who=who)
            count += len(attacks)
        print(f"result: attacks: {count} of strangers refused")

    def finish(self):
        if self.process:
            self.process.terminate()
            self.process.wait(LONG)
        shutil.rmtree(self.chart.room, ignore_errors=True)


def main():
    attacks, report = Attacks(sys.argv[1], sys.argv[2]), Report("Attacks", sys.argv[3])
    for case in (attacks.restricted, attacks.a_jobs_pod, attacks.a_stolen_operator_token, attacks.strangers):
        report.run(case.__name__, case, tools=("helm", "kubectl"))
    attacks.finish()
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
