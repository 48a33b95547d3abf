#include "tests/support/store_fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "rendezvous/store/store.h"
#include "rendezvous/store/wire.h"
#include "tests/support/store_requests.h"

namespace drun {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "store_fuzz: %s\n", what);
  std::abort();
}

// Small limits, so that inputs reach them.
StoreLimits small_limits() {
  StoreLimits limits;
  limits.key_bytes = 64;
  limits.value_bytes = 256;
  limits.keys_per_request = 32;
  limits.request_bytes = 1024;
  return limits;
}

struct Story {
  std::vector<std::string> requests;  // encoded again
  std::string end;                    // the reason why the input was malformed; empty if it was not
  std::string replies;
  std::size_t left_bytes = 0;
  bool operator==(const Story&) const = default;
};

void serve(Store& store, store::Request&& request, Story& story) {
  std::vector<StoreReply> replies;
  const Result<void> result = store.apply(1, std::move(request), replies);
  require(result || replies.empty(), "a refused request was answered");
  OutQueue out;
  for (const StoreReply& reply : replies) {
    require(reply.to == 1, "another client was answered");
    encode(reply.answer, out);
  }
  std::vector<std::string_view> pieces;
  while (!out.empty()) {
    out.front(2, pieces);
    for (const std::string_view piece : pieces) story.replies += piece;
    std::size_t taken_bytes = 0;
    for (const std::string_view piece : pieces) taken_bytes += piece.size();
    out.consume(taken_bytes);
  }
}

Story tell(std::string_view input, std::size_t piece_bytes) {
  const StoreLimits limits = small_limits();
  RequestDecoder decoder(limits);
  Store store(limits);
  Story story;
  while (!input.empty() && story.end.empty()) {
    std::string_view piece = input.substr(0, piece_bytes);
    input.remove_prefix(piece.size());
    while (true) {
      Decoded decoded = decoder.next(piece);
      if (std::holds_alternative<NeedMore>(decoded)) break;
      if (const Malformed* malformed = std::get_if<Malformed>(&decoded)) {
        story.end = malformed->reason;
        require(!story.end.empty(), "malformed without a reason");
        require(std::holds_alternative<Malformed>(decoder.next(piece)), "it was not for good");
        break;
      }
      store::Request& request = std::get<store::Request>(decoded);
      std::string again;
      require(encode(request, *decoder.dialect(), again), "it cannot be encoded in its dialect");
      story.requests.push_back(again);
      serve(store, std::move(request), story);
    }
    require(piece.empty() || !story.end.empty(), "bytes were left over");
  }
  return story;
}

}  // namespace

void abuse_store(std::string_view input) {
  const Story whole = tell(input, input.size() + 1);
  const Story split = tell(input, 1);
  require(whole == split, "split into bytes it means something else");
  // The decoded requests must equal the input, except for an incomplete request at the end.
  std::string sent;
  for (const std::string& request : whole.requests) sent += request;
  const std::size_t hello_bytes = input.starts_with(kValidate) ? kValidate.size() : 0;
  require(input.substr(hello_bytes).starts_with(sent), "encoded again it is something else");
}

}  // namespace drun
