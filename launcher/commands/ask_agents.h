// edge. Finds the agents of this machine by the sockets they listen on, and asks them
// (agent/status/status_socket.h).
//
// Safety:  believes only what a process of the user that the socket's name tells says.
// Errors:  none; who does not answer is left out.   Thread: any; waits for the answers.
#pragma once

#include <chrono>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

// Core: the names that `list`, a text as /proc/net/unix, has for `user`; for 0 those of all users.
// Sorted, without the '@'.
std::vector<std::string> sockets_in(std::istream& list, const std::string& word, unsigned user);

// Core: whether `name`, "drun/UID/PID/RANDOM", is a socket of the agent with this pid.
bool is_socket_of(std::string_view name, int agent_pid);

// Names of sockets whose first word is this, "drun" or "drun-stacks", without the '@', sorted; of
// this user, root sees everybody's.
std::vector<std::string> agent_sockets(const std::string& word);

// What it says; empty: it has gone, is not what it seems, or does not answer in time.
std::string ask_agent(const std::string& name, std::chrono::milliseconds limit);

// ... of the agent with this pid; empty also where there is none.
std::string ask_agent(const std::string& word, int agent_pid, std::chrono::milliseconds limit);

}  // namespace drun
