// Any store file is either rejected, or its records are read, new ones can be added, and every
// other reader finds both.
//
// Input: the first byte selects whether a valid header precedes the rest.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drun/error.h"
#include "worker_lib/store/file_key_store.h"
#include "worker_lib/store/file_log.h"

namespace {

using namespace drun;
using Records = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t kMostBytes = std::size_t{16} << 10;

void require(bool is_true) {
  if (!is_true) std::abort();
}

// Returns the path of an open file with these bytes.
std::string file_of(std::string_view bytes) {
  static const int file = ::memfd_create("store", MFD_CLOEXEC);
  require(::ftruncate(file, 0) == 0);
  require(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return "/proc/self/fd/" + std::to_string(file);
}

Records read(worker::FileLog& log) {
  Records records;
  log.acquire(std::chrono::steady_clock::now() + std::chrono::seconds(5),
              [&records](std::string key, std::string value) {
                records.emplace_back(std::move(key), std::move(value));
              });
  return records;
}

// Returns false if the file is rejected.
bool check_log(const std::string& path) {
  worker::FileLog log(path);
  Records records;
  try {
    records = read(log);
  } catch (const WorkerError& error) {
    require(error.kind() == WorkerError::Kind::Store && !error.message().empty());
    return false;
  }
  log.append("key", "value");
  log.release();
  records.emplace_back("key", "value");
  worker::FileLog other(path);
  require(read(other) == records);
  other.release();
  return true;
}

template <typename Operation>
void attempt(const Operation& operation) {
  try {
    operation();
  } catch (const WorkerError& error) {
    require(error.kind() == WorkerError::Kind::Store || error.kind() == WorkerError::Kind::Timeout);
  }
}

void check_store(const std::string& path) {
  using std::chrono::milliseconds;
  constexpr milliseconds kNow{0};
  attempt([&] {
    const auto store = worker::open_file_key_store({.path = path, .rank = 1, .size = 2}, kNow);
    attempt([&] { store->get("a", kNow); });
    attempt([&] { store->add("a", 1, kNow); });
    attempt([&] { store->compare_set("a", "1", "2", kNow); });
    attempt([&] { store->set("b", "3", kNow); });
    attempt([&] { require(store->get("b", kNow) == "3" && store->has("b", kNow)); });
    attempt([&] { store->wait({"a", "b"}, kNow); });
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0 || size > kMostBytes) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string text;
  if (data[0] % 2 == 0) {
    const std::uint64_t size_bytes = bytes.size();
    text = "drun store file\n";
    text.append(reinterpret_cast<const char*>(&size_bytes), sizeof size_bytes);
  }
  text += bytes;
  if (check_log(file_of(text))) check_store(file_of(text));
  return 0;
}
