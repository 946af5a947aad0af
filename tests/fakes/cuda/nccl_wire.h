#pragma once
// How the ranks of the double of NCCL reach one another: a file that all of them map, with a ring of bytes from each to
// each. Its name is the unique id.
#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace fake_nccl {

struct Transfer {
  int peer;
  std::byte* data;
  std::size_t bytes;
};

class Wire {
 public:
  static ncclUniqueId make_id();
  Wire(const ncclUniqueId& id, int rank, int size);
  ~Wire();
  Wire(const Wire&) = delete;

  // Says that this rank is here and which GPU it has; whether all have come.
  void join(int device);
  bool is_complete() const;
  bool is_open_everywhere() const;  // whether all have come so far as to know of it
  bool shares_a_gpu() const;
  void unlink() const;  // nobody needs the name any more

  // All of them, in both directions at once; those of one peer in their order. False if `stop` was set before the end.
  bool exchange(std::vector<Transfer> sends, std::vector<Transfer> recvs, const std::atomic<bool>& stop);

 private:
  struct Ring;
  struct Header;
  Ring& ring(int from, int to) const;
  std::size_t bytes() const;

  const int rank_, size_;
  std::string path_;
  std::byte* base_ = nullptr;
};

}  // namespace fake_nccl
