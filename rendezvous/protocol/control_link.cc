#include "rendezvous/protocol/control_link.h"

#include "rendezvous/net/endpoint.h"
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::rendezvous {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

class LocalEnd final : public ControlLink, public std::enable_shared_from_this<LocalEnd> {
 public:
  LocalEnd(asio::io_context& io, std::uint64_t id, std::uint16_t port, Listener& listener)
      : ControlLink(id, kLoopback, to_string(Endpoint{kLoopback, port})),
        io_(io),
        listener_(&listener) {}

  void join(const std::shared_ptr<LocalEnd>& other) { other_ = other; }

  using ControlLink::send;
  void send(Bytes frame) override {
    pass([frame = std::move(frame)](LocalEnd& to) { to.take(*frame); });
  }
  void send(Bytes head, Bytes body) override { send(*head + *body); }
  void send_bulk(Bytes frame) override { send(std::move(frame)); }
  std::size_t queued_bytes() const override { return 0; }
  void set_frame_limit(std::size_t limit_bytes) override { reader_.set_limit(limit_bytes); }
  void finish() override { close(); }
  void close() override {
    listener_ = nullptr;
    pass([](LocalEnd& to) { to.end({false, true, "its connection closed"}); });
    other_.reset();
  }

 private:
  // Posted, because a listener is never called from within a call that its owner makes.
  template <typename Call>
  void pass(Call call) {
    if (const auto other = other_.lock())
      asio::post(io_, [other, call = std::move(call)] { call(*other); });
  }

  void take(std::string_view bytes) {
    if (listener_ == nullptr) return;
    reader_.push(bytes);
    while (listener_ != nullptr) {
      const auto frame = reader_.next_frame();
      if (!frame) return end({true, true, "broke the control protocol: " + frame.error().message});
      if (!*frame) return;
      listener_->on_frame(*this, **frame);
    }
  }

  void end(const ConnectionEnd& ended) {
    const auto self = shared_from_this();  // the listener may release its reference
    Listener* const listener = std::exchange(listener_, nullptr);
    if (listener == nullptr) return;
    close();
    listener->on_end(*this, ended);
  }

  asio::io_context& io_;
  Listener* listener_;  // null after finish or close
  std::weak_ptr<LocalEnd> other_;
  FrameReader reader_{kFrameLimitBytes};
};

}  // namespace

LocalLink make_local_link(asio::io_context& io, std::uint16_t port, std::uint64_t coordinators_id,
                          ControlLink::Listener& coordinator, ControlLink::Listener& member) {
  const auto here = std::make_shared<LocalEnd>(io, coordinators_id, port, coordinator);
  const auto there = std::make_shared<LocalEnd>(io, 0, port, member);
  here->join(there);
  there->join(here);
  return {here, there};
}

}  // namespace drun::rendezvous
