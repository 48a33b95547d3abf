#include "rendezvous/tls/tls_session.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <deque>
#include <unordered_set>
#include <utility>

#include "rendezvous/net/frame_reader.h"
#include "rendezvous/tls/openssl_library.h"
#include "rendezvous/tls/secret.h"

namespace drun::rendezvous {
struct OpenSslFreer {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslFreer>;

namespace {

constexpr std::size_t kHeaderBytes = 5;  // of a TLS record
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kReadBytes = 16384;
// Offset of a hello's random part: after the record and message headers and the version (RFC 8446
// 4.1.2).
constexpr std::size_t kRandomAt = kHeaderBytes + 6;
constexpr std::size_t kRandomBytes = 32;
constexpr std::size_t kMostAnswered = 16384;
constexpr const char kCipher[] = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherNumber{0x13, 0x01};
constexpr const char kSameSecret[] = "give all nodes of the job the same --secret-file";

struct KeyMaterial {
  std::string_view secret;
  std::string_view salt;
  std::string_view purpose;
};

// RFC 5869 with SHA-256. Empty if OpenSSL fails.
std::string derived(const KeyMaterial& from, std::size_t size_bytes) {
  const Owned<EVP_KDF> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const Owned<EVP_KDF_CTX> context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  if (!context) return {};
  const auto octets = [](const char* name, std::string_view bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(bytes.data()), bytes.size());
  };
  char digest[] = "SHA256";
  const std::array<OSSL_PARAM, 5> parameters{
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, from.secret), octets(OSSL_KDF_PARAM_SALT, from.salt),
      octets(OSSL_KDF_PARAM_INFO, from.purpose), OSSL_PARAM_construct_end()};
  std::string bytes(size_bytes, '\0');
  auto* const out = reinterpret_cast<unsigned char*>(bytes.data());
  if (EVP_KDF_derive(context.get(), out, size_bytes, parameters.data()) <= 0) return {};
  return bytes;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

struct TlsContext::Parts {
  ~Parts() { wipe(key); }

  // Records the random part of a hello with a valid binder. Without the key no peer can make such a
  // hello, so a second one with the same random part is a replay and gets no answer.
  bool has_answered(const std::string& random) const { return answered.contains(random); }
  void note_answered(const std::string& random) {
    if (!answered.insert(random).second) return;
    in_order.push_back(random);
    if (in_order.size() <= kMostAnswered) return;
    answered.erase(in_order.front());
    in_order.pop_front();
  }

  std::string identity;
  std::string key;
  Owned<SSL_CTX> context;
  std::unordered_set<std::string> answered;
  std::deque<std::string> in_order;  // the same, oldest first
};

struct TlsSession::Library {
  // The key that the peer offered.
  enum class Offer { None, Other, Ours };

  explicit Library(const TlsContext::Parts& its_parts) : parts(its_parts) {}

  const TlsContext::Parts& parts;
  Owned<SSL> ssl;
  BIO* in = nullptr;   // owned by the SSL
  BIO* out = nullptr;  // owned by the SSL
  Offer offer = Offer::None;

  static Library& of(SSL* ssl) { return *static_cast<Library*>(SSL_get_app_data(ssl)); }
  // The key as an SSL_SESSION that the caller owns. Null: no memory.
  SSL_SESSION* new_key(SSL* for_ssl) const;
  static int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                     std::size_t* identity_bytes, SSL_SESSION** key);
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes,
                      SSL_SESSION** key);
};

SSL_SESSION* TlsSession::Library::new_key(SSL* for_ssl) const {
  SSL_SESSION* const key = SSL_SESSION_new();
  const auto* const bytes = reinterpret_cast<const unsigned char*>(parts.key.data());
  const bool is_good =
      key != nullptr && SSL_SESSION_set1_master_key(key, bytes, parts.key.size()) == 1 &&
      SSL_SESSION_set_cipher(key, SSL_CIPHER_find(for_ssl, kCipherNumber.data())) == 1 &&
      SSL_SESSION_set_protocol_version(key, TLS1_3_VERSION) == 1;
  if (is_good) return key;
  SSL_SESSION_free(key);
  return nullptr;
}

