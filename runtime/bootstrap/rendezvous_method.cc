#include "runtime/bootstrap/rendezvous_method.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/host_list.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/bootstrap/launcher.h"
#include "runtime/bootstrap/mpi_launcher.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

constexpr std::string_view kMethods =
    "env://, tcp://host:port, file:///path, mpi://, pmix://, pmi://, slurm:// or "
    "single://";
/// The schemes that nothing follows.
constexpr std::string_view kBareSchemes[] = {"env", "mpi", "pmix", "pmi", "slurm", "single"};

/// An init method: the scheme ("tcp" in "tcp://…") and the rest.
struct Method {
  std::string scheme;
  std::string rest;
};

Result<Method> parse_method(const std::string& text) {
  const auto end = text.find("://");
  Method method;
  if (end != std::string::npos) method = {text.substr(0, end), text.substr(end + 3)};
  const auto bare = std::find(std::begin(kBareSchemes), std::end(kBareSchemes), method.scheme);
  if (bare != std::end(kBareSchemes) && method.rest.empty()) return method;
  const bool has_address = method.scheme == "tcp" || method.scheme == "elastic";
  if (has_address && !method.rest.empty()) return method;
  if (method.scheme == "file" && method.rest.starts_with('/')) return method;
  return KOLO_ERROR(kInvalidArgument, "init method '{}' is not valid: expected {}", text, kMethods);
}

std::optional<int> if_set(std::int64_t knob) {
  return knob < 0 ? std::nullopt : std::optional(static_cast<int>(knob));
}

/// Rank and size as InitOptions or KOLO_ variables give them: both or neither.
Result<std::optional<Identity>> stated_identity(const RendezvousRequest& request,
                                                const Config& config) {
  const bool by_options = request.rank || request.size;
  const auto rank = by_options ? request.rank : if_set(config.rank);
  const auto size = by_options ? request.size : if_set(config.size);
  const std::string source =
      by_options ? "InitOptions::rank and InitOptions::size" : "KOLO_RANK and KOLO_SIZE";
  if (!rank && !size) return std::optional<Identity>();
  if (!rank || !size) {
    return KOLO_ERROR(kInvalidArgument, "{} belong together, but only the {} is given", source,
                      rank ? "rank" : "size");
  }
  Identity identity;
  identity.rank = *rank;
  identity.size = *size;
  identity.source = source;
  return std::optional(std::move(identity));
}

Result<RendezvousMethod> check(RendezvousMethod way, const Identity& who) {
  if (who.size < 1 || who.rank < 0 || who.rank >= who.size) {
    return KOLO_ERROR(kInvalidArgument,
                      "there is no rank {} among {} ranks ({}): ranks are counted from 0 to the "
                      "number of processes less one",
                      who.rank, who.size, who.source);
  }
  if (way.meeting == Meeting::kTcp && is_loopback(way.endpoint) && who.local_size &&
      *who.local_size < who.size) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {} of {} is to meet the others at {}, which is each host's own, but "
                      "only {} ranks are on this host; set MASTER_ADDR to a name or address of "
                      "rank 0's host that the others can reach",
                      who.rank, who.size, to_text(way.endpoint), *who.local_size);
  }
  way.rank = who.rank;
  way.size = who.size;
  way.local_rank = who.local_rank;
  way.job = who.job;
  if (who.size == 1) way.meeting = Meeting::kSingle;
  return way;
}

/// Where the processes of a job meet by default: at rank 0's host, at a port derived from the job's
/// name. Nothing if the launcher tells too little.
std::optional<Endpoint> endpoint_of_job(const Identity& who) {
  if (who.job.empty()) return std::nullopt;
  const std::uint16_t port = port_from_key(who.job);
  if (who.local_size == who.size) return Endpoint{"127.0.0.1", port};
  if (who.first_host.empty()) return std::nullopt;
  return Endpoint{who.first_host, port};
}

