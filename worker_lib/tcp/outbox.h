// edge. An outgoing connection to another rank, and its queue of frames.
//
// Order:   Eager and Ask frames leave in the order they were pushed in, since messages of one slot
//          must arrive in order. Grants and Credits precede frames that have not begun. Parts of
//          large messages take turns.
// Owner:   keeps pointers to the sends that wait; call take_back() before destroying one.
// Thread:  one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/pending_messages.h"

namespace drun::worker::tcp {

class Outbox {
 public:
  //   None --open--> Dialing --flush() sends the first byte--> Open
  //   any --close--> Gone
  enum class State { None, Dialing, Open, Gone };

  State state() const { return state_; }
  int fd() const { return fd_.get(); }
  bool has_more() const { return !queue_.empty() && (!is_held_ || !queue_.front().is_frame); }
  // No frame leaves, because the called rank has not answered the hello with its proof yet.
  bool is_held() const { return is_held_; }

  // Frames have been sent, at least in part: what the peer has received of them is not known.
  bool has_sent_frames() const { return has_sent_frames_; }

  // `is_held`: nothing but the hello leaves until release().
  void open(UniqueFd fd, const HelloBytes& hello, bool is_held);
  // Sends the proof, then the frames.
  void release(const Proof& proof);
  // Sends nothing more, and drops the queue. The descriptor stays open, and with it the
  // connection.
  void close();
  // Shows the end of a closed connection to the peer.
  void hang_up();
  // Moves the frames to another connection to the same rank. Requires !has_sent_frames().
  void hand_over(Outbox& other);

  void push_eager(Send& send);
  void push_ask(Send& send);
  // The next part of a granted message; further parts follow automatically.
  void push_part(Send& send);
  void push_first(const Frame& frame);

  // Writes as much as the kernel accepts. Returns the error that has ended the connection; 0: none.
  int flush();

  // Removes a send. False if a part of a frame has been sent, so that the connection is unusable.
  bool take_back(const Send& send);

 private:
  // A head and a part of a send's memory; or a hello or proof, which is no frame.
  struct Outgoing {
    HelloBytes head{};
    std::size_t head_bytes = kHeadBytes;
    bool is_frame = true;
    const char* data = nullptr;
    std::size_t size_bytes = 0;
    std::size_t done_bytes = 0;  // of head and payload
    Send* send = nullptr;        // owns the payload

    std::size_t total_bytes() const { return head_bytes + size_bytes; }
  };
  static Outgoing with_head(const Frame& frame);
  // A hello or proof, which precedes all frames.
  void push_opening(std::string_view bytes);
  bool take_written(std::size_t bytes);

  UniqueFd fd_{};
  State state_ = State::None;
  bool is_held_ = false;
  bool has_sent_frames_ = false;
  std::deque<Outgoing> queue_{};
};

}  // namespace drun::worker::tcp
