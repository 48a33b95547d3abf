// edge. The functions of libucp.so.0 (UCX), which is loaded on first use: few programs need it.
//
// Thread:  any.
// Errors:  throws BackendFailure (Unsupported) with the loader's message and the remedy.
#pragma once

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#include <memory>
#include <string>

namespace drun::worker::ucx {

// clang-format off
#define DRUN_UCX_FUNCTIONS(X)                                                          \
  X(ucp_config_read) X(ucp_config_modify) X(ucp_config_release)                        \
  X(ucp_init_version) X(ucp_cleanup)                                                   \
  X(ucp_worker_create) X(ucp_worker_destroy)                                           \
  X(ucp_worker_get_address) X(ucp_worker_release_address)                              \
  X(ucp_worker_progress) X(ucp_worker_arm) X(ucp_worker_get_efd)                       \
  X(ucp_worker_set_am_recv_handler) X(ucp_worker_flush_nbx)                            \
  X(ucp_am_send_nbx) X(ucp_am_recv_data_nbx) X(ucp_am_data_release)                    \
  X(ucp_ep_create) X(ucp_ep_close_nbx)                                                 \
  X(ucp_request_check_status) X(ucp_request_free)                                      \
  X(ucs_status_string)
// clang-format on

// Each function has UCX's name.
struct Library {
#define DRUN_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  DRUN_UCX_FUNCTIONS(DRUN_UCX_MEMBER)
#undef DRUN_UCX_MEMBER

  // Null: this library must not change UCX's log, or cannot.
  decltype(&::ucs_global_opts_set_value) set_log_option = nullptr;

  static const Library& get();
};

// Throws BackendFailure (System): "UCX cannot WHAT: UCX's text".
void check(ucs_status_t status, const char* what);

// UCX's view of this machine: one for all groups of this process, as long as any exists.
std::shared_ptr<ucp_context> context_of_process();

}  // namespace drun::worker::ucx