Result<RendezvousMethod> over_tcp(const Environment& environment, const Identity& who,
                                  std::string method, std::string why) {
  RendezvousMethod way = way_by(Meeting::kTcp, std::move(method), std::move(why));
  KOLO_ASSIGN(const auto master, master_endpoint(environment));
  const auto endpoint = master ? master : endpoint_of_job(who);
  if (!endpoint && who.size != 1) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {} of {} ({}) does not know where to meet the others; set MASTER_ADDR "
                      "and MASTER_PORT to rank 0's host and a free port, or KOLO_INIT_METHOD",
                      who.rank, who.size, who.source);
  }
  if (endpoint) way.endpoint = *endpoint;
  if (master) {
    KOLO_ASSIGN(auto agent, torchrun_agent(environment, *master));
    if (agent) {
      way.agent = *master;
      way.agent_key = std::move(agent->key);
      way.endpoint.port = agent->next_port;
    }
  }
  return check(std::move(way), who);
}

/// For independent programs, which meet nobody: the local rank gives each its own device.
std::optional<int> local_rank_of_launcher(const Environment& environment) {
  for (const auto& who :
       {identity_of_environment(environment), identity_of_mpi_launcher(environment),
        identity_of_slurm_step(environment)}) {
    if (who && who->local_rank) return who->local_rank;
  }
  return std::nullopt;
}

/// The rank and size of a method that does not tell them itself.
Result<Identity> identity_for(const Method& method, const std::string& why,
                              const std::optional<Identity>& stated,
                              const Environment& environment) {
  const bool by_slurm = method.scheme == "slurm";
  const bool by_variables = method.scheme == "env";
  std::optional<Identity> who = stated;
  if (!who && !by_slurm) who = identity_of_environment(environment);
  if (!who && !by_slurm && !by_variables) who = identity_of_mpi_launcher(environment);
  if (!who && !by_variables) who = identity_of_slurm_step(environment);
  if (who) return *std::move(who);
  return KOLO_ERROR(kInvalidArgument, "{}, but this process does not know its rank; {}", why,
                    by_slurm ? "start the program with srun: a batch script is no step"
                             : "set RANK and WORLD_SIZE, or KOLO_RANK and KOLO_SIZE, for each "
                               "process");
}

/// For kolo-run's own use: it numbers the processes, or takes the ranks of srun and mpirun for
/// their numbers, and tells them their ranks when they meet.
Result<RendezvousMethod> in_elastic_job(const Method& method, const std::string& why,
                                        const Config& config, const Environment& environment) {
  RendezvousMethod way = way_by(Meeting::kElastic, "elastic", why);
  KOLO_ASSIGN(way.endpoint, parse_endpoint(method.rest));
  if (config.process >= 0) {
    way.rank = static_cast<int>(config.process);
    return way;
  }
  std::optional<Identity> who = identity_of_mpi_launcher(environment);
  if (!who) who = identity_of_slurm_step(environment);
  if (!who) {
    return KOLO_ERROR(kInvalidArgument,
                      "{}, but KOLO_PROCESS is not set: this method is kolo-run's own, for jobs "
                      "with --min-np; start the program by kolo-run",
                      why);
  }
  way.rank = who->rank;
  way.local_rank = who->local_rank;
  return way;
}

