// Tests the JSON of etcd calls and the text of the job's keys.
#include <nlohmann/json.hpp>

#include "rendezvous/base/text.h"
#include "rendezvous/leader/etcd_calls.h"
#include "tests/support/catch.h"

namespace drun::rendezvous::etcd {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

const Keys kKeys{"/drun/job/leader", "/drun/job/state"};

Json body_of(const Call& call) { return Json::parse(request_of(call, kKeys).body); }

std::string found(const std::string& key, const std::string& value) {
  return R"({"response_range":{"header":{"revision":"9"},"kvs":[{"key":")" + base64(key) +
         R"(","create_revision":"7","mod_revision":"8","version":"2","value":")" + base64(value) +
         R"(","lease":"2324035538162747141"}],"count":"1"}})";
}

const std::string kNothing = R"({"response_range":{"header":{"revision":"9"}}})";

std::string answer(const std::string& responses, const std::string& more = "") {
  return R"({"header":{"cluster_id":"1","revision":"9"},)" + more + R"("responses":[)" + responses +
         "]}";
}

Failed failed(const Call& call, int status, const std::string& body) {
  const auto result = answer_of(call, kKeys, status, body);
  REQUIRE(std::holds_alternative<Failed>(result));
  return std::get<Failed>(result);
}

template <typename T>
T answered(const Call& call, const std::string& body) {
  const auto result = answer_of(call, kKeys, 200, body);
  REQUIRE(std::holds_alternative<Answer>(result));
  return std::get<T>(std::get<Answer>(result));
}

}  // namespace

TEST_CASE("a claim writes both keys in one transaction if there is no leader and no newer state") {
  const Call claim = Claim{"me", 5, "so", 6, 42};
  CHECK(request_of(claim, kKeys).path == "/v3/kv/txn");
  const Json body = body_of(claim);
  REQUIRE(body["compare"].size() == 2);
  CHECK(body["compare"][0] == Json::parse(R"({"key":")" + base64(kKeys.leader) +
                                          R"(","target":"CREATE","result":"EQUAL",)"
                                          R"("create_revision":"0"})"));
  CHECK(body["compare"][1]["mod_revision"] == "42");
  REQUIRE(body["success"].size() == 4);
  CHECK(body["success"][0]["request_put"]["value"] == base64("me"));
  CHECK(body["success"][0]["request_put"]["lease"] == "5");
  CHECK(body["success"][1]["request_put"]["key"] == base64(kKeys.state));
  CHECK(body["success"][1]["request_put"]["lease"] == "6");
  CHECK(body["success"][2].contains("request_range"));
  REQUIRE(body["failure"].size() == 2);
  CHECK(body["failure"][1]["request_range"]["key"] == base64(kKeys.state));
}

TEST_CASE("calls that only a leader may make compare the leader's key") {
  const Json store = body_of(Store{7, "so", 6, 8});
  CHECK(store["compare"][0]["create_revision"] == "7");
  CHECK(store["compare"][1]["mod_revision"] == "8");
  CHECK(store["success"][0]["request_put"]["value"] == base64("so"));
  const Json clear = body_of(Clear{7});
  CHECK(clear["compare"].size() == 1);
  CHECK(clear["compare"][0]["create_revision"] == "7");
  CHECK(clear["success"][1]["request_delete_range"]["key"] == base64(kKeys.state));
}

TEST_CASE("lease calls encode numbers as strings") {
  CHECK(body_of(Grant{5s}) == Json{{"TTL", "5"}});
  CHECK(request_of(Renew{77}, kKeys).path == "/v3/lease/keepalive");
  CHECK(body_of(Renew{77}) == Json{{"ID", "77"}});
  CHECK(request_of(Revoke{77}, kKeys).path == "/v3/lease/revoke");
  CHECK(answered<Leased>(Grant{5s}, R"({"header":{},"ID":"2324035538162747141","TTL":"6"})") ==
        Leased{2324035538162747141, 6s});
  CHECK(answered<Leased>(Renew{77}, R"({"result":{"header":{},"ID":"77","TTL":"5"}})") ==
        Leased{77, 5s});
  CHECK(answered<Leased>(Renew{77}, R"({"result":{"header":{},"ID":"77"}})").ttl == 0s);
}

