#include "launcher/remote/local_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace drun::hosts {
namespace {

constexpr const char* kOwnNamespace = "/proc/thread-self/ns/net";
constexpr const char* kBridge = "br0";

UniqueFd open_own_namespace() { return UniqueFd(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC)); }

// Builds one rtnetlink request.
class Request {
 public:
  Request(std::uint16_t type, std::uint16_t flags) {
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    add(&head, sizeof head);
  }

  template <typename Part>
  Request& part(const Part& part) {
    add(&part, sizeof part);
    return *this;
  }
  Request& attribute(std::uint16_t type, const void* data, std::size_t size) {
    rtattr head{};
    head.rta_type = type;
    head.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(size));
    add(&head, sizeof head);
    add(data, size);
    return *this;
  }
  Request& text(std::uint16_t type, std::string_view text) {
    return attribute(type, std::string(text).c_str(), text.size() + 1);
  }
  Request& number(std::uint16_t type, int value) {
    const auto bits = static_cast<std::uint32_t>(value);
    return attribute(type, &bits, sizeof bits);
  }
  // Attributes up to end() are nested in this one.
  Request& begin(std::uint16_t type) {
    nested_.push_back(bytes_.size());
    return attribute(type, nullptr, 0);
  }
  Request& end() {
    const std::size_t at = nested_.back();
    nested_.pop_back();
    const auto size = static_cast<std::uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at + offsetof(rtattr, rta_len), &size, sizeof size);
    return *this;
  }

  const std::string& bytes() {
    const auto size = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &size, sizeof size);
    return bytes_;
  }

 private:
  void add(const void* data, std::size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
    bytes_.resize((bytes_.size() + NLMSG_ALIGNTO - 1) / NLMSG_ALIGNTO * NLMSG_ALIGNTO);
  }

  std::string bytes_;
  std::vector<std::size_t> nested_;
};

// Stays in the namespace in which it was opened.
class Netlink {
 public:
  Netlink() : fd_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}

  Result<void> ask(const std::string& what, Request request) const {
    const std::string& bytes = request.bytes();
    alignas(nlmsghdr) std::array<char, 8192> answer{};
    if (!fd_ || ::send(fd_.get(), bytes.data(), bytes.size(), 0) < 0)
      return system_error(what, errno);
    const ssize_t got = ::recv(fd_.get(), answer.data(), answer.size(), 0);
    if (got < 0) return system_error(what, errno);
    nlmsghdr head{};
    nlmsgerr error{};
    if (static_cast<std::size_t>(got) < sizeof head + sizeof error)
      return system_error(what, EPROTO);
    std::memcpy(&head, answer.data(), sizeof head);
    std::memcpy(&error, answer.data() + sizeof head, sizeof error);
    if (head.nlmsg_type != NLMSG_ERROR) return system_error(what, EPROTO);
    if (error.error != 0) return system_error(what, -error.error);
    return {};
  }

 private:
  UniqueFd fd_;
};

ifinfomsg link_head(bool is_up) {
  ifinfomsg head{};
  head.ifi_family = AF_UNSPEC;
  if (is_up) head.ifi_flags = head.ifi_change = IFF_UP;
  return head;
}

Request new_bridge() {
  Request request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  request.part(link_head(true)).text(IFLA_IFNAME, kBridge);
  request.begin(IFLA_LINKINFO).text(IFLA_INFO_KIND, "bridge").end();
  return request;
}

// `interface` in this namespace and its peer in the bridge's namespace.
Request new_pair(const std::string& interface, const std::string& other_end, int hub_fd) {
  Request request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  request.part(link_head(true)).text(IFLA_IFNAME, interface);
  request.begin(IFLA_LINKINFO).text(IFLA_INFO_KIND, "veth");
  request.begin(IFLA_INFO_DATA).begin(VETH_INFO_PEER).part(link_head(false));
  request.text(IFLA_IFNAME, other_end).number(IFLA_NET_NS_FD, hub_fd);
  request.end().end().end();
  return request;
}

Request set_up(const std::string& interface, int master) {
  Request request(RTM_NEWLINK, 0);
  request.part(link_head(true)).text(IFLA_IFNAME, interface);
  if (master > 0) request.number(IFLA_MASTER, master);
  return request;
}

Result<Request> new_address(const std::string& interface, const std::string& address, int bits) {
  in_addr number{};
  const unsigned index = ::if_nametoindex(interface.c_str());
  if (index == 0) return system_error("find " + interface, errno);
  if (::inet_pton(AF_INET, address.c_str(), &number) != 1)
    return system_error("read the address " + address, EINVAL);
  ifaddrmsg head{};
  head.ifa_family = AF_INET;
  head.ifa_prefixlen = static_cast<std::uint8_t>(bits);
  head.ifa_index = index;
  Request request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
  request.part(head).attribute(IFA_LOCAL, &number, sizeof number);
  request.attribute(IFA_ADDRESS, &number, sizeof number);
  return request;
}

Result<UniqueFd> new_namespace() {
  if (::unshare(CLONE_NEWNET) != 0) {
    const int error = errno;
    if (error != EPERM) return system_error("make a network namespace", error);
    return Error{ErrorCode::Usage, "--local-nodes=N,netns: cannot make a network namespace: " +
                                       system_message(error) +
                                       "; run drun as root, or leave netns out"};
  }
  UniqueFd fd = open_own_namespace();
  if (!fd) return system_error(std::string("open ") + kOwnNamespace, errno);
  return fd;
}

// Returns this thread to `network` on destruction.
class ReturnTo {
 public:
  explicit ReturnTo(const UniqueFd& network) : network_(network) {}
  ReturnTo(const ReturnTo&) = delete;
  ReturnTo& operator=(const ReturnTo&) = delete;
  ~ReturnTo() {
    // Cannot fail: this thread has been there, with the same rights.
    if (::setns(network_.get(), CLONE_NEWNET) != 0) ::abort();
  }

 private:
  const UniqueFd& network_;
};

}  // namespace

Result<LocalNetwork> LocalNetwork::make(const std::vector<Node>& nodes,
                                        const std::string& interface, int prefix_bits) {
  const UniqueFd own = open_own_namespace();
  if (!own) return system_error(std::string("open ") + kOwnNamespace, errno);
  const ReturnTo back(own);  // in all cases
  LocalNetwork network;
  Result<UniqueFd> hub = new_namespace();
  if (!hub) return hub.error();
  network.hub_ = *std::move(hub);
  const Netlink at_hub;
  if (auto made = at_hub.ask("make a bridge", new_bridge()); !made) return made.error();
  const int bridge = static_cast<int>(::if_nametoindex(kBridge));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Result<UniqueFd> made = new_namespace();
    if (!made) return made.error();
    network.nodes_.push_back(*std::move(made));
    const Netlink here;
    const std::string wire = "v" + std::to_string(i);
    Result<void> done = here.ask("set lo up", set_up("lo", 0));
    if (done) done = here.ask("make a veth pair", new_pair(interface, wire, network.hub_.get()));
    if (!done) return done.error();
    const Result<Request> address = new_address(interface, nodes[i].address, prefix_bits);
    if (!address) return address.error();
    done = here.ask("set the address of a node", *address);
    if (done) done = at_hub.ask("connect a node to the bridge", set_up(wire, bridge));
    if (!done) return done.error();
  }
  return network;
}

}  // namespace drun::hosts
