"""The machines of hosts.py with an sshd each and with new keys. Needs root.

A login runs no startup files of the shell, because their cost depends on the user.
"""
import os
import shutil
import subprocess
import time

from hosts import Hosts


class SshHosts(Hosts):
    def __init__(self, count=3):
        super().__init__(count)
        self.daemons = []

    def _begin(self):
        os.environ["PATH"] += ":/usr/sbin"
        self._configuration()
        for number, _, _ in self.nodes:
            self._sshd(number)
        self._await_logins()

    def _end(self):
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait()

    def _configuration(self):
        for key in ("key", "host_key"):
            self._shell(f"ssh-keygen -q -t ed25519 -N '' -f {self.place}/{key}")
        with open(f"{self.place}/host_key.pub", encoding="ascii") as file:
            host_key = file.read()
        shutil.copy(f"{self.place}/key.pub", f"{self.place}/authorized")
        self._write("known", "".join(f"{name} {host_key}" for _, name, _ in self.nodes))
        self._write("ssh_config", f"Host *\n  User root\n  IdentityFile {self.place}/key\n  IdentitiesOnly yes\n"
                                  f"  UserKnownHostsFile {self.place}/known\n  StrictHostKeyChecking yes\n")
        for number, _, address in self.nodes:
            self._write(f"sshd{number}", f"ListenAddress {address}\nHostKey {self.place}/host_key\nPidFile none\n"
                                         f"AuthorizedKeysFile {self.place}/authorized\nStrictModes no\nUsePAM no\nMaxStartups 200\n"
                                         "PermitRootLogin yes\nPasswordAuthentication no\nPrintMotd no\n")

    def _sshd(self, number):
        quiet = "for file in ~/.bashrc /etc/bash.bashrc; do [ ! -e $file ] || mount --bind /dev/null $file; done"
        script = f"{quiet}; mount -t tmpfs none /run && mkdir /run/sshd && exec $(command -v sshd) -D -f {self.place}/sshd{number}"
        self.daemons.append(subprocess.Popen(self.on(number, "sh", "-c", script), stderr=subprocess.DEVNULL))

    def _await_logins(self):
        end = time.monotonic() + 30
        for _, name, _ in self.nodes:
            login = self.command("ssh", "-F", f"{self.place}/ssh_config", name, "true")
            while subprocess.run(login, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode != 0:
                if time.monotonic() > end:
                    raise RuntimeError(f"no login on {name}")
                time.sleep(0.05)