TEST_CASE("an answer reports both keys, whether they exist or not") {
  const Seen both = answered<Seen>(
      Look{},
      answer(found(kKeys.leader, "me") + "," + found(kKeys.state, "so"), R"("succeeded":true,)"));
  CHECK(both.is_done);
  CHECK(both.sight.revision == 9);
  CHECK(both.sight.leader == Found{"me", 7, 8, 2324035538162747141});
  REQUIRE(both.sight.state);
  CHECK(both.sight.state->value == "so");
  const Seen none = answered<Seen>(Claim{}, answer(kNothing + "," + kNothing));
  CHECK_FALSE(none.is_done);
  CHECK_FALSE(none.sight.leader);
  CHECK_FALSE(none.sight.state);
}

TEST_CASE("errors keep etcd's text and show whether etcd rejected the call") {
  const std::string no_lease =
      R"({"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease )"
      R"(not found","code":5})";
  CHECK(failed(Store{}, 404, no_lease) == Failed{"etcdserver: requested lease not found", true});
  const std::string no_leader = R"({"error":"etcdserver: no leader","code":14})";
  CHECK(failed(Look{}, 503, no_leader) == Failed{"etcdserver: no leader", false});
  const std::string in_stream =
      R"({"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}})";
  CHECK(failed(Renew{1}, 200, in_stream).reason == "etcdserver: no leader");
  CHECK_THAT(failed(Look{}, 400, R"({"error":"etcdserver: user name is empty","code":3})").reason,
             ContainsSubstring("wants a user's name and password"));
  CHECK(failed(Look{}, 500, R"({"error":"a\u001b[31mb","code":13})").reason == "a?[31mb");
}

TEST_CASE("an answer that is not from etcd is reported as such") {
  const auto [status, body] = GENERATE(table<int, std::string>({
      {200, ""},
      {200, "hello"},
      {200, "[]"},
      {200, "{}"},
      {404, "404 page not found\n"},
      {302, R"({"a":1})"},
      {200, R"({"header":{"revision":"0"},"responses":[]})"},
      {200, R"({"header":{"revision":"9"}})"},
      {200, R"({"header":{"revision":"9"},"responses":[1,2]})"},
      {200, R"({"header":{"revision":"99999999999999999999"},"responses":[]})"},
      {200, R"({"header":{"revision":18446744073709551615},"responses":[]})"},
      {200, R"({"header":7,"responses":{"a":1}})"},
  }));
  CAPTURE(body);
  CHECK_THAT(failed(Look{}, status, body).reason, ContainsSubstring("does not answer as etcd"));
  CHECK_THAT(failed(Grant{5s}, status, body).reason, ContainsSubstring("does not answer as etcd"));
}

TEST_CASE("records that a leader stores can be parsed by the next one") {
  const LeaderRecord leader{{"10.0.0.1", 29400}, 7, 0xffffffffffffffffU};
  CHECK(leader_of(text_of(leader)) == leader);
  StateRecord state{.term = 7, .rounds = {.rounds = 12, .restarts = 3, .exclusions = {}}};
  CHECK(state_of(text_of(state)) == state);
  Exclusions& exclusions = state.rounds.exclusions;
  exclusions.nodes.push_back({{"gpu1 at 10.0.0.2", 1}, {2, "gpu1", 11, "\"it\" failed\n"}});
  exclusions.last_at_fault = AgentId{"gpu2 at 10.0.0.3", 0};
  exclusions.failures_in_a_row = 2;
  CHECK(state_of(text_of(state)) == state);
  for (int i = 0; i < 300; ++i)
    exclusions.nodes.push_back(
        {{std::string(9000, '\xff'), i}, {i, "h", i, std::string(9000, 'x')}});
  const auto most = state_of(text_of(state));
  REQUIRE(most);
  CHECK(most->rounds.exclusions.nodes.size() == kMostKept);
  CHECK(most->rounds.exclusions.nodes.back().id.second == 299);
  CHECK(text_of(state).size() < kMostAnswerBytes / 2);
}

