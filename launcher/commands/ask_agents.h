// edge. Finds the agents of this machine by their sockets and queries them
// (agent/status/status_socket.h). Blocks until they answer; agents without an answer are left out.
//
// Security: accepts data only from a process of the user that is part of the socket's name.
#pragma once

#include <chrono>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

// The socket names in `list`, which has the format of /proc/net/unix, that belong to `user`, or to
// any user if `user` is 0. Sorted, without the '@'.
std::vector<std::string> sockets_in(std::istream& list, const std::string& word, unsigned user);

// Whether `name`, "drun/UID/PID/RANDOM", is a socket of the agent with this pid.
bool is_socket_of(std::string_view name, int agent_pid);

// Names of sockets with the first word `word` ("drun" or "drun-stacks") that belong to this user,
// or to any user for root. Sorted, without the '@'.
std::vector<std::string> agent_sockets(const std::string& word);

// The agent's answer. Empty if the agent has exited, is not trusted, or does not answer in time.
std::string ask_agent(const std::string& name, std::chrono::milliseconds limit);

// The same for a socket that expects a request (StatusSocket::Requests::Line).
std::string ask_agent(const std::string& name, std::chrono::milliseconds limit,
                      const std::string& request);

// Queries the agent with this pid. Also empty if there is none.
std::string ask_agent(const std::string& word, int agent_pid, std::chrono::milliseconds limit);

}  // namespace drun
