// core. Base64, as RFC 4648 has it, with padding.
// Owner:   values.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace drun {

void append_base64(std::string_view bytes, std::string& out);
std::string base64(std::string_view bytes);

// Nothing, if `text` is not exactly what `base64` gives.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace drun
