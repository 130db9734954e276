// The state of a RankSampler as bytes, saved and loaded.
#pragma once

#include <kolo/torch.h>

#include <sstream>
#include <string>

namespace kolo::test {

inline std::string saved(const RankSampler& sampler) {
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

inline void load(RankSampler& sampler, const std::string& bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  sampler.load(archive);
}

}  // namespace kolo::test
