// core. What a member of a job with several endpoints keeps of whom to ask (ELECTION.md), and what
// it could tell the next coordinator. Part of the member's machine (member.h).
//
//   own seat, if it has one, else one seat after the other
//      | Follow                       | nobody knows yet: the seat answers when it does
//      v                              v
//   dial who leads -- Welcome      after the patience: the next one
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/endpoint.h"
#include "rendezvous/past.h"
#include "rendezvous/world.h"

namespace drun::rendezvous {

using Time = std::chrono::steady_clock::time_point;

// An event: this agent's own seat has heard who leads.
struct LeaderNamed {
  Endpoint endpoint;
  std::uint64_t term = 0;
};

// An event: nobody can be asked who leads, as etcd is out of reach. Empty: it is there again.
struct LeaderUnknown {
  std::string reason;
};

struct Seeking {
  std::size_t next = 0;      // in the list: whom to ask next
  bool was_sent_on = false;  // it dials whom a seat named
  std::uint64_t term = 0;    // of whom it has joined, or was sent to
  std::uint64_t lost_term = 0;
  std::size_t wrong_answers = 0;  // in a row
};

// Of the rounds it has been in.
struct Memory {
  int rounds = 0;
  std::string coordinator;  // of the last one
  std::vector<Time> restarts;
  std::vector<NodeRecord> records;
};

void remember(Memory& memory, const World& world, std::string coordinator, Time now);
Past past_of(const Memory& memory, const World& world, Time first_world, Time now);

}  // namespace drun::rendezvous
