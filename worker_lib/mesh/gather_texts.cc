#include "worker_lib/mesh/gather_texts.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "worker_lib/base/deadline.h"

namespace drun::worker {
namespace {

std::string with_size(const std::string& text) { return std::to_string(text.size()) + ":" + text; }

// The next text, which is removed; nullopt if there is none.
std::optional<std::string> take_text(std::string_view& all) {
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), bytes);
  all.remove_prefix(static_cast<std::size_t>(end - all.data()));
  if (error != std::errc() || !all.starts_with(':') || bytes > all.size() - 1) return std::nullopt;
  std::string text(all.substr(1, bytes));
  all.remove_prefix(1 + bytes);
  return text;
}

}  // namespace

std::vector<std::string> gather_texts(const BackendContext& context, const std::string& name,
                                      const std::string& own) {
  KeyStore& store = *context.store;
  const auto key_of = [&](int rank) { return name + "/" + std::to_string(rank); };
  const std::string key_of_all = name + "/all";
  std::string all = with_size(own);
  if (context.rank == 0) {
    for (int rank = 1; rank < context.size; ++rank)
      all += with_size(store.get(key_of(rank), left_until(context.deadline)));
    store.set(key_of_all, all, left_until(context.deadline));
  } else {
    store.set(key_of(context.rank), own, left_until(context.deadline));
    all = store.get(key_of_all, left_until(context.deadline));
  }
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(context.size));
  std::string_view left = all;
  while (texts.size() < static_cast<std::size_t>(context.size)) {
    std::optional<std::string> text = take_text(left);
    if (!text)
      throw BackendFailure(WorkerError::Kind::System, std::nullopt,
                           "the store's value " + key_of_all + " is not the addresses of " +
                               std::to_string(context.size) + " ranks");
    texts.push_back(*std::move(text));
  }
  return texts;
}

}  // namespace drun::worker
