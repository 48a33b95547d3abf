#include "launcher/plan/rendezvous.h"

#include <algorithm>

#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using namespace std::chrono_literals;

HostFacts cluster_host() {
  HostFacts host;
  host.hostname = "gpu0.cluster";
  host.addresses = {"127.0.0.1", "10.0.0.5", "fe80::5%eth0"};
  host.addresses_of = [](const std::string& name) -> std::vector<std::string> {
    if (name == "head") return {"fd00::9", "10.0.0.5"};
    if (name == "gpu9") return {"10.0.0.9"};
    return {};
  };
  host.probe = [](const std::string&) { return FileKind::Executable; };
  return host;
}

Options c10d(NodeRange nodes, const std::string& endpoint = "head") {
  Options options;
  options.nnodes = nodes;
  options.rdzv_backend = "c10d";
  options.rdzv_endpoint = endpoint;
  options.program = "./train";
  return options;
}

JoinSpec c10d_join(const Options& options) { return test::join_of(options, cluster_host()); }

std::string c10d_error(const Options& options) { return test::plan_error(options, cluster_host()); }

}  // namespace

TEST_CASE("c10d with several nodes is elastic, for a range or a number, with torchrun's timeouts") {
  const JoinSpec range = c10d_join(c10d({2, 4}));
  REQUIRE(range.elastic);
  CHECK(range.elastic->min_nodes == 2);
  CHECK(range.node_count == 4);
  CHECK(range.endpoint == Endpoint{"head", 29400});
  CHECK(range.master_addr == "head");
  CHECK(range.join_timeout == 10min);
  CHECK(range.elastic->last_call_timeout == 30s);
  CHECK(range.heartbeat_timeout == 10s);
  CHECK(c10d_join(c10d({3, 3})).elastic->min_nodes == 3);
  CHECK_FALSE(c10d_join(c10d({1, 1})).elastic);
  Options options = c10d({2, 4});
  options.rdzv_conf = {{"last_call_timeout", "0"}, {"join_timeout", "7"}};
  options.heartbeat_timeout = 3s;
  options.min_uptime = 1s;
  options.rank_order = RankOrder::Natural;
  options.exclude_after = 2;
  options.exclude_slow = true;
  const JoinSpec other = c10d_join(options);
  CHECK(other.elastic->last_call_timeout == 0s);
  CHECK(other.join_timeout == 7s);
  CHECK(other.heartbeat_timeout == 3s);
  CHECK(other.elastic->min_uptime == 1s);
  CHECK(other.elastic->rank_order == RankOrder::Natural);
  CHECK(other.elastic->exclude_after == 2);
  CHECK(other.elastic->exclude_slow);
}

TEST_CASE("the node with the endpoint's name or address listens unless another agent here does") {
  const auto [endpoint, is_here] = GENERATE(table<std::string, bool>({{"localhost", true},
                                                                      {"127.0.0.3", true},
                                                                      {"10.0.0.5", true},
                                                                      {"10.0.0.6", false},
                                                                      {"GPU0.cluster", true},
                                                                      {"head", true},
                                                                      {"gpu9", false},
                                                                      {"nowhere", false}}));
  const JoinSpec guessed = c10d_join(c10d({1, 2}, endpoint));
  CAPTURE(endpoint);
  CHECK(guessed.is_coordinator == is_here);
  CHECK(guessed.may_be_member == is_here);
  Options options = c10d({1, 2}, endpoint);
  options.rdzv_conf = {{"is_host", is_here ? "no" : "True"}};
  CHECK(c10d_join(options).is_coordinator == !is_here);
  CHECK_FALSE(c10d_join(options).may_be_member);
}

