// Any error.json is either rejected or still means the same after drun has written it again.
#include <cstdlib>
#include <string_view>

#include "agent/diagnosis/error_file.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace drun::agent;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto record = parse_error_record(text);
  const auto coded = with_error_code(text, 7);
  if (!record) {
    if (record.error().message.empty()) std::abort();
    return 0;
  }
  const auto again = parse_error_record(format_error_record(*record));
  if (!again || again->message != record->message || again->traceback != record->traceback)
    std::abort();
  // The next reader must get the same record.
  if (!coded) std::abort();
  const auto next = parse_error_record(*coded);
  if (!next || next->message != record->message) std::abort();
  return 0;
}