int TlsSession::Library::use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                                 std::size_t* identity_bytes, SSL_SESSION** key) {
  *key = nullptr;
  // OpenSSL passes the digest if the server has requested another hello and chosen a cipher.
  if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 1;
  const Library& self = of(ssl);
  *key = self.new_key(ssl);
  *identity = reinterpret_cast<const unsigned char*>(self.parts.identity.data());
  *identity_bytes = self.parts.identity.size();
  return *key != nullptr ? 1 : 0;
}

// Without a key, the handshake continues with a certificate, and there is none. The peer gets a
// handshake_failure, which is the right answer to an unknown identity.
int TlsSession::Library::find_key(SSL* ssl, const unsigned char* identity,
                                  std::size_t identity_bytes, SSL_SESSION** key) {
  *key = nullptr;
  Library& self = of(ssl);
  const std::string_view offered(reinterpret_cast<const char*>(identity), identity_bytes);
  self.offer = offered == self.parts.identity ? Offer::Ours : Offer::Other;
  if (self.offer != Offer::Ours) return 1;
  *key = self.new_key(ssl);
  return *key != nullptr ? 1 : 0;
}

TlsContext::TlsContext(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const Secret& secret,
                                                           std::string_view run_id) {
  if (Result<void> loaded = load_openssl(); !loaded) return loaded.error();
  // Does not read the system's openssl.cnf, which must not change the protocol between agents.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  auto parts = std::make_unique<Parts>();
  const std::string id = derived({secret.bytes(), "drun", "identity"}, 16);
  parts->identity = "drun " + hex(id);
  parts->key = derived({secret.bytes(), run_id, "drun control"}, kKeyBytes);
  parts->context.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = parts->context.get();
  // Sets the groups, so that the hello stays small with every default of OpenSSL.
  const bool is_good = !id.empty() && !parts->key.empty() && context != nullptr &&
                       SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                       SSL_CTX_set_ciphersuites(context, kCipher) == 1 &&
                       SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 &&
                       SSL_CTX_set_num_tickets(context, 0) == 1;
  if (!is_good) {
    ERR_clear_error();
    return Error{ErrorCode::System, "cannot prepare TLS 1.3 with a secret: OpenSSL has no HKDF, " +
                                        std::string(kCipher) + " or X25519 here"};
  }
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_psk_use_session_callback(context, TlsSession::Library::use_key);
  SSL_CTX_set_psk_find_session_callback(context, TlsSession::Library::find_key);
  return std::shared_ptr<const TlsContext>(new TlsContext(std::move(parts)));
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, Side side)
    : context_(std::move(context)), side_(side) {}
TlsSession::~TlsSession() = default;

std::optional<TlsSession::Trouble> TlsSession::start() {
  assert(side_ == Side::Connecting && !library_);
  if (auto failed = begin()) return failed;
  return shake_hands();
}

std::optional<TlsSession::Trouble> TlsSession::begin() {
  library_ = std::make_unique<Library>(*context_->parts_);
  library_->ssl.reset(SSL_new(context_->parts_->context.get()));
  library_->in = BIO_new(BIO_s_mem());
  library_->out = BIO_new(BIO_s_mem());
  SSL* const ssl = library_->ssl.get();
  if (ssl == nullptr || library_->in == nullptr || library_->out == nullptr) {
    BIO_free(library_->in);
    BIO_free(library_->out);
    library_->out = nullptr;
    return trouble(0);
  }
  BIO_set_mem_eof_return(library_->in, -1);  // an empty BIO is not the end of the stream
  SSL_set_bio(ssl, library_->in, library_->out);
  SSL_set_app_data(ssl, library_.get());
  if (side_ == Side::Accepting) {
    SSL_set_accept_state(ssl);
    return std::nullopt;
  }
  SSL_set_connect_state(ssl);
  // No authority is trusted, so no certificate is valid, and only the key is accepted.
  SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
  return std::nullopt;
}

