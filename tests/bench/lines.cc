// Tests the output path of a launcher: writes numbered lines as fast as possible, and checks every
// byte of them in the output.
//
//   lines write RANK COUNT BYTES [WRITE_BYTES]   RANK "env": the value of RANK, PMI_RANK,
//                                                OMPI_COMM_WORLD_RANK or SLURM_PROCID
//   lines check RANKS COUNT BYTES FILE...        exits with 0 if no line is torn, lost, duplicated
//                                                or out of order
//
// A line is "@<rank> <number> <filling> <mark>\n", with a length of BYTES including the newline. A
// label may precede the '@', and the end of a JSON object may follow the mark. The checker
// generates the same line again and compares all of it. Each write has WRITE_BYTES (65536), so most
// writes end in the middle of a line. Examples:
//
//   mpiexec.hydra -prepend-rank -n 8 lines write env 100000 100 > out
//   srun -l -n 8 lines write env 100000 100 > out;  lines check 8 100000 100 out
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kFilling =
    "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

std::uint32_t mark_of(std::uint64_t rank, std::uint64_t number) {
  std::uint64_t mixed = (rank << 40) + number + 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(mixed >> 32);
}

class LineMaker {
 public:
  explicit LineMaker(std::size_t line_bytes) : line_bytes_(line_bytes) {
    while (filling_.size() < line_bytes + kFilling.size()) filling_.append(kFilling);
  }

  void append(std::uint64_t rank, std::uint64_t number, std::string& out) const {
    const std::size_t begin = out.size();
    out.push_back('@');
    out.append(std::to_string(rank)).push_back(' ');
    out.append(std::to_string(number)).push_back(' ');
    const std::size_t used = out.size() - begin + 10;  // blank, mark, newline
    if (used < line_bytes_)
      out.append(filling_, (rank + number) % kFilling.size(), line_bytes_ - used);
    const std::uint32_t mark = mark_of(rank, number);
    out.push_back(' ');
    for (int shift = 28; shift >= 0; shift -= 4)
      out.push_back("0123456789abcdef"[(mark >> shift) & 15]);
    out.push_back('\n');
  }

 private:
  std::size_t line_bytes_;
  std::string filling_;
};

bool write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(1, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

int write_lines(std::uint64_t rank, std::uint64_t count, std::size_t line_bytes,
                std::size_t write_bytes) {
  const LineMaker maker(line_bytes);
  std::string pending;
  pending.reserve(write_bytes + line_bytes + 64);
  for (std::uint64_t number = 0; number < count; ++number) {
    maker.append(rank, number, pending);
    if (pending.size() < write_bytes) continue;
    if (!write_all(std::string_view(pending).substr(0, write_bytes))) return 1;
    pending.erase(0, write_bytes);
  }
  return write_all(pending) ? 0 : 1;
}

struct Counts {
  std::uint64_t good = 0, torn = 0, lost = 0, out_of_order = 0;
};

void check_line(std::string_view line, const LineMaker& maker, std::uint64_t count,
                std::vector<std::uint64_t>& next, Counts& counts) {
  if (line.ends_with("\"}")) line.remove_suffix(2);
  const std::size_t at = line.find('@');
  char* end = nullptr;
  const std::string text(at == line.npos ? "" : line.substr(at));
  const std::uint64_t rank = text.empty() ? next.size() : std::strtoull(text.c_str() + 1, &end, 10);
  const std::uint64_t number = text.empty() ? 0 : std::strtoull(end, nullptr, 10);
  std::string expected;
  if (rank < next.size() && number < count) maker.append(rank, number, expected);
  if (text + "\n" != expected) {
    ++counts.torn;
    return;
  }
  ++counts.good;
  if (number < next[rank]) {
    ++counts.out_of_order;
    return;
  }
  counts.lost += number - next[rank];
  next[rank] = number + 1;
}

int check_lines(std::size_t ranks, std::uint64_t count, std::size_t line_bytes, char** files) {
  const LineMaker maker(line_bytes);
  std::vector<std::uint64_t> next(ranks, 0);
  Counts counts;
  for (; *files != nullptr; ++files) {
    std::ifstream in(*files);
    for (std::string line; std::getline(in, line);) check_line(line, maker, count, next, counts);
  }
  for (const std::uint64_t seen : next) counts.lost += count - seen;
  std::printf("lines=%llu torn=%llu lost=%llu out_of_order=%llu\n",
              static_cast<unsigned long long>(counts.good),
              static_cast<unsigned long long>(counts.torn),
              static_cast<unsigned long long>(counts.lost),
              static_cast<unsigned long long>(counts.out_of_order));
  return counts.torn + counts.lost + counts.out_of_order == 0 ? 0 : 1;
}

std::uint64_t number_in(const char* text) { return std::strtoull(text, nullptr, 10); }

std::uint64_t rank_in(const char* text) {
  if (std::string_view(text) != "env") return number_in(text);
  for (const char* name : {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return number_in(value);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "write" && (argc == 5 || argc == 6))
    return write_lines(rank_in(argv[2]), number_in(argv[3]), number_in(argv[4]),
                       argc == 6 ? number_in(argv[5]) : 65536);
  if (action == "check" && argc > 5)
    return check_lines(number_in(argv[2]), number_in(argv[3]), number_in(argv[4]), argv + 5);
  std::fputs(
      "usage: lines write RANK COUNT BYTES [WRITE_BYTES]\n"
      "       lines check RANKS COUNT BYTES FILE...\n",
      stderr);
  return 2;
}
