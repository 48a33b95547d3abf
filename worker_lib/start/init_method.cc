#include "worker_lib/start/init_method.h"

#include <algorithm>
#include <utility>

namespace drun::worker {
namespace {

Error usage(std::string_view method, const std::string& sentence) {
  return Error{ErrorCode::Usage, "init_method \"" + std::string(method) + "\"" + sentence};
}

Result<void> read_query(std::string_view query, std::string_view whole, InitMethod& method) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view entry = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    if (equals == std::string_view::npos || (key != "rank" && key != "world_size")) {
      return usage(whole, ": \"" + std::string(entry) + "\" is neither rank=R nor world_size=N");
    }
    (key == "rank" ? method.rank : method.world_size) = std::string(entry.substr(equals + 1));
  }
  return {};
}

Result<void> read_tcp(std::string_view address, std::string_view whole, InitMethod& method) {
  const Result<Endpoint> endpoint = parse_endpoint(address, 0);
  if (!endpoint) {
    return with_context(endpoint.error(), "init_method \"" + std::string(whole) + "\"");
  }
  if (endpoint->port == 0 || endpoint->host.empty()) {
    return usage(whole, " needs a host and a port: tcp://host:port");
  }
  method.store = *endpoint;
  return {};
}

// file:///path, or file://localhost/path as the standard for such addresses has it.
Result<void> read_file(std::string_view rest, std::string_view whole, InitMethod& method) {
  constexpr std::string_view kHere = "localhost/";
  if (rest.substr(0, kHere.size()) == kHere) rest.remove_prefix(kHere.size() - 1);
  if (rest.empty() || rest.front() != '/' || rest.back() == '/') {
    return usage(whole, " needs the whole path of a file: file:///tmp/my-job");
  }
  method.file_path = std::string(rest);
  return {};
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<InitMethod> parse_init_method(std::string_view whole) {
  InitMethod method;
  std::string_view rest = whole;
  const std::size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view query = rest.substr(std::min(question + 1, rest.size()));
  rest = rest.substr(0, question);
  Result<void> read{};
  if (take_prefix(rest, "tcp://")) {
    read = read_tcp(rest, whole, method);
  } else if (take_prefix(rest, "file://")) {
    read = read_file(rest, whole, method);
  } else if (!whole.empty() && (!take_prefix(rest, "env://") || !rest.empty())) {
    return usage(whole, " is none of env://, tcp://host:port and file:///path");
  }
  if (!read) return read.error();
  if (read = read_query(query, whole, method); !read) return read.error();
  return method;
}

}  // namespace drun::worker