std::optional<TlsSession::Trouble> TlsSession::take(std::string_view bytes, std::string& plain) {
  if (is_over_) return std::nullopt;
  if (has_head_) return go_on(bytes, plain);
  head_.append(bytes);
  if (auto wrong = side_ == Side::Connecting ? judge_answer() : judge_hello()) {
    is_over_ = true;
    return wrong;
  }
  if (!has_head_) return std::nullopt;
  return side_ == Side::Accepting ? answer(plain) : go_on(std::exchange(head_, {}), plain);
}

std::optional<TlsSession::Trouble> TlsSession::answer(std::string& plain) {
  TlsContext::Parts& parts = *context_->parts_;
  const std::string random =
      head_.size() < kRandomAt ? std::string() : head_.substr(kRandomAt, kRandomBytes);
  if (parts.has_answered(random)) {
    is_over_ = true;
    return Trouble{"repeats a hello that was said before"};
  }
  if (auto failed = begin()) return failed;
  if (auto failed = go_on(std::exchange(head_, {}), plain)) return failed;
  if (library_->offer == Library::Offer::Ours) parts.note_answered(random);
  return std::nullopt;
}

// Checks whether the answer is a TLS record, an unencrypted drun, or something else.
std::optional<TlsSession::Trouble> TlsSession::judge_answer() {
  constexpr char kFirstRecordType = 20;
  constexpr char kLastRecordType = 23;
  if (head_.empty()) return std::nullopt;
  has_head_ = head_.front() >= kFirstRecordType && head_.front() <= kLastRecordType;
  if (has_head_) return std::nullopt;
  const std::string_view magic = kControlMagic.substr(0, head_.size());
  if (!head_.starts_with(magic))
    return Trouble{"is not a drun (its first bytes are " + printable(head_) +
                   "); does another program use this port?"};
  if (head_.size() < kControlMagic.size()) return std::nullopt;
  return Trouble{
      "has no secret, but this node has one; give all nodes of the job the same "
      "--secret-file, or none of them any",
      true};
}

// Waits for a complete hello and checks its size before OpenSSL handles it.
std::optional<TlsSession::Trouble> TlsSession::judge_hello() {
  const auto byte = [this](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(head_[at]));
  };
  const bool is_record =
      (head_.empty() || head_[0] == kTlsFirstByte) && (head_.size() < 2 || byte(1) == 3);
  const std::size_t size = head_.size() < kHeaderBytes ? 0 : byte(3) << 8U | byte(4);
  if (!is_record || size > kMostHelloBytes)
    return Trouble{"is not a drun (its first bytes are " + printable(head_) + ")"};
  has_head_ = head_.size() >= kHeaderBytes && head_.size() >= kHeaderBytes + size;
  return std::nullopt;
}

std::optional<TlsSession::Trouble> TlsSession::go_on(std::string_view bytes, std::string& plain) {
  if (!bytes.empty() && BIO_write(library_->in, bytes.data(), static_cast<int>(bytes.size())) <= 0)
    return trouble(0);
  if (!is_established_) {
    if (auto failed = shake_hands()) return failed;
  }
  return is_established_ ? read(plain) : std::nullopt;
}

std::optional<TlsSession::Trouble> TlsSession::shake_hands() {
  SSL* const ssl = library_->ssl.get();
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl);
  if (result != 1) {
    const int error = SSL_get_error(ssl, result);
    return error == SSL_ERROR_WANT_READ ? std::nullopt : std::optional(trouble(error));
  }
  // Always true because certificates are refused. The security of the session depends on it.
  if (SSL_session_reused(ssl) != 1) return trouble(0);
  is_established_ = true;
  std::string early = std::exchange(unsealed_, {});
  write(early);
  wipe(early);
  return std::nullopt;
}

