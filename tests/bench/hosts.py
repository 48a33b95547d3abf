"""Simulates machines as network namespaces on a bridge: node1, node2, ... at 10.79.0.1, ..., and one to start jobs from.

Each has a separate host name, /etc/hosts and loopback. worker_lib treats them as different nodes, because it distinguishes nodes by
boot id and network namespace. Needs root, ip and unshare.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile


def can_have_hosts():
    return os.geteuid() == 0 and all(shutil.which(each) for each in ("ip", "unshare", "mount"))


class Hosts:
    def __init__(self, count):
        self.nodes = [(number, f"node{number}", f"10.79.0.{number}") for number in range(1, count + 1)]

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # exits through __exit__
        self.place = tempfile.mkdtemp(prefix="drun-bench-")
        self.name = f"drunbench{os.getpid()}"
        try:
            self._network()
            self._write("hosts", "127.0.0.1 localhost\n10.79.0.254 start\n"
                        + "".join(f"{address} {name}\n" for _, name, address in self.nodes))
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._end()
        for suffix in [number for number, _, _ in self.nodes] + ["s"]:
            subprocess.run(["ip", "netns", "del", f"{self.name}{suffix}"], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.place, ignore_errors=True)

    def command(self, *words):
        """Returns a command that runs the words on the machine of the launcher."""
        return self._within("s", "", words)

    def on(self, number, *words):
        """Returns a command that runs the words on that node."""
        return self._within(number, f"hostname node{number} && ", words)

    def _begin(self):
        pass

    def _end(self):
        pass

    def _within(self, suffix, first, words):
        script = f"mount --bind {self.place}/hosts /etc/hosts && {first}exec \"$@\""
        return ["ip", "netns", "exec", f"{self.name}{suffix}", "unshare", "-u", "sh", "-c", script, "sh", *words]

    def _shell(self, script):
        subprocess.run(["sh", "-ec", script], check=True, stdout=subprocess.DEVNULL)

    def _network(self):
        hub = f"{self.name}s"
        self._shell(f"ip netns add {hub}; ip -n {hub} link set lo up; ip -n {hub} link add br0 type bridge; "
                    f"ip -n {hub} addr add 10.79.0.254/24 dev br0; ip -n {hub} link set br0 up")
        for number, _, address in self.nodes:
            own = f"{self.name}{number}"
            self._shell(f"ip netns add {own}; ip -n {hub} link add v{number} type veth peer name eth0 netns {own}; "
                        f"ip -n {hub} link set v{number} master br0 up; ip -n {own} addr add {address}/24 dev eth0; "
                        f"ip -n {own} link set eth0 up; ip -n {own} link set lo up")

    def _write(self, name, text):
        with open(f"{self.place}/{name}", "w", encoding="ascii") as file:
            file.write(text)
