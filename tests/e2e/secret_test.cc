// Tests jobs with a secret on the command line of users.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/machine.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";

std::string secret_file(const TemporaryDirectory& directory, const std::string& name,
                        const std::string& secret, mode_t mode = 0600) {
  const std::string path = directory.file(name);
  write_file(path, secret + "\n");
  REQUIRE(chmod(path.c_str(), mode) == 0);
  return path;
}

void check_refused(const Ended& ended, const std::string& words) {
  INFO(ended.err);
  CHECK(ended.code == 121);
  CHECK_THAT(ended.err, ContainsSubstring(words));
  CHECK(ended.err.find(kSecret) == std::string::npos);
}

}  // namespace

TEST_CASE("three nodes with one secret form a job, and a fourth with another secret is rejected") {
  Nodes nodes(3);
  const std::string file = secret_file(nodes.directory(), "secret", kSecret);
  const std::string other = secret_file(nodes.directory(), "other", "fedcba9876543210");
  const char* const script = "echo rank $RANK of $WORLD_SIZE; env | grep -i secret; true";
  nodes.start(0, {"--secret-file=" + file}, script);
  nodes.start(1, {"--secret-file=" + file}, script);
  const auto refused = [&](const Words& options, const std::string& words) {
    check_refused(run(nodes.launch(2, options, "echo never"), 20s), words);
  };
  refused({"--secret-file=" + other}, "has another secret than this node");
  refused({"--secret-file=" + file, "--rdzv-id=other"}, "has the same secret, but another run id");
  refused({}, "the job there has a secret and this node has none");
  Launch third = nodes.launch(2, {}, script);
  third.environment["DRUN_SECRET"] = kSecret;
  const Ended last = run(third, 30s);
  std::string all = last.out;
  CHECK(last.code == 0);
  std::string log;
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 0);
    all += ended.out;
    log += ended.err;
  }
  for (const char* line : {"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"})
    CHECK_THAT(all, ContainsSubstring(line));
  CHECK(all.find("SECRET") == std::string::npos);
  CHECK_THAT(log, ContainsSubstring("it has another secret than this job") &&
                      ContainsSubstring("it has the same secret, but another run id") &&
                      ContainsSubstring("it has no secret, and this job has one"));
  CHECK(log.find(kSecret) == std::string::npos);
}

TEST_CASE("a node with a secret is rejected by a job without one, which continues") {
  Nodes nodes(2);
  const std::string file = secret_file(nodes.directory(), "secret", kSecret);
  nodes.start(0, {}, "true");
  check_refused(run(nodes.launch(1, {"--secret-file=" + file}, "echo never"), 20s),
                "has no secret, but this node has one");
  nodes.start(1, {}, "true");
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 0);
  }
}

TEST_CASE("an unsuitable secret file is an error before anything starts") {
  const TemporaryDirectory directory;
  const std::string open = secret_file(directory, "open", kSecret, 0640);
  const std::string small = secret_file(directory, "small", "hunter2");
  const std::vector<std::pair<std::string, std::string>> files = {
      {open, "others than its owner have access to it (mode 0640); chmod 600 " + open},
      {small, "a secret of 7 bytes can be guessed"},
      {directory.path(), "not a regular file"},
      {directory.file("none"), "openssl rand -hex 32 > " + directory.file("none")},
      {"", "no file is named"},
      {"/dev/null", "not a regular file"},
  };
  for (const auto& [file, words] : files) {
    const Ended ended = run(shell_job({"--secret-file=" + file}, "echo never"));
    INFO(ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.out.empty());
    CHECK_THAT(ended.err, ContainsSubstring("--secret-file: " + (file.empty() ? "\"\"" : file)) &&
                              ContainsSubstring(words));
    CHECK(ended.err.find("hunter2") == std::string::npos);
  }
}

TEST_CASE("a secret file can be a link, and --pass-secret keeps the workers' variable") {
  const TemporaryDirectory directory;
  const std::string file = secret_file(directory, "secret", kSecret, 0400);
  const std::string link = directory.file("link");
  REQUIRE(symlink(file.c_str(), link.c_str()) == 0);
  // drun erases the secret from its own environment.
  Launch launch = shell_job({"--pass-secret"},
                            "echo \"<$DRUN_SECRET>\"; tr '\\0' '\\n' </proc/$PPID/environ | "
                            "grep DRUN_SECRET");
  launch.environment["PET_SECRET_FILE"] = link;
  launch.environment["DRUN_SECRET"] = "fedcba9876543210";
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out == "<fedcba9876543210>\nDRUN_SECRET=\n");
}

