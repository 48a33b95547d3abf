#include "rendezvous/base/result.h"

#include <cctype>
#include <cerrno>
#include <system_error>
#include <utility>

namespace drun {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::Usage:
      return "usage";
    case ErrorCode::Unreachable:
      return "unreachable";
    case ErrorCode::Timeout:
      return "timeout";
    case ErrorCode::Closed:
      return "closed";
    case ErrorCode::Refused:
      return "refused";
    case ErrorCode::Spawn:
      return "spawn";
    case ErrorCode::WorkerFailed:
      return "worker failed";
    case ErrorCode::System:
      return "system";
  }
  return "unknown";
}

Error with_context(Error error, std::string_view context) {
  error.message.insert(0, std::string(context) + ": ");
  return error;
}

std::string system_message(int error_number) {
  std::string text = std::generic_category().message(error_number);
  const bool is_word = text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0;
  if (is_word) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

Error system_error(std::string_view operation, int error_number) {
  std::string message = "cannot " + std::string(operation) + ": " + system_message(error_number);
  if (error_number == EMFILE) message += "; raise the limit (ulimit -n)";
  return Error{ErrorCode::System, std::move(message)};
}

}  // namespace drun
