// Tests how the nodes of a job over ssh find an address, with unresolvable names and dead networks.
#include <chrono>
#include <set>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job_traces.h"
#include "tests/support/machine.h"
#include "tests/support/ssh_hosts.h"

namespace drun::testing {
namespace {

const std::string kWhere = "echo \"$RANK/$WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT.\"";

Words sh(const std::string& script) { return {"sh", "-c", script}; }

// Extracts "10.78.0.1:4711" from the lines of all ranks.
std::set<std::string> places_in(const std::string& out) {
  std::set<std::string> places;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(" at ");
    if (at != std::string::npos) places.insert(line.substr(at + 4, line.rfind('.') - at - 4));
  }
  return places;
}

}  // namespace

TEST_CASE("hosts whose names only ssh knows can reach each other", "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  const bool is_elastic = GENERATE(false, true);
  CAPTURE(is_elastic);
  hosts.know_by_aliases(/*has_jump=*/is_elastic);
  const Words options =
      is_elastic ? Words{"--hosts=host[1-3]:2", "--nnodes=2:3"} : Words{"--hosts=host[1-3]:2"};
  const Ended ended = hosts.run(options, sh(kWhere));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  if (!is_elastic) CHECK(ended.err.empty());
  CHECK(count(ended.out, "/6 at 10.78.0.") == 6);
  CHECK(places_in(ended.out).size() == 1);
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("hosts with two networks use the one that works between them", "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  hosts.know_by_aliases();
  hosts.add_network();
  hosts.separate_hosts();
  const Ended ended = hosts.run({"--hosts=host[1-3]"}, sh(kWhere));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out,
             ContainsSubstring("1/3 at 10.79.0.1:") && ContainsSubstring("2/3 at 10.79.0.1:"));

  const Ended elastic = hosts.run({"--hosts=host[1-3]", "--nnodes=2:3"}, sh(kWhere));
  INFO(elastic.out << elastic.err);
  CHECK(elastic.code == 0);
  CHECK(count(elastic.out, "/3 at 10.79.0.") >= 2);
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("if no address of the first host is reachable, the job fails within 15 s and lists them",
          "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  hosts.separate_hosts();
  const auto begun = std::chrono::steady_clock::now();
  const Ended ended = hosts.run({"--hosts=node[1-3]"}, sh(kWhere));
  const auto taken = std::chrono::steady_clock::now() - begun;
  INFO(ended.out << ended.err);
  CHECK(ended.code == 120);
  CHECK(ended.out.empty());
  CHECK_THAT(ended.err, ContainsSubstring("cannot reach any of 10.78.0.1:") &&
                            ContainsSubstring(" from node") && ContainsSubstring("--master-addr"));
  CHECK(taken < test::scaled(20s));  // includes the logins on a busy machine
  CHECK(eventually([&] { return hosts.are_empty(); }, 15s));
}

TEST_CASE("two jobs with the same first host use different ports", "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string wait = kWhere + "; until [ -e " + hosts.directory().file("go") +
                           " ]; do sleep 0.1; done; echo done.";
  Running first(hosts.launch({"--hosts=node[1-3]"}, sh(wait)));
  Running second(hosts.launch({"--hosts=node[1-3]"}, sh(wait)));
  const auto is_up = [](Running& job) { return count(job.out(), " at ") == 3; };
  REQUIRE(eventually([&] { return is_up(first) && is_up(second); }, 60s));
  CHECK(places_in(first.out()).size() == 1);
  CHECK(places_in(first.out()) != places_in(second.out()));
  write_file(hosts.directory().file("go"), "");
  for (Running* job : {&first, &second}) {
    const Ended ended = job->wait(60s);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(count(ended.out, "done.") == 3);
  }
}

TEST_CASE("an address and a port from the user are used by the job", "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  const Ended named =
      hosts.run({"--hosts=node[1-3]", "--master-addr=node1", "--master-port=29611"}, sh(kWhere));
  INFO(named.out << named.err);
  CHECK(named.code == 0);
  CHECK(places_in(named.out) == std::set<std::string>{"node1:29611"});
  const Ended port = hosts.run({"--hosts=node[1-3]", "-x", "MASTER_PORT=29612"}, sh(kWhere));
  INFO(port.out << port.err);
  CHECK(places_in(port.out) == std::set<std::string>{"10.78.0.1:29612"});
  const Ended own = hosts.run({"--hosts=node[1-3]", "--store=worker"}, sh(kWhere));
  INFO(own.out << own.err);
  CHECK(own.code == 0);
  CHECK(places_in(own.out).size() == 1);
  CHECK(count(own.out, "/3 at 10.78.0.1:") == 3);
}

}  // namespace drun::testing