TEST_CASE(
    "with several endpoints this node takes its own seat, and the elected node is the master") {
  const JoinSpec here = c10d_join(c10d({2, 4}, "gpu9:1,head,10.0.0.7:5"));
  CHECK(here.seats == std::vector<Endpoint>{{"gpu9", 1}, {"head", 29400}, {"10.0.0.7", 5}});
  CHECK(here.own_seats == std::vector<std::size_t>{1});
  CHECK(here.is_coordinator);
  CHECK(here.may_be_member);
  CHECK_FALSE(here.seat);
  CHECK(here.master_addr.empty());
  CHECK(here.master_port == 0);
  const JoinSpec elsewhere = c10d_join(c10d({2, 4}, "gpu9,10.0.0.6,10.0.0.7"));
  CHECK(elsewhere.own_seats.empty());
  CHECK_FALSE(elsewhere.is_coordinator);
  Options told = c10d({2, 4}, "gpu9,head,10.0.0.7");
  told.rdzv_conf = {{"is_host", "0"}};
  CHECK_FALSE(c10d_join(told).is_coordinator);
  CHECK(c10d_join(c10d({2, 4}, "[fd00::1]:7,head,[fd00::2]")).seats[2] ==
        Endpoint{"fd00::2", 29400});
  const std::string text =
      plan_text(*make_plan(c10d({2, 4}, "gpu9,head,10.0.0.7"), cluster_host()));
  CHECK_THAT(text, ContainsSubstring("gpu9:29400,head:29400,10.0.0.7:29400 (this node listens, and "
                                     "coordinates if it is elected)") &&
                       ContainsSubstring("MASTER_ADDR=?") && ContainsSubstring("MASTER_PORT=?"));
}

TEST_CASE("of two endpoints only the first is used, with a warning") {
  const Result<Plan> plan = make_plan(c10d({2, 4}, "head,gpu9"), cluster_host());
  REQUIRE(plan);
  CHECK(plan->agent.join.seats.empty());
  CHECK(plan->agent.join.endpoint == Endpoint{"head", 29400});
  CHECK(plan->agent.join.is_coordinator);
  REQUIRE(plan->warnings.size() == 1);
  CHECK_THAT(plan->warnings[0], ContainsSubstring("head:29400 is the only coordinator"));
  CHECK_FALSE(c10d_join(c10d({2, 4}, "gpu9,head")).is_coordinator);
}

TEST_CASE("invalid lists of endpoints are rejected") {
  CHECK_THAT(c10d_error(c10d({2, 4}, "head,gpu9,head")),
             ContainsSubstring("head:29400 is listed twice"));
  CHECK_THAT(c10d_error(c10d({2, 4}, "head,,gpu9")), ContainsSubstring("the host is empty"));
  CHECK_THAT(c10d_error(c10d({2, 4}, "head,gpu9,a:0")), ContainsSubstring("port 0"));
  CHECK_THAT(c10d_error(c10d({2, 4}, "a,b,c,d,e,f,g,h,i,j")), ContainsSubstring("list at most 9"));
  Options options = c10d({2, 4}, "head,gpu9,a");
  options.store = StoreHost::Worker;
  CHECK_THAT(c10d_error(options), ContainsSubstring("--store=worker: with several endpoints"));
  options = c10d({2, 4}, "head,gpu9,a");
  options.gather_logs = true;
  CHECK_THAT(c10d_error(options), ContainsSubstring("--gather-logs: with several endpoints"));
  options = c10d({2, 4}, "gpu8,gpu9,a");
  options.rdzv_conf = {{"is_host", "1"}};
  CHECK_THAT(c10d_error(options), ContainsSubstring("none of gpu8:29400,gpu9:29400,a:29400"));
  options = c10d({2, 2}, "head,gpu9,a");
  options.node_rank = 1;
  CHECK_THAT(c10d_error(options),
             ContainsSubstring("several endpoints require --rdzv-backend=c10d"));
  options = c10d({2, 2}, "head,gpu9,a");
  options.rdzv_backend.reset();
  CHECK_THAT(c10d_error(options),
             ContainsSubstring("several endpoints require --rdzv-backend=c10d"));
}

