// edge. TLS 1.3 between agents: bytes of the socket in, bytes of the control stream out, and back.
// No socket in it: control_connection.h reads and writes. The one include of OpenSSL is its .cc.
//
//   connecting: start -- hello -->          accepting: waits for a whole hello, and only then has
//               <-- hello, finished --      OpenSSL look at it
//               -- finished -->             established on both sides: each has proven the secret
//
// How:     an external pre-shared key and no certificates, RFC 8446 2.2 with (EC)DHE, so that who
//          learns the secret later cannot read what was recorded. The key is HKDF of secret and run
//          id; the identity that goes over the wire is HKDF of the secret alone, so it names no
//          run, and both sides can tell another secret from another run.
// Limits:  a hello of kMostHelloBytes; one record (16 KiB) of unread bytes; what is sealed before
//          the handshake has ended is kept. A hello is answered once: of the last 16384 answered
//          ones a context knows the recordings.
// Owner:   TlsContext: one a job and process, shared by its sessions. TlsSession: a connection.
// Thread:  the io_context's only.
// Errors:  Trouble, once; after it the session takes and gives nothing but what `outgoing` still
//          holds (an alert for the peer). Never throws.
// Source:  SSL_CTX_set_psk_use_session_callback(3), SSL_CTX_set_psk_find_session_callback(3).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/net/secret.h"

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
    std::string reason{};       // a verb first: "has another secret ..."
    bool is_other_job = false;  // a drun, but without our secret and run id
  };
  // Ours has about 250 bytes.
  static constexpr std::size_t kMostHelloBytes = 2048;

  TlsSession(std::shared_ptr<const TlsContext> context, Side side);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Connecting: its hello becomes outgoing.
  std::optional<Trouble> start();
  // `bytes` from the peer. Appends the decrypted data to `plain`, even if an error follows it.
  std::optional<Trouble> take(std::string_view bytes, std::string& plain);
  // To be said to the peer, once the handshake has ended.
  void seal(std::string_view plain);
  // For the socket, now; taken away by the call.
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
  std::unique_ptr<Library> library_;  // null: not begun
  std::string head_;                  // the peer's first bytes, until they are understood
  std::string unsealed_;
  bool has_head_ = false;
  bool is_established_ = false;
  bool is_over_ = false;
};

}  // namespace drun::rendezvous
