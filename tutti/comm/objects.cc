// Lengths are transferred first, then the bytes. In a collective every rank sends the length of its largest value and
// its limit in one all_gather. All ranks see the same numbers, so either all reject the call or none does.
//
// A message to one rank starts with a head that contains its length. The bytes follow in pieces, so that a receiver can
// discard a message above its limit with the memory of one piece.
#include "tutti/comm/objects.h"

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/validate.h"

namespace tutti {
namespace {

constexpr std::size_t kPiece = std::size_t(1) << 20;

struct Size {
  std::uint64_t bytes, limit;
};

struct Head {
  static constexpr std::uint64_t kMagic = 0x007463656a626f74;  // "tobject"
  std::uint64_t magic = kMagic, bytes = 0;
};

Error refusal(const Group& group, const char* verb, Code code, std::string detail, std::string hint = {}) {
  return Error{.code = code,
               .detail = std::move(detail),
               .hint = std::move(hint),
               .group = group.name(),
               .rank = group.rank(),
               .operation = verb};
}

void require_root(const Group& group, const char* verb, int root) {
  if (root >= 0 && root < group.size()) return;
  const Error error = comm::not_a_rank("root", root, group.size());
  throw Exception(refusal(group, verb, error.code, error.detail, error.hint));
}

template <class T>
std::span<const std::uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()};
}
std::span<std::uint8_t> space_of(std::string& value) {
  return {reinterpret_cast<std::uint8_t*>(value.data()), value.size()};
}

std::string too_large(std::uint64_t bytes, std::uint64_t most) {
  return "a value of " + bytes_text(bytes) + ", at most " + bytes_text(most) + " are allowed";
}

// The sizes of all ranks, after a check of the limits.
std::vector<std::size_t> agree_on_sizes(const Group& group, const char* verb, std::size_t bytes, ObjectLimit limit,
                                        CallSite at) {
  const Size mine{bytes, limit.most};
  std::vector<Size> all(std::size_t(group.size()));
  group.run({.kind = Kind::kAllGather, .dtype = DType::kU8, .in = &mine, .out = all.data(), .count = sizeof(Size)}, at)
      .or_throw();
  std::uint64_t least = ~std::uint64_t(0);
  for (const Size& size : all) least = std::min(least, size.limit);
  std::vector<std::size_t> sizes;
  for (int r = 0; r < group.size(); ++r) {
    sizes.push_back(all[std::size_t(r)].bytes);
    if (sizes.back() <= least) continue;
    Error error = refusal(group, verb, Code::kLimit, "gives " + too_large(sizes.back(), least),
                          "send arrays with the verbs for arrays, or give every rank a higher ObjectLimit");
    error.peer = r;
    throw Exception(std::move(error));
  }
  return sizes;
}

std::vector<std::string> cut(const std::string& all, std::span<const std::size_t> sizes) {
  std::vector<std::string> values;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    values.push_back(all.substr(at, size));
    at += size;
  }
  return values;
}

}  // namespace

void broadcast_bytes(const Group& group, std::string& value, int root, ObjectLimit limit, CallSite at) {
  require_root(group, "broadcast_bytes", root);
  const bool mine = group.rank() == root;
  const auto sizes = agree_on_sizes(group, "broadcast_bytes", mine ? value.size() : 0, limit, at);
  value.resize(sizes[std::size_t(root)]);
  broadcast(group, space_of(value), root, at);
}

std::vector<std::string> all_gather_bytes(const Group& group, const std::string& mine, ObjectLimit limit, CallSite at) {
  const auto sizes = agree_on_sizes(group, "all_gather_bytes", mine.size(), limit, at);
  std::string all(requests::sum(sizes), '\0');
  all_gather_v(group, bytes_of(mine), space_of(all), std::span<const std::size_t>(sizes), at);
  return cut(all, sizes);
}

