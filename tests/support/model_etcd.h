// A model of etcd as far as drun uses it: two keys, leases and transactions. The caller passes the
// time. As in etcd itself, the keys of an expired lease exist until `expire` is called.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "rendezvous/leader/etcd_calls.h"

namespace drun::test {

class ModelEtcd {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Result = std::variant<rendezvous::etcd::Answer, rendezvous::etcd::Failed>;

  Result apply(const rendezvous::etcd::Call& call, Time now) {
    return std::visit([this, now](const auto& asked) { return carry_out(asked, now); }, call);
  }
  // Simulates a restart: every lease starts again with its full time, because the remaining times
  // are not stored.
  void restart(Time now) {
    for (auto& [lease, left] : leases_) left.until = now + left.ttl;
  }
  void forget() { *this = ModelEtcd(); }
  void expire(Time now) {
    for (auto each = leases_.begin(); each != leases_.end();) {
      const auto lease = each++;
      if (lease->second.until <= now) revoke(lease->first);
    }
  }
  const rendezvous::etcd::Sight& sight() const { return sight_; }
  std::size_t lease_count() const { return leases_.size(); }

 private:
  struct Left {
    std::chrono::seconds ttl{0};
    Time until;
  };

  void revoke(rendezvous::etcd::Lease lease) {
    leases_.erase(lease);
    bool is_change = false;
    for (auto* key : {&sight_.leader, &sight_.state}) {
      if (!*key || (*key)->lease != lease) continue;
      key->reset();
      is_change = true;
    }
    if (is_change) ++sight_.revision;
  }
  bool is_created(rendezvous::etcd::Revision revision) const {
    return (sight_.leader ? sight_.leader->created : 0) == revision;
  }
  bool is_changed(rendezvous::etcd::Revision revision) const {
    return (sight_.state ? sight_.state->changed : 0) == revision;
  }
  void put(std::optional<rendezvous::etcd::Found>& key, const std::string& value,
           rendezvous::etcd::Lease lease) {
    const auto created = key ? key->created : sight_.revision;
    key = rendezvous::etcd::Found{value, created, sight_.revision, lease};
  }
  static Result no_lease() {
    return rendezvous::etcd::Failed{"etcdserver: requested lease not found", true};
  }
  Result seen(bool is_done) const {
    return rendezvous::etcd::Answer(rendezvous::etcd::Seen{is_done, sight_});
  }

  Result carry_out(const rendezvous::etcd::Look&, Time) { return seen(true); }
  Result carry_out(const rendezvous::etcd::Grant& grant, Time now) {
    leases_[++last_lease_] = {grant.ttl, now + grant.ttl};
    return rendezvous::etcd::Answer(rendezvous::etcd::Leased{last_lease_, grant.ttl});
  }
  Result carry_out(const rendezvous::etcd::Renew& renew, Time now) {
    const auto found = leases_.find(renew.lease);
    if (found == leases_.end())
      return rendezvous::etcd::Answer(rendezvous::etcd::Leased{renew.lease});
    found->second.until = now + found->second.ttl;
    return rendezvous::etcd::Answer(rendezvous::etcd::Leased{renew.lease, found->second.ttl});
  }
  Result carry_out(const rendezvous::etcd::Claim& claim, Time) {
    if (!is_created(0) || !is_changed(claim.state_changed)) return seen(false);
    if (!leases_.contains(claim.leader_lease) || !leases_.contains(claim.state_lease))
      return no_lease();
    ++sight_.revision;
    put(sight_.leader, claim.leader, claim.leader_lease);
    put(sight_.state, claim.state, claim.state_lease);
    return seen(true);
  }
  Result carry_out(const rendezvous::etcd::Store& store, Time) {
    if (!is_created(store.led_since) || !is_changed(store.state_changed)) return seen(false);
    if (!leases_.contains(store.state_lease)) return no_lease();
    ++sight_.revision;
    put(sight_.state, store.state, store.state_lease);
    return seen(true);
  }
  Result carry_out(const rendezvous::etcd::Clear& clear, Time) {
    if (!is_created(clear.led_since)) return seen(false);
    ++sight_.revision;
    sight_.leader.reset();
    sight_.state.reset();
    return seen(true);
  }
  Result carry_out(const rendezvous::etcd::Revoke& asked, Time) {
    if (!leases_.contains(asked.lease)) return no_lease();
    revoke(asked.lease);
    return rendezvous::etcd::Answer(rendezvous::etcd::Revoked());
  }

  rendezvous::etcd::Sight sight_{.revision = 1};
  std::map<rendezvous::etcd::Lease, Left> leases_;
  rendezvous::etcd::Lease last_lease_ = 0;
};

}  // namespace drun::test
