#include "launcher/commands/commands.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/status/log_query.h"
#include "launcher/base/words.h"
#include "launcher/cli/option_values.h"
#include "launcher/commands/local_jobs.h"
#include "launcher/commands/log_lines.h"
#include "rendezvous/base/unique_fd.h"

namespace drun {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kMostRemoteRanks = 64;  // each costs a message every 0.3 s with --follow
constexpr std::chrono::milliseconds kPollInterval{100};
constexpr std::chrono::milliseconds kStatusInterval{500};
constexpr std::chrono::milliseconds kStatusLimit{200};
constexpr std::chrono::milliseconds kRemoteInterval{300};
constexpr int kMostLooksInVain = 3;
constexpr std::chrono::seconds kRemoteLimit{7};  // agents answer within 6 s

Error logs_error(std::string message) { return Error{ErrorCode::System, std::move(message)}; }

// Writes to stdout, unbuffered: a follower shows lines when they are written.
class Printer {
 public:
  // False: there is no point in going on. `exit_code` is then what the command returns.
  bool print(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) {  // a terminal or pipe that others made non-blocking
        pollfd room{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
        poll(&room, 1, -1);
        continue;
      }
      if (written < 0) return fail(errno);
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }
  int exit_code() const { return exit_code_; }

 private:
  bool fail(int error_number) {
    if (error_number == EPIPE) return false;  // the reader has seen enough
    std::fprintf(stderr, "drun logs: cannot write: %s\n", system_message(error_number).c_str());
    exit_code_ = 1;
    return false;
  }

  int exit_code_ = 0;
};

// A log file of a rank on another node, read through an agent of this machine.
struct RemoteLog {
  std::string socket{};
  agent::LogQuery query{};
  const LinePattern* pattern = nullptr;
  bool has_label = false;  // its lines get the label that its agent names
};

// One stream of one rank in one round.
class LogFile {
 public:
  LogFile(std::string path, LogLines lines) : path_(std::move(path)), lines_(std::move(lines)) {}
  explicit LogFile(RemoteLog remote)
      : path_(ranks_text({{remote.query.rank, remote.query.rank}}) +
              (remote.query.is_stderr ? " stderr" : " stdout")),
        lines_("", remote.pattern),
        remote_(std::move(remote)) {}

  // Why it cannot be read, or nothing. Does nothing if it is open.
  std::string open(const std::optional<TailWish>& tail) {
    if (remote_) return open_remote(tail);
    const int code = open_local(tail);
    return code == 0 ? "" : "cannot read " + path_ + ": " + system_message(code);
  }

  bool is_remote() const { return remote_.has_value(); }
  // Of the node that has the rank, as far as it has answered.
  std::optional<int> latest_round() const { return latest_round_; }
  std::optional<int> round() const { return remote_ ? remote_->query.round : std::nullopt; }
  // The same stream of a later round.
  LogFile in_next_round() const {
    RemoteLog next = *remote_;
    next.query.round = *next.query.round + 1;
    return LogFile(std::move(next));
  }
  bool has_trouble() const { return has_trouble_; }

 private:
  // Returns 0 or errno.
  int open_local(const std::optional<TailWish>& tail) {
    if (fd_) return 0;
    // O_NONBLOCK: the path may be that of a FIFO.
    fd_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!fd_) return errno;
    struct stat about {};
    if (fstat(fd_.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
      fd_.reset();
      return EINVAL;
    }
    if (tail)
      offset_ = tail_offset([this](auto offset, auto bytes) { return read_at(offset, bytes); },
                            static_cast<std::uint64_t>(about.st_size), *tail);
    return 0;
  }

  std::string open_remote(const std::optional<TailWish>& tail) {
    if (is_open_) return "";
    std::string answer = ask(std::numeric_limits<std::int64_t>::max());
    const std::optional<agent::LogPart> part = agent::parse_log_answer(answer);
    if (!part) return path_ + ": the agent on this machine does not answer";
    note_round(*part);
    if (!part->note.empty()) return path_ + ": " + part->note;
    if (!remote_->query.round) remote_->query.round = part->round;
    lines_ = LogLines(remote_->has_label ? part->label : "", remote_->pattern);
    is_open_ = true;
    if (tail)
      offset_ = tail_offset([this](auto offset, auto bytes) { return read_at(offset, bytes); },
                            part->size_bytes, *tail);
    return "";
  }

  // An answer that comes from no node has round 0.
  void note_round(const agent::LogPart& part) {
    latest_round_ = std::max(latest_round_.value_or(0), part.round);
  }

