// edge. Reads small files and folders of the kernel (/proc, /sys, /dev) and of the user, and writes
// reports.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/tls/secret.h"

namespace drun {

// --- What cannot be read counts as empty

// The first 64 KiB at most.
std::string text_of_file(const std::string& path);

// The contents of a file or of a shell's <(command); absent if it cannot be read, is over 4 MiB, or
// is of another kind (a FIFO would block).
std::optional<std::string> whole_text_of(const std::string& path);

// The contents of a file or pipe without a byte order mark; absent if it cannot be read or exceeds
// `most_bytes`.
std::optional<std::string> all_text_of(const std::string& path, std::size_t most_bytes);

// The names that begin with `prefix`, in ascending order.
std::vector<std::string> names_in(const std::string& folder, std::string_view prefix = "");

// --- Files of the user

// Atomic: writes a file beside `path` and renames it. If stdout or stderr is that file, as with
// /dev/stdout, the text follows what was written there. A FIFO must have a reader, and the call
// waits until it has room for the text. Errors: System, naming the path.
Result<void> write_file(const std::string& path, std::string_view text);

// Reads the file of --secret-file. It must be a regular file that belongs to this user or root and
// that no other user can read. A symbolic link to such a file is accepted (Kubernetes mounts
// secrets that way); the checks apply to the opened file. Errors: Usage, with the file, the reason
// and the remedy.
Result<Secret> read_secret_file(const std::string& path);

}  // namespace drun