Result<RendezvousMethod> by_method(const Method& method, const std::string& why,
                                   const std::optional<Identity>& stated,
                                   const Environment& environment) {
  if (method.scheme == "mpi") return way_by(Meeting::kMpi, "mpi", why);
  if (method.scheme == "pmix") return way_by(Meeting::kPmix, "pmix", why);
  if (method.scheme == "pmi") return way_by(Meeting::kPmi, "pmi", why);
  if (method.scheme == "single") {
    RendezvousMethod way = way_by(Meeting::kSingle, "single", why);
    way.local_rank = local_rank_of_launcher(environment);
    return way;
  }
  KOLO_ASSIGN(const Identity who, identity_for(method, why, stated, environment));
  const std::string reason = fmt::format("{}; rank by {}", why, who.source);
  if (method.scheme == "env" || method.scheme == "slurm") {
    return over_tcp(environment, who, method.scheme, reason);
  }
  if (method.scheme == "file") {
    RendezvousMethod way = way_by(Meeting::kFile, "file", reason);
    way.path = method.rest;
    return check(std::move(way), who);
  }
  constexpr std::string_view kLauncherServes = "?server=launcher";
  std::string_view address = method.rest;
  RendezvousMethod way = way_by(Meeting::kTcp, "tcp", reason);
  way.launcher_serves = address.ends_with(kLauncherServes);
  if (way.launcher_serves) address.remove_suffix(kLauncherServes.size());
  KOLO_ASSIGN(way.endpoint, parse_endpoint(address));
  if (way.endpoint.port == 0) {
    return KOLO_ERROR(kInvalidArgument, "{}: all ranks must know the port, it cannot be 0", why);
  }
  return check(std::move(way), who);
}

/// With MASTER_ADDR, RANK and WORLD_SIZE must be numbers.
Status check_numbers(const Environment& environment) {
  for (const char* name : {"RANK", "WORLD_SIZE"}) {
    const auto text = environment.get(name);
    if (text && environment.get("MASTER_ADDR") && !environment.get_int(name)) {
      return KOLO_ERROR(kInvalidArgument,
                        "{}='{}' is no number; set it for each process, or unset "
                        "MASTER_ADDR if another launcher is meant",
                        name, *text);
    }
  }
  return {};
}

/// An MPI launcher or a Slurm step, with the name of the method.
std::pair<std::optional<Identity>, const char*> identity_by_launcher(
    const Environment& environment) {
  auto by_mpi = identity_of_mpi_launcher(environment);
  auto by_slurm = identity_of_slurm_step(environment);
  // An MPI launcher that does not say where to meet may itself run under Slurm, whose variables
  // then help. But if Slurm started Open MPI's daemons, those are its tasks, not the ranks.
  const bool mpi_knows = by_mpi && (environment.get("MASTER_ADDR") || endpoint_of_job(*by_mpi));
  if (by_slurm && !mpi_knows && !environment.get("OMPI_COMM_WORLD_SIZE"))
    return {std::move(by_slurm), "slurm"};
  return {std::move(by_mpi), "mpi"};
}

Result<RendezvousMethod> by_environment(const RendezvousRequest& request,
                                        const Environment& environment) {
  KOLO_TRY(check_numbers(environment));
  const bool has_address = environment.get("MASTER_ADDR").has_value();
  // Without MASTER_ADDR, RANK and WORLD_SIZE may come from another launcher or from a script.
  const auto named = identity_of_environment(environment);
  if (named && has_address) {
    if (named->size == 1) KOLO_TRY(check_world_size(environment, 1, "RANK and WORLD_SIZE"));
    return over_tcp(environment, *named, "env", "RANK, WORLD_SIZE and MASTER_ADDR are set");
  }
  if (auto way = way_by_mpi_launcher(request, environment)) return *std::move(way);
  if (const auto [who, method] = identity_by_launcher(environment); who)
    return over_tcp(environment, *who, method, who->source + " are set");
  const bool has_rank = environment.get("RANK").has_value();
  if (has_address && has_rank != environment.get("WORLD_SIZE").has_value()) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} and MASTER_ADDR are set, but {} is not; set RANK and WORLD_SIZE for each "
                      "process, or unset MASTER_ADDR if this one is alone",
                      has_rank ? "RANK" : "WORLD_SIZE", has_rank ? "WORLD_SIZE" : "RANK");
  }
  KOLO_TRY(check_world_size(environment, 1, "a world of one"));
  return way_by(Meeting::kSingle, "single", "nothing in the environment speaks of a launcher");
}