TEST_CASE("options that an elastic job cannot use are rejected or cause a warning") {
  Options options = c10d({1, 2});
  options.rdzv_conf = {{"is_host", "maybe"}};
  CHECK_THAT(c10d_error(options), ContainsSubstring("--rdzv-conf is_host=maybe: expected 1 or 0"));
  options.rdzv_conf = {{"last_call_timeout", "-1"}};
  CHECK_THAT(c10d_error(options), ContainsSubstring("last_call_timeout=-1: expected seconds"));
  options = c10d({1, 2}, "head:0");
  CHECK_THAT(c10d_error(options), ContainsSubstring("port 0"));
  options = c10d({1, 2});
  options.store = StoreHost::Worker;
  options.rank_order = RankOrder::Arrival;
  CHECK_THAT(c10d_error(options), ContainsSubstring("remove --rank-order"));
  options = c10d({1, 2});
  options.node_rank = 1;
  const Result<Plan> ranked = make_plan(options, cluster_host());
  REQUIRE(ranked);
  REQUIRE(ranked->warnings.size() == 1);
  CHECK_THAT(ranked->warnings[0], ContainsSubstring("--node-rank is ignored"));
  Options fixed;
  fixed.program = "./train";
  fixed.rank_order = RankOrder::Natural;
  fixed.min_uptime = 1s;
  fixed.restart.pause = 1s;
  CHECK(make_plan(fixed, cluster_host())->warnings.size() == 3);
  options = c10d({1, 2});
  options.exclude_after = 2;
  CHECK_THAT(make_plan(options, cluster_host())->warnings.at(0),
             ContainsSubstring("no restart takes place"));
  fixed.exclude_after = 2;
  CHECK_THAT(c10d_error(fixed),
             ContainsSubstring("--exclude-after: a job of fixed nodes has no spare nodes"));
  fixed.exclude_after.reset();
  fixed.exclude_slow = true;
  CHECK_THAT(c10d_error(fixed),
             ContainsSubstring("--exclude-slow: a job of fixed nodes has no spare nodes"));
}

TEST_CASE("a preflight check requires drun's own store and the probe program next to drun") {
  Options options = c10d({1, 2});
  options.preflight = true;
  HostFacts host = cluster_host();
  host.own_folder = "/opt/drun";
  host.usable_cpus = 6;
  const Result<Plan> plan = make_plan(options, host);
  REQUIRE(plan);
  CHECK(plan->agent.join.preflight);
  const auto& words = plan->agent.preflight_argv;
  CHECK(words.front() == "/opt/drun/drun-probe");
  CHECK(std::find(words.begin(), words.end(), "--cores=6") != words.end());
  CHECK(words.back() == "--preflight");
  host.probe = [](const std::string& path) {
    return path.ends_with("drun-probe") ? FileKind::Missing : FileKind::Executable;
  };
  options.nnodes = NodeRange{1, 1};
  CHECK_THAT(make_plan(options, host)->cannot_start->message,
             ContainsSubstring("/opt/drun/drun-probe, a part of drun, is missing"));
  options.store = StoreHost::Worker;
  CHECK_THAT(c10d_error(options), ContainsSubstring("remove --store=worker"));
}

TEST_CASE("the plan of an elastic job shows no values that only the coordinator knows") {
  Options options = c10d({2, 4});
  options.max_restarts = 3;
  options.restart.window = 1h;
  const Result<Plan> plan = make_plan(options, cluster_host());
  REQUIRE(plan);
  const std::string text = plan_text(*plan);
  CHECK_THAT(text, ContainsSubstring("one of 2 to 4, node ranks assigned when they join"));
  CHECK_THAT(text, ContainsSubstring("3 within 3600 s"));
  CHECK_THAT(text, ContainsSubstring("this node listens, unless another agent here does"));
  CHECK_THAT(text, ContainsSubstring(" RANK=?") && ContainsSubstring("GROUP_RANK=?") &&
                       ContainsSubstring("WORLD_SIZE=?"));
  CHECK_THAT(plan_json(*plan),
             ContainsSubstring("\"node_rank\": null") && ContainsSubstring("\"min_nodes\": 2"));
}

}  // namespace drun
