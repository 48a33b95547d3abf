// edge. TLS 1.3 for control connections. A session encrypts and decrypts bytes in memory;
// control_connection.h reads from and writes to the socket. Only the .cc includes OpenSSL (and
// etcd_gateway.cc through Asio).
//
//   connecting: start -- hello -->          accepting: passes the hello to OpenSSL only when all of
//               <-- hello, finished --      it has arrived
//               -- finished -->             established: both sides have proven that they know the
//                                           secret
//
// Keys:    an external pre-shared key without certificates, RFC 8446 2.2. The (EC)DHE key exchange
//          prevents an attacker who learns the secret later from decrypting recorded traffic. The
//          key is HKDF of secret and run id. The identity on the wire is HKDF of the secret alone,
//          so it does not reveal the run, and each side can distinguish a wrong secret from a wrong
//          run.
// Limits:  a hello of kMostHelloBytes; one record (16 KiB) of unread bytes; data that is sealed
//          before the end of the handshake is kept. To reject replays, a context remembers the last
//          16384 hellos that it has answered.
// Owner:   a process has one TlsContext for its job, which all sessions share.
// Errors:  Trouble, once. After it the session is closed; `outgoing` may still return an alert for
//          the peer.
// Source:  SSL_CTX_set_psk_use_session_callback(3), SSL_CTX_set_psk_find_session_callback(3).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/tls/secret.h"

namespace drun::rendezvous {

// The first byte of a TLS connection.
constexpr char kTlsFirstByte = 0x16;

class TlsContext {
 public:
  // Errors: System, when OpenSSL cannot be used.
  static Result<std::shared_ptr<const TlsContext>> make(const Secret& secret,
                                                        std::string_view run_id);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  struct Parts;
  explicit TlsContext(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

class TlsSession {
 public:
  enum class Side { Connecting, Accepting };
  struct Trouble {
    std::string reason{};       // begins with a verb: "has another secret ..."
    bool is_other_job = false;  // a drun with another secret or run id
  };
  // drun's hello has about 250 bytes.
  static constexpr std::size_t kMostHelloBytes = 2048;

  TlsSession(std::shared_ptr<const TlsContext> context, Side side);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Connecting side: outgoing() then returns its hello.
  std::optional<Trouble> start();
  // Handles bytes from the peer. Appends the decrypted data to `plain`, even if an error follows
  // it.
  std::optional<Trouble> take(std::string_view bytes, std::string& plain);
  // Encrypts data for the peer; outgoing() returns it once the handshake has ended.
  void seal(std::string_view plain);
  // Removes and returns the bytes to be written to the socket now.
  std::string outgoing();

  bool is_established() const { return is_established_; }

 private:
  struct Library;

  std::optional<Trouble> judge_answer();
  std::optional<Trouble> judge_hello();
  std::optional<Trouble> answer(std::string& plain);
  std::optional<Trouble> begin();
  std::optional<Trouble> go_on(std::string_view bytes, std::string& plain);
  std::optional<Trouble> shake_hands();
  std::optional<Trouble> read(std::string& plain);
  void write(std::string_view plain);
  Trouble trouble(int ssl_error);
  static Trouble other_run();

  friend class TlsContext;
  const std::shared_ptr<const TlsContext> context_;
  const Side side_;
  std::unique_ptr<Library> library_;  // null: the handshake has not begun
  std::string head_;                  // the peer's first bytes, until they are complete
  std::string unsealed_;
  bool has_head_ = false;
  bool is_established_ = false;
  bool is_over_ = false;
};

}  // namespace drun::rendezvous
