// See ucx_context.h.
#include "transport/ucx/ucx_context.h"

#include "runtime/base/check.h"
#include "runtime/base/own_thread.h"
#include "transport/ucx/ucx_leftovers.h"

#include <net/if.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

namespace kolo {
namespace {

struct Setting {
  const char* name;
  const char* value;
};

Status configure(ucp_config_t* config, const UcxOptions& options, const Setting& setting) {
  if (options.environment.get(fmt::format("UCX_{}", setting.name))) return {};
  const ucs_status_t status = ucp_config_modify(config, setting.name, setting.value);
  if (status == UCS_OK) return {};
  return ucx_error(status, fmt::format("UCX's setting {}={}", setting.name, setting.value));
}

/// UCX itself would say no more than that nobody is reachable.
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

// UCX 1.13 tells what an endpoint uses only in what it prints for people.
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

// The word before the slash of "posix/memory", in each line that contains `marker`.
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

ucs_log_func_rc_t write_to_stderr(const char* file, unsigned line, const char*,
                                  ucs_log_level_t level,
                                  const ucs_log_component_config_t* component, const char* format,
                                  va_list arguments) {
  std::array<char, 1024> text = {};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  const std::string_view path = file;
  std::fprintf(stderr, "[%d] %s:%u %s %s %s\n", ::getpid(), path.substr(path.rfind('/') + 1).data(),
               line, component->name, ucs_log_level_names[level], text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

/// For the rest of this process, unless UCX_LOG_FILE says where. On stdout, which is UCX's default,
/// its messages would be in the midst of what a program prints for others to read.
void log_to_stderr(const Environment& environment) {
  static std::once_flag once;
  if (environment.get("UCX_LOG_FILE")) return;
  std::call_once(once, [] { ucs_log_push_handler(&write_to_stderr); });
}

}  // namespace

std::string ucx_version() {
  const std::string_view version = ucp_get_version_string();
  return std::string(version.substr(0, version.find(' ')));
}

std::string ucx_transports(ucp_ep_h endpoint) {
  return names_in(printed([endpoint](FILE* file) { ucp_ep_print_info(endpoint, file); }), "lane[");
}

std::string ucx_transports(ucp_context_h context) {
  return names_in(printed([context](FILE* file) { ucp_context_print_info(context, file); }),
                  "resource");
}

Result<UcxResources> open_ucx(const UcxOptions& options) {
  const BlockedSignals blocked;  // UCX has a thread, too
  // Before the first context, whose making warns of variables.
  log_to_stderr(options.environment);
  remove_ucx_leftovers(options.environment.get("UCX_POSIX_DIR").value_or("/dev/shm"));
  ucp_config_t* raw_config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw_config);
  if (status != UCS_OK) return ucx_error(status, "reading UCX's settings");
  const UcxConfig config(raw_config);
  // A rendezvous is pulled by its receiver, never pushed into memory whose transfer may have been
  // failed meanwhile.
  KOLO_TRY(configure(config.get(), options, {"RNDV_SCHEME", "get_zcopy"}));
  if (!options.transports.empty()) {
    KOLO_TRY(configure(config.get(), options, {"TLS", options.transports.c_str()}));
  }
  if (!options.interface.empty()) {
    KOLO_TRY(require_device(options.interface));
    KOLO_TRY(configure(config.get(), options, {"NET_DEVICES", options.interface.c_str()}));
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
  // Different threads hold the progress token one after the other.
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
