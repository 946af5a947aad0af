"""Two hosts, node1 and node2, that are namespaces of this machine joined by a cable, and a program that stands for ssh.

Each host has a network, a name and an /etc/hosts of its own; files are shared, as on a cluster with a common file
system. The hosts last as long as the object: a `cat` in each waits for the end of its input, which comes when this
process is gone.
"""
import os
import pathlib
import shutil
import subprocess

ADDRESSES = {"node1": "10.77.1.1", "node2": "10.77.1.2"}
NAMESPACES = ["--net", "--mount", "--uts"]


class NotPermitted(Exception):
    pass


class TwoHosts:
    def __init__(self, folder):
        for tool in ("unshare", "nsenter", "ip", "mount", "hostname"):
            if not shutil.which(tool):
                raise NotPermitted(f"there is no {tool} (Debian: iproute2, util-linux, mount, hostname)")
        self.folder = pathlib.Path(folder)
        self.user = ["--user", "--preserve-credentials"] if os.geteuid() else []
        self.holders = {}
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in ADDRESSES.items()))
        self.hold("node1", [], ["--user", "--map-root-user"] if self.user else [])
        self.hold("node2", self.entering("node1") if self.user else [], [])
        self.run("node1", f"ip link add eth0 type veth peer name eth0 netns {self.holders['node2'].pid}")
        for name, address in ADDRESSES.items():
            self.run(name, f"hostname {name} && mount --bind '{self.folder}/hosts' /etc/hosts && ip link set lo up && "
                           f"ip address add {address}/24 dev eth0 && ip link set eth0 up")

    def hold(self, name, entering, more):
        self.holders[name] = subprocess.Popen(entering + ["unshare"] + NAMESPACES + more + ["sh", "-c", "echo in && exec cat"],
                                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holders[name].stdout.readline() != "in\n":
            raise NotPermitted(self.holders[name].stderr.read().strip())

    def entering(self, name):
        return ["nsenter", "--target", str(self.holders[name].pid)] + NAMESPACES + self.user

    def run(self, name, script):
        ran = subprocess.run(self.entering(name) + ["sh", "-c", script], capture_output=True, text=True)
        if ran.returncode:
            raise NotPermitted(f"{script}: {ran.stderr.strip()}")

    def write_ssh(self, path):
        """Takes ssh's place in PATH: enters node2 as sshd does, with the environment of a new login."""
        # node1 and node2 are in one user namespace, where this script already is.
        enter = " ".join(["nsenter", "--target", str(self.holders["node2"].pid)] + NAMESPACES)
        path.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do
  [ "$1" = -o ] && shift
  shift
done
if [ "$1" != node2 ]; then
  echo "ssh: no host $1" >&2
  exit 255
fi
shift
exec {enter} -- env -i HOME="$HOME" PATH=/usr/bin:/bin \\
  SSH_CONNECTION="{ADDRESSES['node1']} 50022 {ADDRESSES['node2']} 22" sh -c "cd && $*"
""")
        path.chmod(0o755)
