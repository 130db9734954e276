#include "runtime/negotiation/wire.h"

#include "runtime/base/check.h"

#include "wire.pb.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace kolo {
namespace {

/// A list that claims more splits is malformed.
constexpr std::uint64_t kMostSplits = 1 << 26;

void to_wire(const Signature& signature, wire::Signature& out) {
  out.set_kind(static_cast<std::uint32_t>(signature.kind));
  out.set_type(static_cast<std::uint32_t>(signature.type));
  out.set_op(static_cast<std::uint32_t>(signature.op));
  out.set_root(signature.root);
  out.set_prescale(signature.prescale);
  out.set_postscale(signature.postscale);
  out.mutable_shape()->Assign(signature.shape.begin(), signature.shape.end());
  out.set_group(signature.group);
  out.set_group_size(signature.group_size);
  out.set_on_device(signature.on_device);
}

bool from_wire(const wire::Signature& in, Signature& signature) {
  if (in.kind() >= static_cast<std::uint32_t>(kOperationKindCount) ||
      in.type() >= static_cast<std::uint32_t>(kDataTypeCount) ||
      in.op() >= static_cast<std::uint32_t>(kReduceOpCount)) {
    return false;
  }
  signature.kind = static_cast<OperationKind>(in.kind());
  signature.type = static_cast<DataType>(in.type());
  signature.op = static_cast<ReduceOp>(in.op());
  signature.root = in.root();
  signature.prescale = in.prescale();
  signature.postscale = in.postscale();
  signature.shape.assign(in.shape().begin(), in.shape().end());
  signature.group = in.group();
  signature.group_size = in.group_size();
  signature.on_device = in.on_device();
  return true;
}

/// Sends equal neighbours as one number where this makes the list shorter. Most parts of an
/// alltoall may be equal, or 0.
void to_wire(std::span<const std::int64_t> splits, wire::Splits& out) {
  std::size_t runs = 0;
  for (std::size_t i = 0; i < splits.size(); ++i)
    if (i == 0 || splits[i] != splits[i - 1]) ++runs;
  if (2 * runs > splits.size()) {
    out.mutable_rows()->Assign(splits.begin(), splits.end());
    return;
  }
  for (auto it = splits.begin(); it != splits.end();) {
    const auto end = std::find_if(it, splits.end(), [&](std::int64_t rows) { return rows != *it; });
    out.add_rows(*it);
    out.add_times(static_cast<std::uint32_t>(end - it));
    it = end;
  }
}

bool from_wire(const wire::Splits& in, std::vector<std::int64_t>& splits) {
  if (in.times().empty()) {
    splits.assign(in.rows().begin(), in.rows().end());
    return true;
  }
  if (in.times_size() != in.rows_size()) return false;
  const std::uint64_t all = std::accumulate(in.times().begin(), in.times().end(), std::uint64_t{0});
  if (all > kMostSplits) return false;
  splits.reserve(all);
  for (int i = 0; i < in.rows_size(); ++i) splits.insert(splits.end(), in.times(i), in.rows(i));
  return true;
}

void add_to_wire(const Request& request, wire::RequestList& list) {
  wire::Request& out = *list.add_requests();
  out.set_name(request.name);
  out.set_absent(request.absent);
  to_wire(request.signature, *out.mutable_signature());
  if (!request.splits.empty()) to_wire(request.splits, *out.mutable_splits());
  out.set_complaint(request.complaint);
  out.set_step(request.step);
  out.set_rank(static_cast<std::uint32_t>(request.rank));
  out.set_after(request.after);
}

void add_to_wire(const Response& response, wire::ResponseList& list) {
  wire::Response& out = *list.add_responses();
  out.set_name(response.name);
  out.set_contributors(static_cast<std::uint32_t>(response.contributors));
  out.set_participants(static_cast<std::uint32_t>(response.participants));
  out.set_result(response.result);
  if (!response.splits.empty()) to_wire(response.splits, *out.mutable_splits());
  to_wire(response.signature, *out.mutable_signature());
  if (response.error) {
    out.set_failed(true);
    out.set_error_code(static_cast<std::uint32_t>(response.error->code));
    out.set_error_message(response.error->message);
  }
  out.mutable_missing()->Assign(response.missing.begin(), response.missing.end());
}

template <class List, class Item>
std::string encode_first_as(std::span<const Item>& items) {
  std::string bytes;
  List one;
  while (!items.empty()) {
    one.Clear();
    add_to_wire(items.front(), one);
    if (!bytes.empty() && bytes.size() + one.ByteSizeLong() > kLongestList) break;
    one.AppendToString(&bytes);  // concatenated lists are one list
    items = items.subspan(1);
  }
  return bytes;
}

template <class List>
bool parse(std::span<const std::byte> bytes, List& list) {
  return bytes.size() <= INT32_MAX &&
         list.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

std::string encode_first(std::span<const Request>& list) {
  return encode_first_as<wire::RequestList>(list);
}

std::string encode_first(std::span<const Response>& list) {
  return encode_first_as<wire::ResponseList>(list);
}

std::size_t encoded_bytes(const Response& response) {
  wire::ResponseList list;
  add_to_wire(response, list);
  return list.ByteSizeLong();
}

Result<std::vector<Request>> decode_requests(std::span<const std::byte> bytes) {
  wire::RequestList list;
  if (!parse(bytes, list)) return KOLO_ERROR(kInternal, "malformed request list");
  std::vector<Request> requests(static_cast<std::size_t>(list.requests_size()));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const wire::Request& in = list.requests(static_cast<int>(i));
    requests[i].name = in.name();
    requests[i].absent = in.absent();
    requests[i].complaint = in.complaint();
    requests[i].step = in.step();
    requests[i].rank = static_cast<int>(std::min<std::uint32_t>(in.rank(), INT32_MAX));
    requests[i].after = in.after();
    if (!from_wire(in.signature(), requests[i].signature) ||
        !from_wire(in.splits(), requests[i].splits)) {
      return KOLO_ERROR(kInternal, "malformed request for '{}'", in.name());
    }
  }
  return requests;
}

Result<std::vector<Response>> decode_responses(std::span<const std::byte> bytes) {
  wire::ResponseList list;
  if (!parse(bytes, list)) return KOLO_ERROR(kInternal, "malformed response list");
  std::vector<Response> responses(static_cast<std::size_t>(list.responses_size()));
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const wire::Response& in = list.responses(static_cast<int>(i));
    Response& response = responses[i];
    response.name = in.name();
    response.contributors = static_cast<int>(in.contributors());
    response.participants = static_cast<int>(in.participants());
    response.result = in.result();
    if (!from_wire(in.splits(), response.splits) ||
        !from_wire(in.signature(), response.signature) ||
        in.error_code() > static_cast<std::uint32_t>(ErrorCode::kInternal)) {
      return KOLO_ERROR(kInternal, "malformed response for '{}'", in.name());
    }
    if (in.failed()) {
      response.error = KOLO_ERROR(kInternal, "{}", in.error_message());
      response.error->code = static_cast<ErrorCode>(in.error_code());
    }
    response.missing.assign(in.missing().begin(), in.missing().end());
  }
  return responses;
}

}  // namespace kolo
