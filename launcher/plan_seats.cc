#include "launcher/plan_seats.h"

#include <algorithm>

namespace drun {
namespace {

// A majority of more is slower to reach, and no safer.
constexpr std::size_t kMostSeats = 9;
// More than one can be lost of so many only.
constexpr std::size_t kLeastSeats = 3;

}  // namespace

std::vector<std::string> listed_endpoints(const Options& options) {
  std::vector<std::string> items(1);
  for (const char c : options.rdzv_endpoint.value_or("")) {
    if (c == ',')
      items.emplace_back();
    else
      items.back() += c;
  }
  return items;
}

Result<void> plan_seats(JoinSpec& join, const Options& options) {
  const std::vector<std::string> items = listed_endpoints(options);
  if (items.size() < 2) return {};
  const std::string given = "--rdzv-endpoint=" + *options.rdzv_endpoint;
  if (items.size() > kMostSeats)
    return usage_error(given, "list at most " + std::to_string(kMostSeats) + "; 3 or 5 will do");
  std::vector<Endpoint> seats;
  for (const std::string& item : items) {
    Result<Endpoint> seat = parse_endpoint(item, kMeetingPort);
    if (!seat) return with_context(seat.error(), "--rdzv-endpoint");
    if (seat->port == 0)
      return usage_error(given, "port 0 is any free one, which the other nodes cannot know");
    if (std::find(seats.begin(), seats.end(), *seat) != seats.end())
      return usage_error(given, to_string(*seat) + " is there twice");
    seats.push_back(*std::move(seat));
  }
  if (seats.size() < kLeastSeats) return {};
  if (options.store == StoreHost::Worker)
    return usage_error("--store=worker",
                       "with several endpoints drun serves the store itself, where the "
                       "coordinator is; leave it out, or write one endpoint");
  if (options.gather_logs)
    return usage_error("--gather-logs",
                       "with several endpoints another node may come to coordinate the job, and "
                       "lines cannot move there; leave it out, or write one endpoint");
  join.seats = std::move(seats);
  join.master_addr.clear();
  join.master_port = 0;
  return {};
}

void remark_seats(const JoinSpec& join, const Options& options, Remarks& remarks) {
  if (!join.elastic || join.etcd || listed_endpoints(options).size() != 2) return;
  remarks.warnings.push_back("--rdzv-endpoint=" + *options.rdzv_endpoint +
                             ": of two hosts none is a majority once the "
                             "other is lost, so " +
                             to_string(join.endpoint) +
                             " alone coordinates the job, which ends with it; list three or five");
}

}  // namespace drun
