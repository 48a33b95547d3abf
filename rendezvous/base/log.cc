#include "rendezvous/base/log.h"

#include <utility>

namespace drun {

bool LogLimit::allows(Time now) {
  if (written_ == 0 || now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    written_ = 0;
  }
  if (written_ < most_per_second_) {
    ++written_;
    return true;
  }
  ++left_out_;
  return false;
}

std::string LogLimit::left_out() {
  const std::size_t count = std::exchange(left_out_, 0);
  return count == 0 ? "" : " left_out=" + std::to_string(count);
}

}  // namespace drun
