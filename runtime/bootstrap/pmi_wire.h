// The lines of PMI 1 between a process and its launcher (MPICH, Intel MPI and derivatives), such as
// "cmd=put kvsname=a key=b value=c". Pure; used by pmi_client. After Balaji et al., "PMI: A
// Scalable Parallel Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010.
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

  /// Empty if the field is missing.
  std::string_view field(std::string_view name) const;
  /// The field as a number from 0; nothing if it is none.
  std::optional<int> number(std::string_view name) const;
  /// Whether "rc" is missing or 0.
  bool succeeded() const;
};

/// `line` has no line end. kTransport, quoting its legible part, unless it begins with a command.
Result<PmiAnswer> parse_pmi(std::string_view line);

/// Encodes bytes as letters, digits, '-' and '_' (RFC 4648, base64url without padding), because
/// spaces, '=' and line ends have a meaning in PMI.
std::string to_pmi_text(std::string_view bytes);
/// Nothing for a text that to_pmi_text() cannot produce.
std::optional<std::string> from_pmi_text(std::string_view text);

}  // namespace kolo
