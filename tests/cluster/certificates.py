"""The cluster's authority, the certificates of its parts, and kubeconfig files, by openssl. Everything lies in PKI."""
import base64
import os
import subprocess

from settings import PKI, ClusterError

CURVE = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]


def _openssl(*words, given=None):
    done = subprocess.run(["openssl", *words], input=given, capture_output=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"openssl {words[0]}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def file(name):
    return os.path.join(PKI, name)


def authority():
    """The authority, and the key pair that signs service account tokens."""
    if os.path.exists(file("sa.pub")):
        return
    os.makedirs(PKI, mode=0o700, exist_ok=True)
    _openssl("req", "-x509", "-newkey", *CURVE, "-nodes", "-days", "365", "-subj", "/CN=dsj-test-cluster",
             "-keyout", file("ca.key"), "-out", file("ca.crt"))
    _openssl("genrsa", "-out", file("sa.key"), "2048")
    _openssl("rsa", "-in", file("sa.key"), "-pubout", "-out", file("sa.pub"))


def issue(name, subject, alternative_names=(), algorithm="ec", again=False):
    """NAME.crt and NAME.key, each replaced by a rename; `again`: also when they exist already."""
    if os.path.exists(file(name + ".crt")) and not again:
        return
    key = CURVE if algorithm == "ec" else ["rsa:2048"]
    request = _openssl("req", "-newkey", *key, "-nodes", "-keyout", file(name + ".key.part"), "-subj", subject)
    extensions = "extendedKeyUsage=serverAuth,clientAuth\n"
    if alternative_names:
        extensions += "subjectAltName=" + ",".join(alternative_names) + "\n"
    with open(file(name + ".ext"), "w", encoding="ascii") as out:
        out.write(extensions)
    _openssl("x509", "-req", "-CA", file("ca.crt"), "-CAkey", file("ca.key"), "-days", "365", "-out",
             file(name + ".crt.part"), "-extfile", file(name + ".ext"), given=request)
    for kind in ("key", "crt"):
        os.replace(file(f"{name}.{kind}.part"), file(f"{name}.{kind}"))


def data(name):
    with open(file(name), "rb") as source:
        return base64.b64encode(source.read()).decode()


def kubeconfig(path, name, server, inline=True):
    """For the certificate NAME. `inline`: with the bytes in it, else with the files' names."""
    if inline:
        authority_line = f"certificate-authority-data: {data('ca.crt')}"
        user = f"client-certificate-data: {data(name + '.crt')}, client-key-data: {data(name + '.key')}"
    else:
        authority_line = f"certificate-authority: {file('ca.crt')}"
        user = f"client-certificate: {file(name + '.crt')}, client-key: {file(name + '.key')}"
    text = f"""apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "{server}", {authority_line}}}}}]
users: [{{name: {name}, user: {{{user}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: {name}}}}}]
"""
    with open(path + ".part", "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as out:
        out.write(text)
    os.replace(path + ".part", path)