Result<RendezvousMethod> over_store(const RendezvousRequest& request,
                                    const std::optional<Identity>& stated) {
  if (!request.init_method.empty() || request.has_mpi_communicator) {
    return KOLO_ERROR(kInvalidArgument,
                      "InitOptions::store is given together with {}; leave one of them out",
                      request.has_mpi_communicator
                          ? "InitOptions::mpi_comm"
                          : fmt::format("InitOptions::init_method '{}'", request.init_method));
  }
  if (!stated) {
    return KOLO_ERROR(kInvalidArgument,
                      "InitOptions::store says where ranks meet, not who they are; give "
                      "InitOptions::rank and InitOptions::size, too");
  }
  RendezvousMethod way;
  way.meeting = Meeting::kStore;
  way.method = "store";
  way.why = fmt::format("InitOptions::store is given; rank by {}", stated->source);
  return check(std::move(way), *stated);
}

Result<RendezvousMethod> choose(const RendezvousRequest& request, const Config& config,
                                const Environment& environment) {
  const bool by_options = !request.init_method.empty();
  const std::string& text = by_options ? request.init_method : config.init_method;
  KOLO_ASSIGN(const auto stated, stated_identity(request, config));
  if (request.has_store) return over_store(request, stated);
  if (request.has_mpi_communicator) {
    if (by_options && text != "mpi://") {
      return KOLO_ERROR(kInvalidArgument,
                        "InitOptions::mpi_comm is given, but InitOptions::init_method is '{}'; "
                        "leave one of them out",
                        text);
    }
    return way_by(Meeting::kMpi, "mpi", "InitOptions::mpi_comm is given");
  }
  if (!text.empty()) {
    KOLO_ASSIGN(const Method method, parse_method(text));
    const std::string why =
        fmt::format("{} is {}", by_options ? "InitOptions::init_method" : "KOLO_INIT_METHOD", text);
    if (method.scheme == "elastic") return in_elastic_job(method, why, config, environment);
    return by_method(method, why, stated, environment);
  }
  if (stated) return over_tcp(environment, *stated, "env", stated->source + " are given");
  return by_environment(request, environment);
}

}  // namespace

RendezvousMethod way_by(Meeting meeting, std::string method, std::string why) {
  RendezvousMethod way;
  way.meeting = meeting;
  way.method = std::move(method);
  way.why = std::move(why);
  return way;
}

Result<RendezvousMethod> find_rendezvous_method(const RendezvousRequest& request,
                                                const Config& config,
                                                const Environment& environment) {
  KOLO_ASSIGN(RendezvousMethod way, choose(request, config, environment));
  if (config.local_rank >= 0) way.local_rank = static_cast<int>(config.local_rank);
  if (request.local_rank) way.local_rank = request.local_rank;
  if (way.job.empty()) way.job = job_of_environment(environment);
  return way;
}

std::string to_text(const RendezvousMethod& way) {
  std::string where;
  switch (way.meeting) {
    case Meeting::kSingle:
      return fmt::format("a world of one, because {}", way.why);
    case Meeting::kMpi:
      return fmt::format("mpi, because {}", way.why);
    case Meeting::kPmix:
      return fmt::format("pmix, because {}", way.why);
    case Meeting::kPmi:
      return fmt::format("pmi, because {}", way.why);
    case Meeting::kTcp:
      where = way.agent ? fmt::format("where torchrun's agent at {} says", to_text(*way.agent))
                        : "tcp://" + to_text(way.endpoint);
      break;
    case Meeting::kFile:
      where = "file://" + way.path;
      break;
    case Meeting::kElastic:
      return fmt::format("kolo-run's elastic job at {}, because {}", to_text(way.endpoint),
                         way.why);
    case Meeting::kStore:
      where = "the user's store";
      break;
  }
  return fmt::format("{} as rank {} of {}, because {}", where, way.rank, way.size, way.why);
}

}  // namespace kolo
