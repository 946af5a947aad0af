#!/usr/bin/env python3
"""Checks the manifests of examples/kubernetes: they parse, and a Tutti job starts from them.

  kubernetes.py ROOT [TUTTI]

Renders the pods of each manifest as Kubernetes does: host name, full name, variables and command. Then checks that
Tutti reads every variable, that the numbers of pods, times and exit codes fit together, and, with TUTTI, that the pods
form one job. For this each pod runs its command, with a shell in place of ./train, under its own host name and
/etc/hosts. Ends with 77 if PyYAML is missing, or if this machine permits no namespaces and all other checks pass.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

try:
    import yaml
except ImportError:
    print("skipped: there is no PyYAML (Debian: python3-yaml)")
    sys.exit(77)

NAMESPACE = "default"
INDEX = "batch.kubernetes.io/job-completion-index"
SECRET = "0123456789abcdef0123456789abcdef"  # what `kubectl create secret` would have stored
PATIENCE = 60  # seconds, for one job
DEFAULT_GRACE = 30  # seconds, of a pod; and of --signal-grace


class Wrong(Exception):
    pass


def expect(holds, text):
    if not holds:
        raise Wrong(text)


@dataclass
class Pod:
    index: int
    host: str
    service: str
    environment: dict
    command: list

    @property
    def full_name(self):
        return f"{self.host}.{self.service}.{NAMESPACE}.svc.cluster.local"


# ---- what Kubernetes, JobSet and Kubeflow Trainer make of a manifest ----


def value_of(entry, index):
    """The value of an entry of `env`."""
    if "value" in entry:
        expect(isinstance(entry["value"], str), f"the value of {entry['name']} is no string")
        return entry["value"]
    source = entry["valueFrom"]
    if "secretKeyRef" in source:
        expect(source["secretKeyRef"] == {"name": "tutti", "key": "secret"}, f"{entry['name']}: another secret than the comment makes")
        return SECRET
    path = source["fieldRef"]["fieldPath"]
    return {"metadata.namespace": NAMESPACE, f"metadata.annotations['{INDEX}']": str(index)}[path]


def pods_of_job(name, spec, service):
    """The pods of an indexed Job."""
    expect(spec["completionMode"] == "Indexed", f"{name} is no indexed Job")
    expect(spec["completions"] == spec["parallelism"], f"not all pods of {name} run at once")
    template = spec["template"]["spec"]
    expect(template["restartPolicy"] == "Never", "podFailurePolicy needs restartPolicy: Never")
    [container] = template["containers"]
    for index in range(spec["completions"]):
        environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": str(index)}
        for entry in container.get("env", []):
            environment[entry["name"]] = value_of(entry, index)
        command = [re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word) for word in container["command"]]
        yield Pod(index, f"{name}-{index}", service, environment, command)


def job(documents):
    [service] = [document for document in documents if document["kind"] == "Service"]
    [manifest] = [document for document in documents if document["kind"] == "Job"]
    name, template = manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]
    expect(manifest["apiVersion"] == "batch/v1" and service["apiVersion"] == "v1", "another version of the API")
    expect(service["spec"]["clusterIP"] == "None", "the service is not headless")
    expect(service["spec"]["selector"] == {"job-name": name}, "the service selects other pods")
    expect(template["subdomain"] == service["metadata"]["name"], "the pods have no service of that name")
    return manifest["spec"], list(pods_of_job(name, manifest["spec"], template["subdomain"]))


def jobset(documents):
    [manifest] = documents
    expect(manifest["apiVersion"] == "jobset.x-k8s.io/v1alpha2", "another version of the API")
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    expect(spec["network"]["enableDNSHostnames"], "the pods have no names")
    [replicated] = spec["replicatedJobs"]
    expect(replicated["replicas"] == 1, "each replica would be a Tutti job of its own")
    inner = replicated["template"]["spec"]
    return inner, list(pods_of_job(f"{name}-{replicated['name']}-0", inner, spec["network"].get("subdomain", name)))


def trainjob(documents):
    """With the runtime torch-distributed, whose Job is called node (kubeflow/trainer, plugins/torch)."""
    [manifest] = documents
    expect(manifest["apiVersion"] == "trainer.kubeflow.org/v1alpha1", "another version of the API")
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    expect(spec["runtimeRef"]["name"] == "torch-distributed", "another runtime")
    trainer = spec["trainer"]
    expect(not any(entry["name"].startswith("PET_") for entry in trainer["env"]), "the runtime reserves these variables")
    # Trainer starts a single rank if only one of the two is given.
    expect(trainer["resourcesPerNode"].keys() == {"requests", "limits"}, "resourcesPerNode needs requests and limits")
    variables = {"PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                 "PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": "29500"}
    entries = [*trainer["env"], *({"name": key, "value": value} for key, value in variables.items()),
               {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}}]
    inner = {"completionMode": "Indexed", "completions": trainer["numNodes"], "parallelism": trainer["numNodes"],
             "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", **trainer, "env": entries}]}}}
    return inner, list(pods_of_job(f"{name}-node-0", inner, name))


KINDS = {"job.yaml": job, "jobset.yaml": jobset, "trainjob.yaml": trainjob}

# ---- what Tutti makes of a pod ----


def options_of(command):
    """The options of `tutti run`, by name, as far as the program."""
    expect(command[:2] == ["tutti", "run"], f"{command} does not begin with tutti run")
    options, words = {}, iter(command[2:])
    for word in words:
        if not word.startswith("-"):
            return options, [word, *words]
        if word.startswith("--") and "=" not in word:
            options[word] = next(words)
        elif word.startswith("--"):
            name, _, options[name] = word.partition("=")
        else:
            options[word[:2]] = word[2:] or next(words)
    raise Wrong("there is no program")


def seconds(text):
    return float(re.fullmatch(r"(\d+)s", text)[1])


def variables_that_tutti_reads(root):
    text = "\n".join((root / path).read_text(encoding="utf-8") for path in
                     ("tutti/rendezvous/scheduler_nodes.cc", "tutti/launch/prepare.cc", "apps/tutti/run_options.cc"))
    of_torchrun = re.search(r"kTorchrunOptions\[\] = \{(.*?)\};", text, re.S)[1]
    names = re.findall(r'"([\w-]+)"', of_torchrun)
    return set(re.findall(r'"([A-Z][A-Z_]+)"', text)) | {"PET_" + name.upper().replace("-", "_") for name in names}


def exit_codes(root):
    text = (root / "tutti/launch/exit_codes.h").read_text(encoding="utf-8")
    return {name: int(value) for name, value in re.findall(r"int k(Exit\w+) = (\d+);", text)}


def check(root, spec, pods):
    known = variables_that_tutti_reads(root)
    for pod in pods:
        expect(len(pod.host) < 64 and re.fullmatch(r"[a-z0-9-]+", pod.host), f"{pod.host} is no name of a host")
        for name in pod.environment:
            expect(name in known or f"$({name})" in str(spec), f"neither Tutti nor the command reads {name}")
    options, program = options_of(pods[0].command)
    expect(program == ["./train"], f"the program is {program}")
    expect(all(options_of(pod.command) == (options, program) for pod in pods), "the pods have different commands")
    help_text = (root / "apps/tutti/run_options.cc").read_text(encoding="utf-8")
    for option in options:
        expect(re.search(rf'["-]?{option}[",]', help_text), f"tutti run has no option {option}")
    nodes = options.get("--nnodes", pods[0].environment.get("PET_NNODES"))
    expect(nodes.split(":")[-1] == str(len(pods)), f"--nnodes is {nodes}, and there are {len(pods)} pods")
    grace = spec["template"]["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    expect(seconds(options.get("--signal-grace", f"{DEFAULT_GRACE}s")) < grace, "Kubernetes kills the ranks before Tutti does")
    codes = exit_codes(root)
    for rule in spec.get("podFailurePolicy", {}).get("rules", []):
        if "onExitCodes" in rule:
            expect(sorted(rule["onExitCodes"]["values"]) == [codes["ExitUsage"], codes["ExitNoProgress"]], "other exit codes")
            expect(rule["onExitCodes"]["containerName"] == spec["template"]["spec"]["containers"][0]["name"], "no such container")


# ---- the pods as namespaces of this machine ----


class NotPermitted(Exception):
    pass


REPORT = 'echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK"'
# Addresses of the loopback interface that are none of 127.0.0.0/8, which Tutti would not advertise to other hosts.
ADDRESS = "10.77.9.{}"


def started(pod, pods, tutti, folder, entering):
    """The process of a pod, in a namespace of its own for names and mounts, in the network of all pods."""
    address = ADDRESS.format(pod.index + 1)
    lines = ["127.0.0.1 localhost", f"{address} {pod.full_name} {pod.host}"]  # as the kubelet writes it
    # The cluster's name server knows the pods with and without the domain of the cluster.
    lines += [f"{ADDRESS.format(other.index + 1)} {other.full_name} {other.host}.{other.service}" for other in pods]
    hosts = folder / f"hosts-{pod.host}"
    hosts.write_text("\n".join(lines) + "\n")
    command = [str(tutti), *pod.command[1:-1], "sh", "-c", REPORT]
    script = f"hostname {pod.host} && mount --bind '{hosts}' /etc/hosts && exec \"$@\""
    environment = {"PATH": os.environ["PATH"], "TUTTI_LOG": "warn", **pod.environment}
    return subprocess.Popen([*entering, "unshare", "--uts", "--mount", "sh", "-c", script, "sh", *command], env=environment,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def network(pods):
    """A process that holds a network with an address for each pod, and the command that enters it."""
    for tool in ("unshare", "nsenter", "ip", "mount", "hostname"):
        if not shutil.which(tool):
            raise NotPermitted(f"there is no {tool} (Debian: iproute2, util-linux, mount, hostname)")
    user = ["--user"] if os.geteuid() else []
    addresses = "".join(f" && ip address add {ADDRESS.format(pod.index + 1)}/32 dev lo" for pod in pods)
    holder = subprocess.Popen(["unshare", "--net", *user, *(["--map-root-user"] if user else []), "sh", "-c",
                               f"ip link set lo up{addresses} && echo in && exec cat"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if holder.stdout.readline() != "in\n":
        raise NotPermitted(holder.communicate()[1].strip())
    return holder, ["nsenter", "--target", str(holder.pid), "--net", *user, *(["--preserve-credentials"] if user else [])]


def run(pods, tutti):
    """Runs the job, and compares the ranks that the pods report with those that the manifest asks for."""
    holder, entering = network(pods)
    with tempfile.TemporaryDirectory() as name:
        processes = [started(pod, pods, tutti, pathlib.Path(name), entering) for pod in reversed(pods)]
        try:
            outputs = [process.communicate(timeout=PATIENCE) for process in processes]
        except subprocess.TimeoutExpired:
            raise Wrong(f"the job did not end within {PATIENCE} s") from None
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
            holder.communicate()
    errors = "\n".join(error for _, error in outputs)
    expect(all(process.returncode == 0 for process in processes), f"the job failed:\n{errors}")
    options, _ = options_of(pods[0].command)
    here = int(options.get("-n") or pods[0].environment["PET_NPROC_PER_NODE"])
    wanted = {f"rank {rank} of {here * len(pods)}, local {rank % here} of {here}, node {rank // here}"
              for rank in range(here * len(pods))}
    found = [line.split("] ", 1)[-1] for output, _ in outputs for line in output.splitlines()]
    expect(sorted(found) == sorted(wanted), "the ranks are:\n" + "\n".join(found) + "\n" + errors)
    for pod, (output, _) in zip(reversed(pods), outputs):
        expect(f"node {pod.index}\n" in output, f"the index of {pod.host} is not the number of its node")


def main(root, tutti=None):
    root = pathlib.Path(root).resolve()
    folder = root / "examples/kubernetes"
    files = sorted(path.name for path in folder.glob("*.yaml"))
    expect(files == sorted(KINDS), f"{folder} has {files}")
    skipped = None
    for file, kind in KINDS.items():
        try:
            spec, pods = kind(list(yaml.safe_load_all((folder / file).read_text(encoding="utf-8"))))
            check(root, spec, pods)
            if tutti:
                run(pods, pathlib.Path(tutti).resolve())
        except NotPermitted as error:
            skipped = str(error)
        except (Wrong, KeyError, ValueError) as error:
            print(f"{file}: {type(error).__name__}: {error}")
            return 1
        print(f"{file}: {len(pods)} pods, " + ("not run" if skipped or not tutti else "one job"))
    if skipped:
        print(f"skipped: the pods did not run: {skipped}")
    return 77 if skipped else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
