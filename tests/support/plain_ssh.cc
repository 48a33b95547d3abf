#include "tests/support/plain_ssh.h"

namespace drun::testing {

PlainSsh::PlainSsh(const std::string& before) {
  write_file(directory_.file("ssh"),
             "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n" + before + "\nexec sh -c \"$2\"\n",
             true);
}

Launch PlainSsh::launch(const std::string& hosts, const Words& options,
                        const std::string& script) const {
  const Words own = {"--ssh=" + directory_.file("ssh"), "--hosts=" + hosts,
                     "--master-addr=127.0.0.1", "--master-port=" + std::to_string(free_port())};
  Launch launch = shell_job(own + options, script);
  launch.directory = directory_.path();
  return launch;
}

}  // namespace drun::testing
