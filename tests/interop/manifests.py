#!/usr/bin/env python3
"""Checks that each Kubernetes manifest in scripts/engines/kubernetes starts the intended job.

    manifests.py DRUN DIRECTORY

For every manifest, runs the command of its pods under drun --dry-run=json, with the variables of the pod. The plan must
have as many nodes as there are pods. Compares drun's options with the corresponding fields of Kubernetes. Prints each
checked manifest. Prints the error and exits with 1 if a check fails.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("skipped: Python has no yaml (package python3-yaml)\nthis test is skipped")
    sys.exit(0)


def pods_of(document):
    """Returns (spec of the pod template, number of pods, variables that the operator sets) or None."""
    kind, spec = document["kind"], document["spec"]
    if kind == "Job":
        assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
        return spec["template"]["spec"], spec["completions"], {"JOB_COMPLETION_INDEX": "1"}
    if kind == "JobSet":
        (job,) = spec["replicatedJobs"]
        assert job["replicas"] == 1, "the completion index starts at 0 in each replica"
        return pods_of({"kind": "Job", "spec": job["template"]["spec"]})
    if kind == "PyTorchJob":
        worker, elastic = spec["pytorchReplicaSpecs"]["Worker"], spec["elasticPolicy"]
        assert elastic["maxReplicas"] == worker["replicas"]
        return worker["template"]["spec"], worker["replicas"], {
            "PET_RDZV_BACKEND": elastic["rdzvBackend"],
            "PET_RDZV_ENDPOINT": document["metadata"]["name"] + "-worker-0:29400",
            "PET_RDZV_ID": "x",
            "PET_NNODES": f"{elastic['minReplicas']}:{elastic['maxReplicas']}",
            "PET_NPROC_PER_NODE": str(elastic["nProcPerNode"]),
            "PET_MAX_RESTARTS": str(elastic["maxRestarts"]),
        }
    return None


def option(command, name):
    return next((w.partition("=")[2] for w in command if w.startswith(name + "=")), None)


def plan_of(drun, command, variables, directory):
    """Returns drun's plan. Substitutes the GPUs, the secret and the program, which do not exist on this machine."""
    secret = pathlib.Path(directory, "secret")
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    instead = {"drun": [drun, "--dry-run=json"], "--nproc-per-node=gpu": ["--nproc-per-node=8"]}
    words = []
    for word in command[:-1]:
        if word.startswith("--secret-file="):
            word = f"--secret-file={secret}"
        words += instead.get(word, [word])
    environment = {"PATH": os.environ["PATH"], "PET_MASTER_ADDR": "train-0.train", **variables}
    if "PET_RDZV_ENDPOINT" in variables:
        del environment["PET_MASTER_ADDR"]
    said = subprocess.run(words + ["true"], env=environment, capture_output=True, text=True, timeout=30)
    assert said.returncode == 0, f"{words}: {said.stderr}"
    return json.loads(said.stdout)


def check(drun, document, services, directory):
    pod, count, variables = pods_of(document)
    (container,) = pod["containers"]
    command = container["command"]
    variables |= {entry["name"]: entry["value"] for entry in container.get("env", [])}
    plan = plan_of(drun, command, variables, directory)
    assert plan["nodes"] == count, f"{count} pods, but the plan has {plan['nodes']} nodes"
    assert plan["workers_per_node"] == 8, plan["workers_per_node"]

    assert pod["terminationGracePeriodSeconds"] > float(option(command, "--shutdown-timeout"))
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    # Without an address, drun listens on loopback only, but the kubelet connects from outside the pod.
    assert option(command, "--metrics-port") == f"0.0.0.0:{ports['metrics']}"
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    if document["kind"] == "Job":
        assert pod["subdomain"] in services, "pods have host names only with a service of that name"
        labels = document["spec"]["template"]["metadata"]["labels"]
        assert services[pod["subdomain"]]["selector"].items() <= labels.items()


def main():
    drun, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    checked = 0
    for path in sorted(folder.glob("*.yaml")):
        documents = list(yaml.safe_load_all(path.read_text()))
        services = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Service"}
        for document in documents:
            if document["kind"] in ("Service", "Secret"):
                continue
            with tempfile.TemporaryDirectory() as directory:
                check(drun, document, services, directory)
            print(f"{path.name}: {document['kind']} {document['metadata']['name']}: ok")
            checked += 1
    assert checked >= 3, f"only {checked} manifests in {folder}"


main()