std::optional<TlsSession::Trouble> TlsSession::read(std::string& plain) {
  SSL* const ssl = library_->ssl.get();
  std::array<char, kReadBytes> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (;;) {
    ERR_clear_error();
    const int size = SSL_read(ssl, piece.data(), static_cast<int>(piece.size()));
    if (size > 0) {
      plain.append(piece.data(), static_cast<std::size_t>(size));
      continue;
    }
    const int error = SSL_get_error(ssl, size);
    return error == SSL_ERROR_WANT_READ ? std::nullopt : std::optional(trouble(error));
  }
}

void TlsSession::seal(std::string_view plain) {
  if (is_over_) return;
  if (is_established_)
    write(plain);
  else
    unsealed_.append(plain);
}

// Writes to memory, which fails only without memory. The peer then reports a missing record.
void TlsSession::write(std::string_view plain) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  assert(plain.size() <= kMostBytes);
  ERR_clear_error();
  if (!plain.empty()) SSL_write(library_->ssl.get(), plain.data(), static_cast<int>(plain.size()));
}

std::string TlsSession::outgoing() {
  std::string bytes;
  if (!library_ || library_->out == nullptr) return bytes;
  bytes.resize(BIO_ctrl_pending(library_->out));
  const int size =
      bytes.empty() ? 0 : BIO_read(library_->out, bytes.data(), static_cast<int>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(std::max(size, 0)));
  return bytes;
}

// Describes the peer's fault by OpenSSL's first error. Alerts are those of RFC 8446, 6.2.
TlsSession::Trouble TlsSession::trouble(int ssl_error) {
  constexpr int kHandshakeFailure = 40;
  constexpr int kIllegalParameter = 47;  // a wrong binder, before OpenSSL 3.2
  constexpr int kDecryptError = 51;      // a wrong binder, in other versions
  is_over_ = true;
  if (ssl_error == SSL_ERROR_ZERO_RETURN) return {"ended its side of the connection"};
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const int alert = reason > SSL_AD_REASON_OFFSET ? reason - SSL_AD_REASON_OFFSET : 0;
  const char* const text = ERR_reason_error_string(error);
  const std::string words = text == nullptr ? "no reason is known" : text;
  ERR_clear_error();
  if (is_established_) return {"broke its encrypted connection (" + words + ")"};
  if (side_ == Side::Connecting) {
    if (alert == kHandshakeFailure || reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
      return {"has another secret than this node; " + std::string(kSameSecret), true};
    if (alert == kIllegalParameter || alert == kDecryptError) return other_run();
    return {"does not speak TLS as a drun does (" + words + ")"};
  }
  if (library_->offer == Library::Offer::Other)
    return {"has another secret than this job; " + std::string(kSameSecret), true};
  if (library_->offer == Library::Offer::Ours && reason == SSL_R_BINDER_DOES_NOT_VERIFY)
    return other_run();
  if (library_->offer == Library::Offer::None)
    return {"is not a drun: it speaks TLS without a secret"};
  return {"broke off its handshake (" + words + ")"};
}

TlsSession::Trouble TlsSession::other_run() {
  return {
      "has the same secret, but another run id; give the same --rdzv-id on all nodes, or "
      "another job another port",
      true};
}

}  // namespace drun::rendezvous

namespace drun {

Result<std::string> sha256_text(std::string_view bytes) {
  if (Result<void> loaded = load_openssl(); !loaded) return loaded.error();
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    return Error{ErrorCode::System, "OpenSSL has no SHA-256"};
  return rendezvous::hex({reinterpret_cast<const char*>(digest.data()), size});
}

Result<std::string> worker_key(const Secret& secret, std::string_view run_id, int round) {
  if (Result<void> loaded = load_openssl(); !loaded) return loaded.error();
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  const std::string purpose = "drun worker " + std::to_string(round);
  std::string key = rendezvous::derived({secret.bytes(), run_id, purpose}, kWorkerKeyDigits / 2);
  if (key.empty()) return Error{ErrorCode::System, "OpenSSL has no HKDF"};
  std::string text = rendezvous::hex(key);
  wipe(key);
  return text;
}

}  // namespace drun
