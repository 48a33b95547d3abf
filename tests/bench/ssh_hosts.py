"""Three machines with an sshd each, and one to start from: network namespaces, keys of their own. Needs root."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time


class SshHosts:
    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through __exit__
        self.place = tempfile.mkdtemp(prefix="drun-bench-")
        self.name = f"drunbench{os.getpid()}"
        self.daemons = []
        os.environ["PATH"] += ":/usr/sbin"
        try:
            self._network()
            self._configuration()
            for number in (1, 2, 3):
                self._sshd(number)
            self._await_logins()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait()
        for suffix in ("1", "2", "3", "s"):
            subprocess.run(["ip", "netns", "del", self.name + suffix], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.place, ignore_errors=True)

    def command(self, *words):
        """The words, run on the machine to start from; node1, node2, node3 are the hosts."""
        mount = f"mount --bind {self.place}/hosts /etc/hosts && exec \"$@\""
        return ["ip", "netns", "exec", f"{self.name}s", "sh", "-c", mount, "sh", *words]

    def _shell(self, script):
        subprocess.run(["sh", "-ec", script], check=True, stdout=subprocess.DEVNULL)

    def _network(self):
        hub = f"{self.name}s"
        self._shell(f"ip netns add {hub}; ip -n {hub} link set lo up; ip -n {hub} link add br0 type bridge; "
                    f"ip -n {hub} addr add 10.79.0.254/24 dev br0; ip -n {hub} link set br0 up")
        for number in (1, 2, 3):
            own = f"{self.name}{number}"
            self._shell(f"ip netns add {own}; ip -n {hub} link add v{number} type veth peer name eth0 netns {own}; "
                        f"ip -n {hub} link set v{number} master br0 up; ip -n {own} addr add 10.79.0.{number}/24 dev eth0; "
                        f"ip -n {own} link set eth0 up; ip -n {own} link set lo up")

    def _write(self, name, text):
        with open(f"{self.place}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    def _configuration(self):
        for key in ("key", "host_key"):
            self._shell(f"ssh-keygen -q -t ed25519 -N '' -f {self.place}/{key}")
        with open(f"{self.place}/host_key.pub", encoding="ascii") as file:
            host_key = file.read()
        shutil.copy(f"{self.place}/key.pub", f"{self.place}/authorized")
        nodes = [(f"node{number}", f"10.79.0.{number}") for number in (1, 2, 3)]
        self._write("hosts", "127.0.0.1 localhost\n10.79.0.254 start\n" + "".join(f"{address} {name}\n" for name, address in nodes))
        self._write("known", "".join(f"{name} {host_key}" for name, _ in nodes))
        self._write("ssh_config", f"Host *\n  User root\n  IdentityFile {self.place}/key\n  IdentitiesOnly yes\n"
                                  f"  UserKnownHostsFile {self.place}/known\n  StrictHostKeyChecking yes\n")
        for number, (_, address) in enumerate(nodes, 1):
            self._write(f"sshd{number}", f"ListenAddress {address}\nHostKey {self.place}/host_key\nPidFile none\n"
                                         f"AuthorizedKeysFile {self.place}/authorized\nStrictModes no\nUsePAM no\nMaxStartups 200\n"
                                         "PermitRootLogin yes\nPasswordAuthentication no\nPrintMotd no\n")

    def _sshd(self, number):
        script = (f"mount --bind {self.place}/hosts /etc/hosts && mount -t tmpfs none /run && mkdir /run/sshd && "
                  f"hostname node{number} && exec $(command -v sshd) -D -f {self.place}/sshd{number}")
        words = ["ip", "netns", "exec", f"{self.name}{number}", "unshare", "-u", "sh", "-c", script]
        self.daemons.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))

    def _await_logins(self):
        end = time.monotonic() + 30
        for number in (1, 2, 3):
            login = self.command("ssh", "-F", f"{self.place}/ssh_config", f"node{number}", "true")
            while subprocess.run(login, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode != 0:
                if time.monotonic() > end:
                    raise RuntimeError(f"no login on node{number}")
                time.sleep(0.05)
