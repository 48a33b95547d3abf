// A member's state machine with a simulated clock, and its last actions. It is node 1 of 3, with
// two workers, ranks 4 and 5.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/member/member.h"
#include "tests/support/catch.h"

namespace drun::test {

struct MemberDriver {
  MemberDriver();
  // Brings a member to the phase through events.
  static MemberDriver in(rendezvous::MemberPhase phase);
  static rendezvous::Time start_time() { return rendezvous::Time(std::chrono::hours(1)); }
  static World world(int round);
  static Outcome outcome_of(Ending ending);

  static constexpr int kEventKinds = 39;
  static constexpr int kStoppedWithoutCause = 17;
  void provoke(int event);

  void event(const rendezvous::MemberEvent& event) { actions = step(state, event, now); }
  void receive(rendezvous::CoordinatorMessage message) {
    event(rendezvous::Heard{std::move(message)});
  }
  // Handles the message and keeps the previous event's actions.
  void keep(rendezvous::CoordinatorMessage message) {
    const auto before = actions;
    receive(std::move(message));
    actions.insert(actions.begin(), before.begin(), before.end());
  }
  void wait(rendezvous::Time::duration time) {
    now += time;
    event(rendezvous::MemberTick{});
  }
  // Sends ticks when the member requests them, and no other event.
  void be_silent(rendezvous::Time::duration time);

  template <typename Action>
  std::size_t count() const {
    std::size_t found = 0;
    for (const auto& action : actions) found += std::holds_alternative<Action>(action) ? 1 : 0;
    return found;
  }
  template <typename Action>
  Action only() const {
    REQUIRE(count<Action>() == 1);
    for (const auto& action : actions) {
      if (const auto* wanted = std::get_if<Action>(&action)) return *wanted;
    }
    return {};
  }
  template <typename Message>
  Message sent() const {
    for (const auto& action : actions) {
      const auto* say = std::get_if<rendezvous::SendToCoordinator>(&action);
      const auto* wanted = say == nullptr ? nullptr : std::get_if<Message>(&say->message);
      if (wanted != nullptr) return *wanted;
    }
    FAIL("it did not say that");
    return {};
  }
  Outcome outcome() const { return only<rendezvous::End>().outcome; }
  // All lines, or those of one level.
  std::string log(std::optional<LogLevel> level = std::nullopt) const;

  rendezvous::Time now = start_time();
  rendezvous::MemberState state;
  std::vector<rendezvous::MemberAction> actions;
};

}  // namespace drun::test
