#include "launcher/engines/engine_facts.h"

#include <algorithm>

#include "rendezvous/base/text.h"
#include "rendezvous/net/endpoint.h"

namespace drun::engines {

std::optional<std::int64_t> whole_number(std::string_view text) {
  return text.starts_with('-') ? std::nullopt : drun::whole_number<std::int64_t>(text);
}

std::string shown(const EngineFact<std::string>& fact) {
  constexpr std::size_t kMostBytes = 80;
  const bool is_long = fact.value.size() > kMostBytes;
  return fact.from + "=\"" + fact.value.substr(0, kMostBytes) + (is_long ? "...\"" : "\"");
}

std::string_view short_name(std::string_view host) {
  const bool is_address =
      host.find(':') != host.npos || host.find_first_not_of("0123456789.") == host.npos;
  return is_address ? host : host.substr(0, host.find('.'));
}

std::optional<std::string> run_id_from(std::string_view prefix, std::string_view job) {
  constexpr std::size_t kMostBytes = 150;
  const bool is_fit =
      !job.empty() && job.size() <= kMostBytes &&
      std::all_of(job.begin(), job.end(), [](char c) { return c > ' ' && c != '/'; });
  if (!is_fit) return std::nullopt;
  return std::string(prefix) + std::string(job);
}

void name_job(Facts& facts, std::string_view prefix, const EngineFact<std::string>& job) {
  if (const auto id = run_id_from(prefix, job.value))
    facts.run_id = EngineFact<std::string>{*id, job.from};
  facts.master_port = EngineFact<int>{derived_port(job.value), job.from};
  facts.meeting_port = EngineFact<int>{derived_port(job.value + " meeting"), job.from};
}

std::optional<EngineFact<std::string>> Reading::text(std::string_view name) const {
  std::optional<std::string> value = context_.variables(name);
  if (!value || value->empty()) return std::nullopt;
  return EngineFact<std::string>{*std::move(value), std::string(name)};
}

std::optional<EngineFact<int>> Reading::number(std::string_view name, int least) {
  const std::optional<EngineFact<std::string>> fact = text(name);
  if (!fact) return std::nullopt;
  const std::optional<std::int64_t> value = whole_number(fact->value);
  if (value && *value >= least && *value <= kMostCount)
    return EngineFact<int>{static_cast<int>(*value), fact->from};
  blame(shown(*fact) + " is not a whole number from " + std::to_string(least) + " to " +
        std::to_string(kMostCount) + "; unset it, or give the flags");
  return std::nullopt;
}

std::optional<EngineFact<int>> Reading::needed_number(std::string_view name, int least) {
  if (!is_set(name)) miss(name);
  return number(name, least);
}

std::optional<EngineFact<std::string>> Reading::needed_text(std::string_view name) {
  std::optional<EngineFact<std::string>> fact = text(name);
  if (!fact) miss(name);
  return fact;
}

void Reading::miss(std::string_view name) {
  facts_.missing.append(facts_.missing.empty() ? "" : ", ").append(name);
}

void Reading::blame(std::string sentence) {
  if (facts_.wrong.empty()) facts_.wrong = std::move(sentence);
}

}  // namespace drun::engines
