// Proves that a connection belongs to this job: HMAC-SHA-256 (RFC 2104, FIPS 180-4) over fresh
// random bytes of both sides. Used by both ends of the TCP store and by the launcher, which creates
// the secret. Pure, except random_bytes(). Any thread.
#pragma once

#include <kolo/error.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace kolo {

/// `count` bytes from the kernel's random generator. kUnsupported, with a remedy, in a sandbox
/// without one.
Result<std::string> random_bytes(std::size_t count);
/// Two lower-case digits per byte.
std::string to_hex(std::string_view bytes);

/// 32 bytes.
std::string sha256(std::string_view message);
/// 32 bytes; any key, also an empty one.
std::string hmac_sha256(std::string_view key, std::string_view message);
/// Takes the same time wherever the two differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace kolo
