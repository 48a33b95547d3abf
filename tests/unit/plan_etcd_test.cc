#include "launcher/plan/rendezvous.h"

#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using namespace std::chrono_literals;

HostFacts host_with_etcd() {
  HostFacts host;
  host.hostname = "gpu0.cluster";
  host.addresses = {"127.0.0.1", "10.0.0.5"};
  host.addresses_of = [](const std::string& name) -> std::vector<std::string> {
    if (name == "etcd0") return {"10.0.0.9"};
    if (name == "near" || name == "gpu0.cluster") return {"127.0.1.1"};
    if (name == "link") return {"fe80::9"};
    return {};
  };
  host.source_address = [](const std::string& address) -> std::optional<std::string> {
    if (address == "10.0.0.9") return "10.0.0.5";
    if (address == "127.0.1.1") return "127.0.0.1";
    if (address == "fe80::9") return "fe80::5%eth0";
    return std::nullopt;
  };
  host.probe = [](const std::string& path) {
    return path == "/none.pem" ? FileKind::Missing : FileKind::Executable;
  };
  return host;
}

Options etcd(const std::string& endpoint = "etcd0") {
  Options options;
  options.nnodes = NodeRange{2, 4};
  options.rdzv_backend = "etcd-v3";
  options.rdzv_endpoint = endpoint;
  options.no_python = true;
  options.program = "./train";
  return options;
}

Plan etcd_plan(const Options& options) { return test::plan_of(options, host_with_etcd()); }

JoinSpec etcd_join(const Options& options) { return etcd_plan(options).agent.join; }

std::string etcd_error(const Options& options) {
  return test::plan_error(options, host_with_etcd());
}

}  // namespace

TEST_CASE("with etcd every agent may coordinate and listens at its source address towards etcd") {
  Options options = etcd("etcd0,10.0.0.8:4001,[::2]");
  options.rdzv_backend = GENERATE("etcd", "etcd-v2", "etcd-v3");
  const JoinSpec join = etcd_join(options);
  REQUIRE(join.etcd);
  CHECK(join.etcd->endpoints ==
        std::vector<Endpoint>{{"etcd0", 2379}, {"10.0.0.8", 4001}, {"::2", 2379}});
  CHECK(join.etcd->stands);
  CHECK_FALSE(join.etcd->is_https);
  CHECK(join.etcd->prefix == "/drun");
  CHECK(join.endpoint == Endpoint{"10.0.0.5", 0});
  CHECK(join.is_coordinator);
  REQUIRE(join.elastic);
  CHECK(join.elastic->min_nodes == 2);
  CHECK(join.node_count == 4);
  CHECK(join.master_addr.empty());
  CHECK(join.master_port == 0);
  CHECK(join.join_timeout == 10min);
}

TEST_CASE("a host name that does not resolve is used only if the host has no other address") {
  HostFacts host = host_with_etcd();
  host.hostname = "pod-7";
  CHECK(test::plan_of(etcd("unknown"), host).agent.join.endpoint.host == "10.0.0.5");
  host.addresses = {"127.0.0.1", "::1", "fe80::5%eth0"};
  CHECK(test::plan_of(etcd("unknown"), host).agent.join.endpoint.host == "pod-7");
}

TEST_CASE("with etcd a fixed number of nodes is elastic and given ranks are ignored") {
  Options options = etcd();
  options.nnodes = NodeRange{3, 3};
  options.node_rank = 1;
  const Plan plan = etcd_plan(options);
  REQUIRE(plan.agent.join.elastic);
  REQUIRE(plan.warnings.size() == 1);
  CHECK_THAT(plan.warnings.front(), ContainsSubstring("--node-rank is ignored"));
}

TEST_CASE(
    "the address of an agent is --local-addr, its source address towards etcd or the host name") {
  const auto [endpoint, local, host] = GENERATE(table<std::string, std::string, std::string>({
      {"etcd0", "", "10.0.0.5"},
      {"etcd0", "10.9.9.9", "10.9.9.9"},
      {"localhost:2379", "", "127.0.0.1"},
      {"127.0.0.1", "", "127.0.0.1"},
      {"near", "", "gpu0.cluster"},
      {"near,etcd0", "", "10.0.0.5"},
      {"link", "", "gpu0.cluster"},
      {"unknown", "", "gpu0.cluster"},
  }));
  Options options = etcd(endpoint);
  options.local_addr = local;
  options.master_port = 4711;
  CHECK(etcd_join(options).endpoint == Endpoint{host, 4711});
}