std::vector<std::string> gather_bytes(const Group& group, const std::string& mine, int root, ObjectLimit limit,
                                      CallSite at) {
  require_root(group, "gather_bytes", root);
  const auto sizes = agree_on_sizes(group, "gather_bytes", mine.size(), limit, at);
  const bool here = group.rank() == root;
  std::string all(here ? requests::sum(sizes) : 0, '\0');
  gather_v(group, bytes_of(mine), space_of(all), std::span<const std::size_t>(sizes), root, at);
  return here ? cut(all, sizes) : std::vector<std::string>();
}

std::string scatter_bytes(const Group& group, const std::vector<std::string>& values, int root, ObjectLimit limit,
                          CallSite at) {
  require_root(group, "scatter_bytes", root);
  const bool here = group.rank() == root;
  std::string all;
  std::vector<std::size_t> sizes;
  std::size_t largest = 0;
  if (here) {
    if (values.size() != std::size_t(group.size()))
      throw Exception(refusal(group, "scatter_bytes", Code::kInvalidArgument,
                              detail::words("the root gives ", std::to_string(values.size()), " values, expected ",
                                            group.size(), ", one for each rank")));
    for (const std::string& value : values) {
      all += value;
      sizes.push_back(value.size());
      largest = std::max(largest, value.size());
    }
  }
  agree_on_sizes(group, "scatter_bytes", largest, limit, at);
  std::size_t mine = 0;
  group
      .run({.kind = Kind::kScatter,
            .dtype = DType::kU8,
            .root = root,
            .in = sizes.data(),
            .out = &mine,
            .count = sizeof mine},
           at)
      .or_throw();
  std::string value(mine, '\0');
  scatter_v(group, bytes_of(all), std::span<const std::size_t>(sizes), space_of(value), root, at);
  return value;
}

void send_bytes(const Group& group, const std::string& value, int peer, int tag, ObjectLimit limit, CallSite at) {
  if (value.size() > limit.most)
    throw Exception(refusal(group, "send_bytes", Code::kLimit, "was given " + too_large(value.size(), limit.most),
                            "give both ranks a higher ObjectLimit"));
  const Head head{.bytes = value.size()};
  const std::string_view head_bytes(reinterpret_cast<const char*>(&head), sizeof head);
  send(group, bytes_of(head_bytes), peer, tag, at);
  for (std::size_t done = 0; done < value.size(); done += kPiece)
    send(group, bytes_of(value).subspan(done, std::min(kPiece, value.size() - done)), peer, tag, at);
}

std::string recv_bytes(const Group& group, int peer, int tag, std::int32_t* source, ObjectLimit limit, CallSite at) {
  Head head;
  std::int32_t from = peer;
  group
      .run({.kind = Kind::kRecv,
            .dtype = DType::kU8,
            .root = peer,
            .tag = tag,
            .out = &head,
            .count = sizeof head,
            .source = &from},
           at)
      .or_throw();
  const auto refuse = [&](Code code, std::string detail, std::string hint) {
    Error error = refusal(group, "recv_bytes", code, std::move(detail), std::move(hint));
    error.peer = from;
    throw Exception(std::move(error));
  };
  if (head.magic != Head::kMagic)
    refuse(Code::kCorrupt, detail::words("sent something with tag ", tag, " that is not a byte string"),
           "send_bytes and recv_bytes belong together: give other messages a different tag");
  if (source) *source = from;
  std::string value(std::min<std::uint64_t>(head.bytes, limit.most), '\0');
  std::string unwanted(head.bytes > limit.most ? kPiece : 0, '\0');
  for (std::uint64_t done = 0; done < head.bytes; done += kPiece) {
    const std::size_t bytes = std::min<std::uint64_t>(kPiece, head.bytes - done);
    recv(group, (unwanted.empty() ? space_of(value).subspan(done) : space_of(unwanted)).first(bytes), from, tag, at);
  }
  if (!unwanted.empty())
    refuse(Code::kLimit, "sent " + too_large(head.bytes, limit.most), "give both ranks a higher ObjectLimit");
  return value;
}

}  // namespace tutti
