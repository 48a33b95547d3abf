// All functions of OpenSSL that drun and Asio (Boost 1.74 to 1.83) call. If one is missing here,
// the linker reports no error but links OpenSSL again, and the test of drun's libraries fails.

#include <openssl/opensslv.h>

#include "rendezvous/base/late_library.h"
#include "rendezvous/tls/openssl_library.h"

#define DRUN_OPENSSL_FUNCTIONS(X)           \
  X(BIO_ctrl)                               \
  X(BIO_ctrl_pending)                       \
  X(BIO_free)                               \
  X(BIO_new)                                \
  X(BIO_new_bio_pair)                       \
  X(BIO_new_file)                           \
  X(BIO_new_mem_buf)                        \
  X(BIO_read)                               \
  X(BIO_s_mem)                              \
  X(BIO_write)                              \
  X(CRYPTO_free)                            \
  X(DH_free)                                \
  X(ERR_clear_error)                        \
  X(ERR_get_error)                          \
  X(ERR_lib_error_string)                   \
  X(ERR_peek_error)                         \
  X(ERR_peek_last_error)                    \
  X(ERR_reason_error_string)                \
  X(EVP_Digest)                             \
  X(EVP_KDF_CTX_free)                       \
  X(EVP_KDF_CTX_new)                        \
  X(EVP_KDF_derive)                         \
  X(EVP_KDF_fetch)                          \
  X(EVP_KDF_free)                           \
  X(EVP_MD_get_type)                        \
  X(EVP_PKEY_free)                          \
  X(EVP_PKEY_is_a)                          \
  X(EVP_sha256)                             \
  X(OPENSSL_init_ssl)                       \
  X(OSSL_PARAM_construct_end)               \
  X(OSSL_PARAM_construct_octet_string)      \
  X(OSSL_PARAM_construct_utf8_string)       \
  X(PEM_read_bio_DHparams)                  \
  X(PEM_read_bio_Parameters)                \
  X(PEM_read_bio_PrivateKey)                \
  X(PEM_read_bio_RSAPrivateKey)             \
  X(PEM_read_bio_X509)                      \
  X(PEM_read_bio_X509_AUX)                  \
  X(RSA_free)                               \
  X(SSL_CIPHER_find)                        \
  X(SSL_CTX_clear_options)                  \
  X(SSL_CTX_ctrl)                           \
  X(SSL_CTX_free)                           \
  X(SSL_CTX_get_cert_store)                 \
  X(SSL_CTX_get_default_passwd_cb)          \
  X(SSL_CTX_get_default_passwd_cb_userdata) \
  X(SSL_CTX_get_ex_data)                    \
  X(SSL_CTX_get_verify_callback)            \
  X(SSL_CTX_get_verify_mode)                \
  X(SSL_CTX_load_verify_locations)          \
  X(SSL_CTX_new)                            \
  X(SSL_CTX_set0_tmp_dh_pkey)               \
  X(SSL_CTX_set_ciphersuites)               \
  X(SSL_CTX_set_default_passwd_cb)          \
  X(SSL_CTX_set_default_passwd_cb_userdata) \
  X(SSL_CTX_set_default_verify_paths)       \
  X(SSL_CTX_set_ex_data)                    \
  X(SSL_CTX_set_num_tickets)                \
  X(SSL_CTX_set_options)                    \
  X(SSL_CTX_set_psk_find_session_callback)  \
  X(SSL_CTX_set_psk_use_session_callback)   \
  X(SSL_CTX_set_verify)                     \
  X(SSL_CTX_set_verify_depth)               \
  X(SSL_CTX_use_PrivateKey)                 \
  X(SSL_CTX_use_PrivateKey_file)            \
  X(SSL_CTX_use_RSAPrivateKey)              \
  X(SSL_CTX_use_RSAPrivateKey_file)         \
  X(SSL_CTX_use_certificate)                \
  X(SSL_CTX_use_certificate_ASN1)           \
  X(SSL_CTX_use_certificate_chain_file)     \
  X(SSL_CTX_use_certificate_file)           \
  X(SSL_SESSION_free)                       \
  X(SSL_SESSION_new)                        \
  X(SSL_SESSION_set1_master_key)            \
  X(SSL_SESSION_set_cipher)                 \
  X(SSL_SESSION_set_protocol_version)       \
  X(SSL_accept)                             \
  X(SSL_connect)                            \
  X(SSL_ctrl)                               \
  X(SSL_do_handshake)                       \
  X(SSL_free)                               \
  X(SSL_get_SSL_CTX)                        \
  X(SSL_get_error)                          \
  X(SSL_get_ex_data)                        \
  X(SSL_get_ex_data_X509_STORE_CTX_idx)     \
  X(SSL_get_shutdown)                       \
  X(SSL_get_verify_callback)                \
  X(SSL_get_verify_mode)                    \
  X(SSL_new)                                \
  X(SSL_read)                               \
  X(SSL_session_reused)                     \
  X(SSL_set_accept_state)                   \
  X(SSL_set_bio)                            \
  X(SSL_set_connect_state)                  \
  X(SSL_set_ex_data)                        \
  X(SSL_set_verify)                         \
  X(SSL_set_verify_depth)                   \
  X(SSL_shutdown)                           \
  X(SSL_write)                              \
  X(TLS_client_method)                      \
  X(TLS_method)                             \
  X(TLS_server_method)                      \
  X(X509_STORE_CTX_get_current_cert)        \
  X(X509_STORE_CTX_get_error_depth)         \
  X(X509_STORE_CTX_get_ex_data)             \
  X(X509_STORE_add_cert)                    \
  X(X509_check_host)                        \
  X(X509_check_ip_asc)                      \
  X(X509_free)                              \
  X(d2i_PrivateKey_bio)                     \
  X(d2i_RSAPrivateKey_bio)

DRUN_OPENSSL_FUNCTIONS(DRUN_LATE_FUNCTION)

namespace drun {
static_assert(OPENSSL_SHLIB_VERSION == 3);

Result<void> load_openssl() {
  static constexpr LateFunction kFunctions[] = {DRUN_OPENSSL_FUNCTIONS(DRUN_LATE_ENTRY)};
  // libcrypto comes with it
  return load_late("libssl.so.3", kFunctions, "a secret and https need OpenSSL 3: install libssl3");
}

}  // namespace drun