TEST_CASE("a single node does not use etcd") {
  Options options = etcd();
  options.nnodes = NodeRange{1, 1};
  const Plan plan = etcd_plan(options);
  CHECK_FALSE(plan.agent.join.etcd);
  CHECK(plan.agent.join.endpoint == Endpoint{"127.0.0.1", 0});
  REQUIRE_FALSE(plan.notes.empty());
  CHECK_THAT(plan.notes.back(), ContainsSubstring("needs no etcd"));
}

TEST_CASE("torchrun's keys for etcd are accepted") {
  Options options = etcd();
  options.rdzv_conf = {{"protocol", "https"},     {"cert", "/c.pem"},     {"key", "/k.pem"},
                       {"cacert", "/ca.pem"},     {"etcd_prefix", "/a/"}, {"is_host", "0"},
                       {"last_call_timeout", "2"}};
  const Plan plan = etcd_plan(options);
  const EtcdSpec spec = *plan.agent.join.etcd;
  CHECK(spec.is_https);
  CHECK(spec.files == CertificateFiles{"/c.pem", "/k.pem", "/ca.pem"});
  CHECK(spec.prefix == "/a");
  CHECK_FALSE(spec.stands);
  for (const std::string& warning : plan.warnings)
    CHECK_THAT(warning, !ContainsSubstring("unknown key"));
}

TEST_CASE("invalid etcd settings are rejected before anything starts") {
  using Conf = std::vector<std::pair<std::string, std::string>>;
  const auto [conf, words] = GENERATE(table<Conf, std::string>({
      {{{"user", "me"}}, "--rdzv-conf user: drun does not support passwords for etcd"},
      {{{"password", "geheim"}}, "--rdzv-conf password: "},
      {{{"protocol", "ftp"}}, "--rdzv-conf protocol=ftp: expected http or https"},
      {{{"cacert", "/ca.pem"}}, "cacert=/ca.pem: it requires https; add protocol=https"},
      {{{"protocol", "https"}, {"cert", "/c.pem"}}, "cert and key must be set together"},
      {{{"protocol", "https"}, {"cacert", "/none.pem"}}, "cacert=/none.pem: no such file"},
      {{{"etcd_prefix", "a b"}}, "--rdzv-conf etcd_prefix=a b: "},
      {{{"is_host", "maybe"}}, "is_host=maybe"},
  }));
  Options options = etcd();
  options.rdzv_conf = conf;
  const std::string error = etcd_error(options);
  CHECK_THAT(error, ContainsSubstring(words));
  CHECK_THAT(error, !ContainsSubstring("geheim"));
}

TEST_CASE("options that require a single coordinator are rejected with etcd") {
  Options options = etcd();
  options.store = StoreHost::Worker;
  CHECK_THAT(etcd_error(options), ContainsSubstring("--store=worker: with etcd"));
  options = etcd();
  options.gather_logs = true;
  CHECK_THAT(etcd_error(options), ContainsSubstring("--gather-logs: with etcd"));
  CHECK_THAT(etcd_error(etcd("http://etcd0:2379")), ContainsSubstring("write HOST:PORT"));
  CHECK_THAT(etcd_error(etcd("etcd0:0")), ContainsSubstring("port 0"));
  CHECK_THAT(etcd_error(etcd("etcd0,,etcd1")), ContainsSubstring("--rdzv-endpoint"));
  CHECK_THAT(etcd_error(etcd("")), ContainsSubstring("the address of etcd is missing"));
}

TEST_CASE("a dry run shows the address of etcd and where this node listens") {
  const std::string text = plan_text(etcd_plan(etcd("etcd0,etcd1:4001")));
  CHECK_THAT(text, ContainsSubstring("etcd at etcd0:2379,etcd1:4001 (this node listens at "
                                     "10.0.0.5, any free port, and coordinates if it is elected)"));
  CHECK_THAT(text, ContainsSubstring("MASTER_ADDR=?"));
  CHECK_THAT(plan_json(etcd_plan(etcd())),
             ContainsSubstring("\"endpoint\": \"etcd at etcd0:2379\""));
}

}  // namespace drun
