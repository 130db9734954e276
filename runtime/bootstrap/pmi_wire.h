// The lines of PMI 1, which MPICH's, Intel MPI's and their kin's launchers speak with each process:
// "cmd=put kvsname=a key=b value=c", one a line. Pure; used by pmi_client. After Balaji et al.,
// "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010.
#pragma once

#include <kolo/error.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace kolo {

struct PmiAnswer {
  std::string command;  ///< "get_result"
  std::map<std::string, std::string, std::less<>> fields = {};

  /// Empty where it is missing.
  std::string_view field(std::string_view name) const;
  /// A number from 0, or nothing.
  std::optional<int> number(std::string_view name) const;
  /// No "rc", or 0.
  bool succeeded() const;
};

/// A line without its end. kTransport, with what is legible of it, unless it begins with a command.
Result<PmiAnswer> parse_pmi(std::string_view line);

/// Any bytes as letters, digits, '-' and '_' (RFC 4648, base64url without padding), since spaces,
/// '=' and line ends have a meaning of their own.
std::string to_pmi_text(std::string_view bytes);
/// Nothing for what to_pmi_text() would not write.
std::optional<std::string> from_pmi_text(std::string_view text);

}  // namespace kolo
