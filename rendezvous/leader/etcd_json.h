// core. etcd's calls as HTTP bodies: what its JSON gateway is sent, and what it answers.
//
// Limits:  an answer has kMostAnswerBytes (the HTTP client's); what is read of it is a few fields.
// Owner:   values.   Thread: any.
// Errors:  Failed: the text is no answer of etcd; or etcd's error, in its words.
// Source:  etcd.io/docs/v3.4/dev-guide/api_grpc_gateway: keys and values in base64, 64-bit numbers
//          as text. Versions 3.4 and later; 3.3 has another path.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/leader/etcd_calls.h"

namespace drun::rendezvous::etcd {

constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;

struct Request {
  std::string path;
  std::string body;
};

Request request_of(const Call& call, const Keys& keys);

Request watch_request(Revision from, const Keys& keys);
// One line of the answer. Failed: etcd has ended the watch, or it is not a message of etcd's.
std::variant<WatchMessage, Failed> watch_message(const Keys& keys, std::string_view line);

// `status`: HTTP's.
std::variant<Answer, Failed> answer_of(const Call& call, const Keys& keys, int status,
                                       std::string_view body);

}  // namespace drun::rendezvous::etcd
