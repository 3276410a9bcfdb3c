"""Where a test cluster keeps its things, and the addresses it uses. Environment:

DSJ_CLUSTER_STATE   directory of one cluster; everything in it goes with `down`
DSJ_CLUSTER_NUMBER  0 to 9: clusters with real nodes on one machine need different numbers (bridge, addresses, cgroup)
DSJ_CLUSTER_FAMILY  ipv6: the control plane alone (`--api`), on ::1 and with addresses of IPv6 only
DSJ_KUBERNETES      another version than the usual one, by the end of its folder in programs/: 1.37 for kubernetes-1.37
DSJ_CACHE           programs and images, shared by all clusters (~/.cache/dsj)
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NUMBER = int(os.environ.get("DSJ_CLUSTER_NUMBER", "0"))
STATE = os.path.abspath(os.environ.get("DSJ_CLUSTER_STATE", f"/var/lib/dsj-cluster-{NUMBER}"))
CACHE = os.path.join(os.environ.get("DSJ_CACHE", os.path.expanduser("~/.cache/dsj")), "cluster")
KUBERNETES_MODULE = "-".join(filter(None, ("kubernetes", os.environ.get("DSJ_KUBERNETES", ""))))
PKI = os.path.join(STATE, "pki")
LOGS = os.path.join(STATE, "log")
KUBECONFIG = os.path.join(STATE, "admin.kubeconfig")

BRIDGE = f"dsjc{NUMBER}"
NODE_NET = f"10.{100 + 3 * NUMBER}.0"       # the machine is .1, node I is .(10 + I)
POD_NET = f"10.{101 + 3 * NUMBER}"          # pods of node I: POD_NET.I.0/24
SERVICE_NET = f"10.{102 + 3 * NUMBER}.0"    # the first 256 of the services' /16
IPV6 = os.environ.get("DSJ_CLUSTER_FAMILY") == "ipv6"
SERVICE_NET6, NODE6 = "fd64:736a:1::/112", "fd64:736a::1"
CGROUP = f"dsj-cluster-{NUMBER}"
NODES_MAX = 9
LONG = 600  # seconds: bounds what an event decides


class ClusterError(Exception):
    """Said to the user as it is."""


def say(text):
    print(f"cluster: {text}", flush=True, file=sys.stderr)
