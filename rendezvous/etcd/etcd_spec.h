// core. The etcd that elects a job's coordinator, as the command line names it.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/endpoint.h"

namespace drun {

// PEM files; empty: none. Without `authorities` the system's are believed.
struct CertificateFiles {
  std::string certificate{};  // this side's
  std::string key{};          // that one's
  std::string authorities{};
  bool operator==(const CertificateFiles&) const = default;
};

struct EtcdSpec {
  std::vector<Endpoint> endpoints{};  // of one etcd: tried in turn
  bool is_https = false;
  CertificateFiles files{};      // https only
  std::string prefix = "/drun";  // of the job's keys
  bool stands = true;            // this agent may coordinate
  bool operator==(const EtcdSpec&) const = default;
};

}  // namespace drun
