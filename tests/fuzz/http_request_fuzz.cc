// Fuzzes requests to --metrics-port: whether a request is complete does not depend on its division
// into pieces, and it is answered as a whole or not at all.
//
// Input: the first byte is the size of the pieces.
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/http/answers.h"
#include "agent/http/request.h"

namespace {

using namespace drun::agent;
using State = web::RequestReader::State;

void require(bool is_true) {
  if (!is_true) std::abort();
}

State take_in_pieces(web::RequestReader& reader, std::string_view text, std::size_t piece) {
  State state = State::Incomplete;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    state = reader.take(text.substr(0, piece));
  return state;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  web::RequestReader whole;
  web::RequestReader parts;
  const State state = whole.take(text);
  // A malformed request may count as incomplete until more of it has arrived.
  const State state_of_parts = take_in_pieces(parts, text, std::size_t{data[0]} + 1);
  require((state_of_parts == State::Complete) == (state == State::Complete));
  if (state != State::Complete) {
    require(state == State::Malformed || text.size() <= 2 * web::kMostRequestBytes);
    return 0;
  }
  require(parts.method() == whole.method() && parts.target() == whole.target());
  const web::Answer answer =
      web::answer(whole.method(), whole.target(), [] { return NodeStatus{}; });
  const std::string response = whole.response(answer);
  require(response == parts.response(answer));
  // The response has the status line, the fields, and exactly the declared length, without any part
  // of the request.
  const std::size_t head_end = response.find("\r\n\r\n");
  require(response.starts_with("HTTP/1.") && head_end != response.npos);
  const std::string_view head(response.data(), head_end);
  require(head.find("Content-Length: " + std::to_string(answer.body.size())) != head.npos);
  require(response.substr(head_end + 4) == (whole.method() == "HEAD" ? "" : answer.body));
  require(answer.code == 200 || answer.code == 404 || answer.code == 405 || answer.code == 503);
  return 0;
}
