// Deflate has no checksums on the way. A flipped bit may give wrong bytes for a while before it gives an error, or up
// to the checksum at the end. So an error can only give a position before which the damage is.
#include "tutti/base/gzip.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "tutti/base/file.h"

namespace tutti {
namespace {

constexpr std::size_t kInflateBuffer = std::size_t(128) << 10;
constexpr std::uint8_t kGzipMagic[] = {0x1f, 0x8b};
constexpr int kGzipOnly = 15 + 16;  // window bits, in the form that inflateInit2() expects

bool begins_member(std::span<const std::uint8_t> bytes) {
  const std::size_t known = std::min(bytes.size(), sizeof kGzipMagic);
  return known > 0 && std::memcmp(bytes.data(), kGzipMagic, known) == 0;
}

}  // namespace

Result<MaybeGzipFile> MaybeGzipFile::open(const std::string& path) {
  MaybeGzipFile file;
  file.path_ = path;
  file.fd_ = TUTTI_TRY(open_regular_file(path));
  file.buffer_.resize(kInflateBuffer);
  TUTTI_TRY(file.refill());
  if (file.waiting_.size() < sizeof kGzipMagic || !begins_member(file.waiting_)) return file;
  auto stream = std::make_unique<z_stream>();
  if (inflateInit2(stream.get(), kGzipOnly) != Z_OK) throw std::bad_alloc();
  file.inflate_.reset(stream.release());
  file.in_member_ = true;
  return file;
}

// Afterwards waiting_ is empty only at the end of the file.
Status MaybeGzipFile::refill() {
  ssize_t got;
  do {
    got = ::read(fd_.get(), buffer_.data(), buffer_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return system_error(errno, fmt::format("cannot read {}", path_));
  waiting_ = std::span(buffer_).first(std::size_t(got));
  disk_position_ += std::size_t(got);
  return {};
}

Result<std::size_t> MaybeGzipFile::read(std::span<std::uint8_t> into) {
  std::size_t filled = 0;
  while (filled < into.size() && !ended_) {
    if (waiting_.empty()) TUTTI_TRY(refill());
    if (waiting_.empty()) {
      ended_ = true;
      cut_off_ = in_member_;
    } else if (inflate_) {
      filled += TUTTI_TRY(inflate_into(into.subspan(filled)));
    } else {
      const std::size_t count = std::min(waiting_.size(), into.size() - filled);
      std::memcpy(into.data() + filled, waiting_.data(), count);
      waiting_ = waiting_.subspan(count);
      filled += count;
      position_ += count;
    }
  }
  return filled;
}

Status MaybeGzipFile::begin_member() {
  if (!begins_member(waiting_))
    return Error{
        .code = Code::kCorrupt,
        .detail = fmt::format("the compressed data ends with byte {}, but the file continues with bytes that are "
                              "not of gzip",
                              position_)};
  inflateReset(inflate_.get());
  in_member_ = true;
  return {};
}

Result<std::size_t> MaybeGzipFile::inflate_into(std::span<std::uint8_t> into) {
  if (!in_member_) TUTTI_TRY(begin_member());
  z_stream& stream = *inflate_;
  stream.next_in = const_cast<std::uint8_t*>(waiting_.data());
  stream.avail_in = unsigned(waiting_.size());
  stream.next_out = into.data();
  stream.avail_out = unsigned(std::min(into.size(), kInflateBuffer));
  const unsigned room = stream.avail_out;
  const int answer = ::inflate(&stream, Z_NO_FLUSH);
  const std::size_t made = room - stream.avail_out;
  waiting_ = waiting_.last(stream.avail_in);
  position_ += made;
  if (answer == Z_STREAM_END) {
    in_member_ = false;
  } else if (answer == Z_MEM_ERROR) {
    throw std::bad_alloc();
  } else if (answer != Z_OK && answer != Z_BUF_ERROR) {
    return Error{.code = Code::kCorrupt,
                 .detail = fmt::format("the compressed data is damaged somewhere before byte {} of what it holds ({})",
                                       position_ + 1, stream.msg ? stream.msg : "of no known format")};
  }
  return made;
}

}  // namespace tutti