  std::string ask(std::uint64_t offset) const {
    agent::LogQuery query = remote_->query;
    query.offset = offset;
    return ask_agent(remote_->socket, kRemoteLimit, agent::log_request(query));
  }

 public:
  // Appends the next lines to `out`. False at the end of the file.
  bool read_some(std::string& out) {
    if (!fd_ && !is_open_) return false;
    const std::string bytes = read_at(offset_, kReadBytes);
    offset_ += bytes.size();
    lines_.take(bytes, out);
    return !bytes.empty();
  }
  void end(std::string& out) { lines_.end(out); }
  const std::string& path() const { return path_; }

 private:
  std::string read_at(std::uint64_t offset, std::size_t bytes) {
    if (remote_) {
      std::optional<agent::LogPart> part = agent::parse_log_answer(ask(offset));
      if (part) note_round(*part);
      has_trouble_ = !part || !part->note.empty();
      if (has_trouble_) return "";
      part->text.resize(std::min(part->text.size(), bytes));
      return std::move(part->text);
    }
    std::string text(bytes, '\0');
    std::size_t have = 0;
    while (have < bytes) {
      const ssize_t got =
          ::pread(fd_.get(), text.data() + have, bytes - have, static_cast<off_t>(offset + have));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    text.resize(have);
    return text;
  }

  std::string path_;
  LogLines lines_;
  UniqueFd fd_;
  std::optional<RemoteLog> remote_{};
  std::optional<int> latest_round_{};
  bool is_open_ = false;      // the remote one
  bool has_trouble_ = false;  // with the last part of a remote one
  std::uint64_t offset_ = 0;
};

struct LoggedJob {
  std::string name{};  // printable
  std::vector<LocalAgent> agents{};
  RankRanges ranks{};  // empty: all
};

// The job that the command line means, and the ranks.
Result<LoggedJob> find_job(const LogsCommand& command) {
  const std::vector<LocalAgent> all = local_agents();
  LoggedJob job{.ranks = command.ranks};
  std::optional<std::string> name = command.first;
  if (name && agents_called(all, name).empty()) {
    const Result<RankRanges> ranks = parse_rank_ranges(*name);
    if (!ranks) return logs_error(no_such_job_but(name, all));
    job.ranks.insert(job.ranks.end(), ranks->begin(), ranks->end());
    name.reset();
  }
  normalize(job.ranks);
  const std::vector<LocalAgent> called = agents_called(all, name);
  job.agents = answering(called);
  if (called.empty()) return logs_error(no_such_job(std::nullopt));
  if (const std::size_t count = job_count(called); count > 1) {
    return logs_error((name ? std::to_string(count) + " jobs have the run id \"" +
                                  printable(*name) + "\"; give the pid of one; "
                            : std::to_string(count) + " jobs run here; name one; ") +
                      listed(called));
  }
  if (job.agents.empty()) return logs_error(silent_text(called.front()));
  job.name = printable(job.agents.front().names.run_id);
  return job;
}

// Prints the files of a job's ranks: of this machine, and those of other nodes that were named.
class LogsView {
 public:
  LogsView(const LogsCommand& command, LoggedJob job, const LinePattern* pattern)
      : command_(command), job_(std::move(job)), pattern_(pattern) {
    if (command.tail)
      tail_ = TailWish{.lines = static_cast<std::size_t>(*command.tail), .pattern = pattern};
  }

  // Errors: there is nothing to print, and nothing to wait for.
  Result<void> open() {
    RankRanges here;
    RankRanges with_files;
    for (const LocalAgent& agent : job_.agents) {
      const std::optional<NodeLogs> logs = node_logs(agent.status);
      if (!logs)
        return logs_error("agent " + std::to_string(agent.names.agent_pid) +
                          " has another version of drun");
      Node node{.names = agent.names};
      if (Result<UniqueFd> pidfd = open_drun(agent.names)) node.pidfd = *std::move(pidfd);
      for (const RankLogs& rank : logs->ranks) {
        here.push_back({rank.rank, rank.rank});
        if (has_wanted_file(rank)) with_files.push_back(here.back());
      }
      nodes_.push_back(std::move(node));
    }
    normalize(here);
    normalize(with_files);
    // With --gather-logs, the files of a rank on this machine may be elsewhere, too.
    const RankRanges missing = difference(job_.ranks, with_files);
    if (!here.empty() && !missing.empty()) {
      const int world_size = world_size_in(job_.agents.front().status);
      const RankRanges beyond = difference(missing, {{0, world_size - 1}});
      if (!beyond.empty())
        return logs_error(job_.name + " has no " + ranks_text(beyond) + ", but " +
                          ranks_text({{0, world_size - 1}}));
      if (count_of(missing) > kMostRemoteRanks)
        return logs_error("more than " + std::to_string(kMostRemoteRanks) +
                          " ranks of other nodes; name fewer");
    }
    has_labels_ = job_.ranks.empty() ? count_of(here) != 1 : count_of(job_.ranks) != 1;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      enter_round(nodes_[i], *node_logs(job_.agents[i].status));
    if (!here.empty()) add_remote(missing);
    if (const Result<void> opened = open_remote(); !opened) return opened.error();
    has_tail_ = false;
    if (file_count() > 0 || (command_.is_following && here.empty())) return {};
    if (here.empty())
      return logs_error("the workers of " + job_.name +
                        " have not started yet; wait for them with --follow");
    return logs_error(
        "no log files of " +
        (job_.ranks.empty() ? job_.name : ranks_text(job_.ranks) + " of " + job_.name) +
        " on this machine" + (command_.has_stdout ? "" : " (stderr)") +
        (command_.has_stderr ? "" : " (stdout)") +
        "; start the job with --tee=3 (or --redirects=3) and --log-dir=DIR");
  }