TEST_CASE("key values that drun did not write are not accepted as records") {
  const char* const text =
      GENERATE("", "{}", "null", "[1]", R"({"drun":2,"host":"a","port":1,"term":1,"instance":1})",
               R"({"drun":1,"host":"","port":1,"term":1,"instance":1})",
               R"({"drun":1,"host":"a","port":0,"term":1,"instance":1})",
               R"({"drun":1,"host":"a","port":65536,"term":1,"instance":1})",
               R"({"drun":1,"host":"a","port":1,"term":-1,"instance":1})",
               R"({"drun":1,"term":1,"rounds":-1,"restarts":0,"left_out":[]})",
               R"({"drun":1,"term":1,"rounds":9999999999,"restarts":0,"left_out":[]})",
               R"({"drun":1,"term":1,"rounds":1,"restarts":0,"left_out":{}})",
               R"({"drun":1,"term":1,"rounds":1,"restarts":0,"left_out":[{}]})",
               R"({"drun":1,"term":1,"rounds":1,"restarts":0,"left_out":[],"at_fault":3})");
  CAPTURE(text);
  CHECK_FALSE(leader_of(text));
  CHECK_FALSE(state_of(text));
}

TEST_CASE("a watch of etcd reports the last change of the leader's key") {
  const Keys keys{"/drun/a/leader", "/drun/a/state"};
  const Request request = watch_request(17, keys);
  CHECK(request.path == "/v3/watch");
  CHECK(request.body ==
        R"({"create_request":{"key":"L2RydW4vYS9sZWFkZXI=","start_revision":"17"}})");
  const auto created =
      watch_message(keys, R"({"result":{"header":{"revision":"16"},"created":true}})");
  CHECK(std::get<WatchMessage>(created) == WatchMessage{16, false, std::nullopt});
  const std::string put =
      R"({"kv":{"key":"L2RydW4vYS9sZWFkZXI=","create_revision":"18","mod_revision":"18",)"
      R"("value":"bWU=","lease":"5"}})";
  const std::string deleted =
      R"({"type":"DELETE","kv":{"key":"L2RydW4vYS9sZWFkZXI=","mod_revision":"17"}})";
  const auto led = watch_message(
      keys, R"({"result":{"header":{"revision":"18"},"events":[)" + deleted + "," + put + "]}}");
  CHECK(std::get<WatchMessage>(led) == WatchMessage{18, true, Found{"me", 18, 18, 5}});
  const auto gone =
      watch_message(keys, R"({"result":{"header":{"revision":"18"},"events":[)" + deleted + "]}}");
  CHECK(std::get<WatchMessage>(gone) == WatchMessage{17, true, std::nullopt});
}

TEST_CASE("a watch fails if etcd cancels it or the answer is invalid") {
  const Keys keys{"/drun/a/leader", "/drun/a/state"};
  const auto [line, reason] = GENERATE(table<std::string, std::string>({
      {R"({"result":{"canceled":true,"cancel_reason":"etcdserver: no leader"}})", "no leader"},
      {R"({"result":{"canceled":true,"compact_revision":"30"}})", "ended the watch"},
      {R"({"error":{"message":"permission denied","grpc_code":7}})", "permission denied"},
      {"<html>", "does not answer as etcd"},
      {"{}", "does not answer as etcd"},
  }));
  const auto failed = watch_message(keys, line);
  REQUIRE(std::holds_alternative<Failed>(failed));
  CHECK_THAT(std::get<Failed>(failed).reason, ContainsSubstring(reason));
}

}  // namespace drun::rendezvous::etcd
