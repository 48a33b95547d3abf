// core. Requests to etcd's JSON gateway and its answers, as HTTP bodies.
//
// Limits:  the HTTP client limits an answer to kMostAnswerBytes.
// Errors:  Failed: the text is not an answer of etcd, or is etcd's error message.
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
// Decodes one line of the answer. Failed: etcd has ended the watch, or the line is not a message of
// etcd.
std::variant<WatchMessage, Failed> watch_message(const Keys& keys, std::string_view line);

// `status`: the HTTP status code.
std::variant<Answer, Failed> answer_of(const Call& call, const Keys& keys, int status,
                                       std::string_view body);

}  // namespace drun::rendezvous::etcd