  int print_all() {
    int exit_code = 0;
    for (Stream* const stream : sorted_streams()) {
      LogFile& file = stream->file;
      if (!file.is_remote()) stream->trouble = file.open(tail_);
      if (!stream->trouble.empty()) {
        if (stream->is_optional) continue;
        std::fprintf(stderr, "drun logs: %s\n", printable(stream->trouble).c_str());
        exit_code = 1;
        continue;
      }
      if (!print_rest(file, true)) return printer_.exit_code();
      if (file.has_trouble()) {
        std::fprintf(stderr, "drun logs: the rest of %s cannot be read now\n",
                     printable(file.path()).c_str());
        exit_code = 1;
      }
    }
    return exit_code;
  }

  int follow() {
    auto next_status = std::chrono::steady_clock::now() + kStatusInterval;
    while (true) {
      const bool is_over =
          std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.is_gone; });
      for (Node& node : nodes_) {
        for (Stream& stream : node.streams)
          if (!print_new(stream)) return printer_.exit_code();
        std::erase_if(node.streams, [](const Stream& stream) { return stream.is_over; });
      }
      if (is_over) return finish();
      if (!wait()) return printer_.exit_code();
      if (std::chrono::steady_clock::now() < next_status) continue;
      for (Node& node : nodes_)
        if (!node.is_gone && !refresh(node)) return printer_.exit_code();
      follow_elsewhere();
      next_status = std::chrono::steady_clock::now() + kStatusInterval;
    }
  }

 private:
  struct Stream {
    int rank = 0;
    bool is_stderr = false;
    std::optional<TailWish> tail{};
    std::chrono::steady_clock::time_point next_look{};
    std::string trouble{};     // why a file of another node cannot be read
    int looks_in_vain = 0;     // at a file of a round that is over, in a row
    bool is_optional = false;  // the rank's other stream can be read
    bool is_over = false;      // of another node: its further rounds are read here
    LogFile file;
  };
  struct Node {
    StatusNames names{};
    UniqueFd pidfd{};  // of drun; empty if it cannot be watched
    std::optional<int> round{};
    NodeLogs logs{};  // of that round
    std::vector<Stream> streams{};
    bool is_gone = false;
  };

  bool is_wanted(int rank) const { return job_.ranks.empty() || contains(job_.ranks, rank); }

  std::size_t file_count() const {
    std::size_t count = 0;
    for (const Node& node : nodes_) count += node.streams.size();
    return count;
  }

  void enter_round(Node& node, const NodeLogs& logs) {
    node.round = logs.round;
    node.logs = logs;
    for (const RankLogs& rank : logs.ranks) {
      if (!is_wanted(rank.rank) || is_read_through_agent(rank.rank, logs.round)) continue;
      if (command_.has_stdout) add(node, rank, rank.stdout_file, false);
      if (command_.has_stderr) add(node, rank, rank.stderr_file, true);
    }
  }

