#include "tests/support/round_driver.h"

namespace drun::test {

using namespace rendezvous;

void RoundDriver::event(const RoundEvent& event) { actions = step(state, event, now); }

void RoundDriver::say(Peer peer, const MemberMessage& message) { event(PeerSaid{peer, message}); }

void RoundDriver::leave(Peer peer) { event(PeerLeft{peer, "its connection closed"}); }

void RoundDriver::wait(Milliseconds time) {
  now += time;
  event(RoundTick{});
}

void RoundDriver::join(Peer peer, const Hello& hello) {
  event(PeerArrived{peer, "10.0.0.9:" + std::to_string(peer)});
  say(peer, hello);
}

}  // namespace drun::test
