#include "agent/output/worker_stream.h"

#include <utility>

#include "agent/output/log_files.h"
#include "rendezvous/result.h"

namespace drun::agent {

WorkerStream::WorkerStream(asio::io_context& io, std::vector<char>& buffer, Console& console,
                           Log log, Setup setup, std::function<void()> on_end)
    : console_(console),
      log_(std::move(log)),
      setup_(std::move(setup)),
      lines_(setup_.number, setup_.label),
      on_end_(std::move(on_end)),
      reader_(std::make_shared<PipeReader>(
          io, buffer,
          PipeReader::Listener{.is_ready = [this] { return !console_.is_congested(); },
                               .on_bytes = [this](std::string_view bytes) { take(bytes); },
                               .on_end = [this] { end(); }})) {}

WorkerStream::~WorkerStream() {
  on_end_ = nullptr;
  reader_->close();
}

void WorkerStream::take(std::string_view bytes) {
  taken_bytes_ += bytes.size();
  if (setup_.keeps_tail) tail_.take(bytes);
  append(setup_.tee, bytes);
  if (setup_.filter) {
    std::string picked;
    setup_.filter->take(bytes, picked);
    append(*setup_.filtered, picked);
  }
  if (console_.is_gone()) return;
  lines_.take(bytes, console_.queue());
  console_.flush();
}

void WorkerStream::end() {
  if (setup_.filter) {
    std::string picked;
    setup_.filter->end_of_stream(picked);
    append(*setup_.filtered, picked);
  }
  if (!console_.is_gone()) {
    lines_.end_of_stream(console_.queue());
    console_.flush();
  }
  if (on_end_) on_end_();
}

void WorkerStream::append(LogFile& file, std::string_view bytes) const {
  if (!file.fd || file.has_failed || bytes.empty()) return;
  const int error_number = write_all(file.fd.get(), bytes);
  if (error_number == 0) return;
  file.has_failed = true;
  log_.warning("log file is incomplete from here on path=" + file.path +
               " reason=" + system_message(error_number));
}

}  // namespace drun::agent