TEST_CASE("workers of a job with a secret get a private key file, another one in each round") {
  Nodes nodes(2, {"--max-restarts=1"});
  const std::string file = secret_file(nodes.directory(), "secret", kSecret);
  const std::string script =
      "echo $DRUN_ROUND $(stat -c %a $DRUN_WORKER_KEY_FILE $(dirname $DRUN_WORKER_KEY_FILE)) "
      "$(cat $DRUN_WORKER_KEY_FILE) $DRUN_WORKER_KEY_FILE; "
      "test $DRUN_ROUND = 0 || exit 0; touch shown.$RANK; "
      "until test -e shown.0 -a -e shown.1; do sleep 0.02; done; test $RANK = 1 || exit 3; sleep "
      "30";
  for (int node = 0; node < 2; ++node)
    nodes.start(node, {"--secret-file=" + file}, "cd " + nodes.directory().path() + "; " + script);
  std::vector<std::map<std::string, std::string>> keys;  // by node, then round
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    std::istringstream lines(ended.out);
    std::map<std::string, std::string>& of_node = keys.emplace_back();
    std::string round, mode, folder_mode, key, path;
    while (lines >> round >> mode >> folder_mode >> key >> path) {
      CHECK(mode == "600");
      CHECK(folder_mode == "700");
      CHECK(key.size() == 64);
      CHECK(access(path.substr(0, path.rfind('/')).c_str(), F_OK) != 0);
      of_node[round] = key;
    }
    CHECK(ended.err.find(of_node["0"]) == std::string::npos);
  }
  REQUIRE(keys.at(0).size() == 2);
  CHECK(keys.at(0) == keys.at(1));
  CHECK(keys[0]["0"] != keys[0]["1"]);
}

TEST_CASE("the key file is in the temporary directory if /dev/shm is full") {
  if (geteuid() != 0) {
    WARN("skipped: only root can cover /dev/shm");
    return;
  }
  const TemporaryDirectory directory;
  const std::string file = secret_file(directory, "secret", kSecret);
  const std::string script =
      "mount -t tmpfs -o size=64k none /dev/shm; head -c 65536 /dev/zero >/dev/shm/full\n"
      "TMPDIR=" +
      directory.path() + " exec " + drun_program() + " --secret-file=" + file +
      " sh -c 'dirname $(dirname $DRUN_WORKER_KEY_FILE); wc -c <$DRUN_WORKER_KEY_FILE'";
  const Ended ended = run({.argv = {"unshare", "--mount", "sh", "-c", script}});
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out == directory.path() + "\n64\n");
}

TEST_CASE("the key file of an outer job is not passed on, and a job without a secret has none") {
  Launch launch = shell_job({}, "echo \"<$DRUN_WORKER_KEY_FILE>\"");
  launch.environment["DRUN_WORKER_KEY_FILE"] = "/outer";
  CHECK(run(launch).out == "<>\n");
}

TEST_CASE("ranks of a job with a secret connect over tcp") {
  const TemporaryDirectory directory;
  const std::string file = secret_file(directory, "secret", kSecret);
  const Ended ended = run(
      job({"--nproc-per-node=3", "--secret-file=" + file}, {built("examples/collectives"), "tcp"}),
      60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
}

// Under a sanitizer drun is linked with OpenSSL, and does not start without it.
TEST_CASE("without libcrypto a job with a secret is refused with the remedy, and others run") {
  const TemporaryDirectory directory;
  write_file(directory.file("libcrypto.so.3"), "");
  const auto ended_with = [&directory](const Words& options) {
    Launch launch = job(options, {"true"});
    launch.environment["LD_LIBRARY_PATH"] = directory.path();
    return run(launch);
  };
  const std::string file = secret_file(directory, "secret", kSecret);
  const Ended refused = ended_with({"--nnodes=2", "--secret-file=" + file});
  INFO(refused.err);
  CHECK(refused.code != 0);
  if (test::kSlowdown > 1) return;
  CHECK(refused.code == 125);
  CHECK_THAT(refused.err, ContainsSubstring("cannot load libssl.so.3") &&
                              ContainsSubstring("libcrypto.so.3") &&
                              ContainsSubstring("install libssl3"));
  CHECK(ended_with({}).code == 0);
}

TEST_CASE("drun store rejects a secret with the reason") {
  const Ended ended = run(job({"store", "--secret-file=x"}, {}));
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("clients of a TCPStore cannot authenticate"));
}

TEST_CASE("without a secret drun warns once if it listens beyond loopback") {
  const bool has_secret = GENERATE(false, true);
  const bool is_elastic = GENERATE(false, true);
  const TemporaryDirectory directory;
  const std::string port = std::to_string(free_port());
  Words options = {"--nnodes=2", "--rdzv-conf=join_timeout=1,is_host=1"};
  if (is_elastic)
    options =
        options + Words{"--rdzv-backend=c10d", "--rdzv-id=job", "--rdzv-endpoint=0.0.0.0:" + port};
  else
    options = options + Words{"--master-addr=0.0.0.0", "--master-port=" + port};
  if (has_secret)
    options = options + Words{"--secret-file=" + secret_file(directory, "secret", kSecret)};
  const Ended ended = run(shell_job(options, "true"));
  INFO(ended.err);
  const std::string words = "every host that reaches port " + port + " can join this job";
  CHECK((ended.err.find(words) != std::string::npos) == !has_secret);
  CHECK(ended.err.find(words, ended.err.find(words) + 1) == std::string::npos);
}

}  // namespace drun::testing
