// See ucx_context.h.
#include "transport/ucx/ucx_context.h"

#include "runtime/base/check.h"
#include "runtime/base/own_thread.h"
#include "runtime/base/proc_access.h"
#include "runtime/base/resource_limits.h"
#include "transport/ucx/ucx_leftovers.h"
#include "transport/ucx/ucx_log.h"

#include <net/if.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <sstream>

namespace kolo {
namespace {

struct Setting {
  const char* transport;  ///< the transport's prefix; empty: UCX's own setting
  const char* name;
  const char* value;
};

Status configure(ucp_config_t* config, const UcxOptions& options, const Setting& setting) {
  const std::string full = std::string(setting.transport) + setting.name;
  if (options.environment.get("UCX_" + full)) return {};
  // From 1.17 on, UCX expects a transport's setting with the transport's name in front.
  const char* const name = is_ucx_from(17) ? full.c_str() : setting.name;
  const ucs_status_t status = ucp_config_modify(config, name, setting.value);
  if (status == UCS_OK) return {};
  return ucx_error(status, fmt::format("UCX's setting {}={}", full, setting.value));
}

/// Checked here, because UCX itself would only say that nobody is reachable.
Status require_device(const std::string& name) {
  const std::string infiniband = "/sys/class/infiniband/" + name.substr(0, name.find(':'));
  std::error_code unknown;
  if (::if_nametoindex(name.c_str()) != 0 || std::filesystem::exists(infiniband, unknown))
    return {};
  return KOLO_ERROR(kInvalidArgument,
                    "KOLO_INTERFACE={}: this host has no such network device; `ip link` lists them",
                    name);
}

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};

// UCX 1.13 tells what an endpoint uses only in text for people.
std::string printed(const std::function<void(FILE*)>& print) {
  char* text = nullptr;
  std::size_t size = 0;
  {
    const std::unique_ptr<FILE, CloseFile> file(open_memstream(&text, &size));
    if (file == nullptr) return {};
    print(file.get());
  }
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return {text, size};
}

// The word before the slash ("posix" in "posix/memory") of each line that contains `marker`.
std::string names_in(const std::string& text, std::string_view marker) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(marker) == std::string::npos) continue;
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::size_t before = line.find_last_of(": ", slash);
    names.insert(line.substr(before + 1, slash - before - 1));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string ucx_version() {
  const std::string_view version = ucp_get_version_string();
  return std::string(version.substr(0, version.find(' ')));
}

bool is_ucx_from(unsigned minor) {
  unsigned major = 0;
  unsigned loaded = 0;
  unsigned release = 0;
  ucp_get_version(&major, &loaded, &release);
  return major > 1 || loaded >= minor;
}

std::string ucx_transports(ucp_ep_h endpoint) {
  return names_in(printed([endpoint](FILE* file) { ucp_ep_print_info(endpoint, file); }), "lane[");
}

std::string ucx_transports(ucp_context_h context) {
  return names_in(printed([context](FILE* file) { ucp_context_print_info(context, file); }),
                  "resource");
}

Result<UcxResources> open_ucx(const UcxOptions& options) {
  const BlockedSignals blocked;  // also for UCX's own thread
  const FileSizeErrors file_size_errors;
  take_ucx_log(options);
  remove_ucx_leftovers(options.environment.get("UCX_POSIX_DIR").value_or("/dev/shm"));
  ucp_config_t* raw_config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw_config);
  if (status != UCS_OK) return ucx_error(status, "reading UCX's settings");
  const UcxConfig config(raw_config);
  // The receiver pulls a rendezvous. A push could write into memory whose transfer has failed
  // meanwhile.
  KOLO_TRY(configure(config.get(), options, {"", "RNDV_SCHEME", "get_zcopy"}));
  // Endpoints with error handling connect when they are made, not with their first message; see
  // UcxTransport::connect().
  KOLO_TRY(configure(config.get(), options, {"", "RESOLVE_REMOTE_EP_ID", "auto"}));
  // Otherwise a call waits two minutes for a host that is gone.
  KOLO_TRY(configure(config.get(), options, {"TCP_", "CONN_NB", "y"}));
  // Then peers open this rank's memory by a name in /dev/shm.
  if (!why_peers_cannot_open().empty())
    KOLO_TRY(configure(config.get(), options, {"POSIX_", "USE_PROC_LINK", "n"}));
  if (!options.transports.empty()) {
    KOLO_TRY(configure(config.get(), options, {"", "TLS", options.transports.c_str()}));
  }
  if (!options.interface.empty()) {
    KOLO_TRY(require_device(options.interface));
    KOLO_TRY(configure(config.get(), options, {"", "NET_DEVICES", options.interface.c_str()}));
  }

  UcxResources ucx;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.name = "kolo";
  ucp_context_h context = nullptr;
  status = ucp_init(&params, config.get(), &context);
  if (status != UCS_OK) return ucx_error(status, fmt::format("opening UCX {}", ucx_version()));
  ucx.context = UcxContext(context);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Different threads hold the progress token, one at a time.
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  status = ucp_worker_create(ucx.context.get(), &worker_params, &worker);
  if (status != UCS_OK) {
    return ucx_error(status,
                     "making a UCX worker, which needs about 5 MB of /dev/shm for each rank: give "
                     "it room (docker run --shm-size=1g), or do without (UCX_TLS=tcp,self)");
  }
  ucx.worker = UcxWorker(worker);

  status = ucp_worker_get_efd(worker, &ucx.event_fd);
  if (status != UCS_OK) return ucx_error(status, "getting the descriptor of a UCX worker");
  ucp_address_t* address = nullptr;
  std::size_t address_size = 0;
  status = ucp_worker_get_address(worker, &address, &address_size);
  if (status != UCS_OK) return ucx_error(status, "getting the address of a UCX worker");
  ucx.address.assign(reinterpret_cast<const char*>(address), address_size);
  ucp_worker_release_address(worker, address);
  return ucx;
}

}  // namespace kolo