  // A rank of an elastic job may move between this machine and others. In each round, one stream
  // reads its file.
  bool is_read_through_agent(int rank, const std::optional<int>& round) const {
    return has_stream([&](const Stream& stream) {
      return stream.rank == rank && stream.file.is_remote() && round &&
             stream.file.round().value_or(*round) >= *round;
    });
  }
  bool is_read_here(const Stream& other, int round) const {
    return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
      return node.round.value_or(0) >= round &&
             std::any_of(node.streams.begin(), node.streams.end(), [&](const Stream& stream) {
               return !stream.file.is_remote() && stream.rank == other.rank &&
                      stream.is_stderr == other.is_stderr;
             });
    });
  }
  template <typename Is>
  bool has_stream(const Is& is) const {
    return std::any_of(nodes_.begin(), nodes_.end(), [&is](const Node& node) {
      return std::any_of(node.streams.begin(), node.streams.end(), is);
    });
  }

  // Named ranks that are no longer on this machine.
  void follow_elsewhere() {
    std::optional<int> round;
    for (const Node& node : nodes_) round = std::max(round, node.round);
    RankRanges read;
    for (const Node& node : nodes_)
      for (const Stream& stream : node.streams) read.push_back({stream.rank, stream.rank});
    normalize(read);
    const RankRanges missing = difference(job_.ranks, read);
    if (round && count_of(missing) <= kMostRemoteRanks) add_remote(missing, round);
  }

  bool has_wanted_file(const RankLogs& rank) const {
    return (command_.has_stdout && !rank.stdout_file.empty()) ||
           (command_.has_stderr && !rank.stderr_file.empty());
  }

  // Files of other nodes. A rank may write only one of two. Errors: to follow them is no use.
  Result<void> open_remote() {
    std::set<int> readable;
    std::string trouble;
    for (Stream* const stream : sorted_streams()) {
      if (!stream->file.is_remote()) {
        readable.insert(stream->rank);
        continue;
      }
      stream->trouble = stream->file.open(stream->tail);
      if (stream->trouble.empty())
        readable.insert(stream->rank);
      else if (trouble.empty())
        trouble = stream->trouble;
    }
    if (command_.is_following && readable.empty() && !trouble.empty())
      return logs_error(printable(trouble));
    for (Node& node : nodes_)
      for (Stream& stream : node.streams)
        stream.is_optional = stream.file.is_remote() && readable.contains(stream.rank);
    return {};
  }

  // Through an agent of this machine. Without a round: the latest.
  void add_remote(const RankRanges& ranks, const std::optional<int>& round = std::nullopt) {
    const std::string socket = socket_of("drun-logs", nodes_.front().names.agent_pid);
    for (const RankRange& range : ranks) {
      for (int rank = range.first; rank <= range.last; ++rank) {
        for (const bool is_stderr : {false, true}) {
          if (!(is_stderr ? command_.has_stderr : command_.has_stdout)) continue;
          nodes_.front().streams.push_back(
              {.rank = rank,
               .is_stderr = is_stderr,
               .tail = has_tail_ ? tail_ : std::nullopt,
               .file = LogFile(
                   RemoteLog{.socket = socket,
                             .query = {.rank = rank, .round = round, .is_stderr = is_stderr},
                             .pattern = pattern_,
                             .has_label = has_labels_})});
        }
      }
    }
  }

  void add(Node& node, const RankLogs& rank, const std::string& path, bool is_stderr) {
    if (path.empty()) return;
    node.streams.push_back(
        {.rank = rank.rank,
         .is_stderr = is_stderr,
         .tail = has_tail_ ? tail_ : std::nullopt,
         .file = LogFile(path, LogLines(has_labels_ ? rank.label : "", pattern_))});
  }

  // By rank, stdout first.
  std::vector<Stream*> sorted_streams() {
    std::vector<Stream*> streams;
    for (Node& node : nodes_)
      for (Stream& stream : node.streams) streams.push_back(&stream);
    std::stable_sort(streams.begin(), streams.end(), [](const Stream* one, const Stream* other) {
      return std::pair(one->rank, one->is_stderr) < std::pair(other->rank, other->is_stderr);
    });
    return streams;
  }

  bool print_rest(LogFile& file, bool is_final) {
    bool has_more = true;
    while (has_more) {
      std::string text;
      has_more = file.read_some(text);
      if (!has_more && is_final) file.end(text);
      if (!printer_.print(text)) return false;
    }
    return true;
  }

  // The file of a round that has just begun may not exist yet.
  bool print_new(Stream& stream) {
    if (stream.file.is_remote()) return print_new_remote(stream);
    return !stream.file.open(stream.tail).empty() || print_rest(stream.file, false);
  }

  // Files of other nodes are asked for less often, and enter each round by themselves.
  bool print_new_remote(Stream& stream) {
    const auto now = std::chrono::steady_clock::now();
    if (now < stream.next_look) return true;
    stream.next_look = now + kRemoteInterval;
    bool can_read = stream.file.open(stream.tail).empty();
    if (can_read && !print_rest(stream.file, false)) return false;
    can_read = can_read && !stream.file.has_trouble();
    if (!stream.file.round() || stream.file.latest_round().value_or(0) <= *stream.file.round())
      return true;
    // The node that has the rank now may not be the one that had it in the file's round.
    if (!can_read && ++stream.looks_in_vain < kMostLooksInVain) return true;
    if (!print_rest(stream.file, true)) return false;  // written before the next round began
    stream.is_over = is_read_here(stream, *stream.file.round() + 1);
    if (stream.is_over) return true;
    stream.looks_in_vain = 0;
    stream.file = stream.file.in_next_round();
    stream.tail.reset();
    stream.next_look = now;
    return true;
  }

  bool end_round(Node& node) {
    for (Stream& stream : node.streams) {
      if (stream.file.is_remote() || !stream.file.open(stream.tail).empty()) continue;
      if (!print_rest(stream.file, true)) return false;
    }
    std::erase_if(node.streams, [](const Stream& stream) { return !stream.file.is_remote(); });
    return true;
  }

  // After a restart the files are in another directory.
  bool refresh(Node& node) {
    const std::optional<NodeLogs> logs =
        node_logs(ask_agent("drun", node.names.agent_pid, kStatusLimit));
    if (!logs) {
      // An agent that is busy or suspended still has its socket.
      if (!node.pidfd && socket_of("drun", node.names.agent_pid).empty()) node.is_gone = true;
      return true;
    }
    if (!logs->round || logs->ranks.empty() || (logs->round == node.round && !node.streams.empty()))
      return true;
    if (!end_round(node)) return false;
    // A round that has no ranks yet has not been read.
    const int next = node.logs.ranks.empty() ? node.round.value_or(0) : *node.round + 1;
    for (int missed = next; missed < *logs->round; ++missed) {
      enter_round(node, in_round(*logs, missed));
      if (!end_round(node)) return false;
    }
    enter_round(node, *logs);
    return true;
  }

  // Returns false if the reader of stdout is gone.
  bool wait() {
    std::vector<pollfd> waits{{.fd = STDOUT_FILENO, .events = 0, .revents = 0}};
    for (const Node& node : nodes_)
      waits.push_back({.fd = node.is_gone ? -1 : node.pidfd.get(), .events = POLLIN, .revents = 0});
    if (poll(waits.data(), waits.size(), static_cast<int>(kPollInterval.count())) <= 0) return true;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (waits[i + 1].revents != 0) nodes_[i].is_gone = true;
    return (waits[0].revents & (POLLERR | POLLHUP)) == 0;
  }

  // Includes rounds that began and ended since the last status: their files are there.
  int finish() {
    std::string rests;  // what other nodes' files held without a line end
    for (Node& node : nodes_)
      for (Stream& stream : node.streams)
        if (stream.file.is_remote()) stream.file.end(rests);
    if (!printer_.print(rests)) return printer_.exit_code();
    for (Node& node : nodes_) {
      if (!end_round(node)) break;
      while (node.round && has_files(in_round(node.logs, *node.round + 1))) {
        enter_round(node, in_round(node.logs, *node.round + 1));
        if (!end_round(node)) return printer_.exit_code();
      }
    }
    return printer_.exit_code();
  }

  static bool has_files(const NodeLogs& logs) {
    return std::any_of(logs.ranks.begin(), logs.ranks.end(), [](const RankLogs& rank) {
      return access(rank.stdout_file.c_str(), F_OK) == 0 ||
             access(rank.stderr_file.c_str(), F_OK) == 0;
    });
  }

  const LogsCommand& command_;
  LoggedJob job_;
  const LinePattern* pattern_;
  std::optional<TailWish> tail_{};
  bool has_tail_ = true;  // of the first round only
  bool has_labels_ = false;
  std::vector<Node> nodes_;
  Printer printer_;
};

int fail(const Error& error) {
  const bool is_ended = error.message.ends_with('\n');
  std::fprintf(stderr, "drun logs: %s%s", error.message.c_str(), is_ended ? "" : "\n");
  return 1;
}

}  // namespace

int show_logs(const LogsCommand& command) {
  std::optional<LinePattern> pattern;
  if (command.pattern) pattern.emplace(*command.pattern);
  Result<LoggedJob> job = find_job(command);
  if (!job) return fail(job.error());
  LogsView view(command, *std::move(job), pattern ? &*pattern : nullptr);
  if (const Result<void> opened = view.open(); !opened) return fail(opened.error());
  return command.is_following ? view.follow() : view.print_all();
}

}  // namespace drun
