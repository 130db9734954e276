// How ranks tell each other of their windows while they start. Token holder only.
#pragma once

#include "runtime/base/check.h"
#include "runtime/base/deadline.h"
#include "runtime/bootstrap/bootstrap.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

/// Collective: every rank's offer, by rank. An Offer has encode() and decode().
template <class Offer>
Result<std::vector<Offer>> exchange_offers(Bootstrap& bootstrap, std::string_view name,
                                           const Offer& mine, Deadline deadline) {
  KOLO_ASSIGN(const auto blobs, bootstrap.exchange(name, mine.encode(), deadline));
  std::vector<Offer> offers;
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    KOLO_ASSIGN(Offer offer, Offer::decode(blobs[rank], static_cast<int>(rank)));
    offers.push_back(std::move(offer));
  }
  return offers;
}

}  // namespace kolo
