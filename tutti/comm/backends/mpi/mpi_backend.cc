// The backend mpi. Each operation is one of MPI's non-blocking calls, which MPI_Test advances. MPI has no descriptor to
// wait for, so a waiting thread polls it five thousand times a second.
//
// A collective of MPI cannot be canceled. After an error this process makes no further MPI calls, so on this rank
// nothing moves any more. But a peer may still read from the buffers of the calls in flight.
#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <vector>

#include "tutti/comm/backends/backend.h"
#include "tutti/comm/backends/mpi/mpi_job.h"
#include "tutti/comm/layout.h"

namespace tutti::comm::mpi_engine {
namespace {

constexpr Duration kLookAgain = std::chrono::microseconds(200);

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI8:
      return MPI_INT8_T;
    case DType::kU8:
    case DType::kBool:
      return MPI_UINT8_T;
    case DType::kF16:  // transferred, but not added
    case DType::kBF16:
      return MPI_UINT16_T;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kC64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::kC128:
      return MPI_C_DOUBLE_COMPLEX;
  }
  return MPI_BYTE;
}

MPI_Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPremulSum:
      return MPI_SUM;
    case ReduceOp::kProduct:
      return MPI_PROD;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kBand:
      return MPI_BAND;
    case ReduceOp::kBor:
      return MPI_BOR;
    case ReduceOp::kBxor:
      return MPI_BXOR;
  }
  return MPI_OP_NULL;
}

// Counts and displacements of uneven parts for MPI. Must live while the call is in flight.
struct MpiParts {
  std::vector<int> counts, places;
  explicit MpiParts(std::span<const std::size_t> splits) {
    int place = 0;
    for (std::size_t count : splits) {
      counts.push_back(int(count));
      places.push_back(place);
      place += int(count);
    }
  }
};

class MpiOperation final : public Operation {
 public:
  MpiOperation(const Request& request, int rank, int size)
      : request_(request), rank_(rank), size_(size), in_parts_(request.in_splits), out_parts_(request.out_splits) {}

  Status start(MPI_Comm comm) {
    const MpiCall call;
    if (const int failed = submit(comm); failed != MPI_SUCCESS) return failure(failed);
    return {};
  }

  Result<Progress> step() override {
    if (is_given_up()) return Error{.code = Code::kAborted, .detail = "MPI is not used after an error"};
    const MpiCall call;
    int done = 0;
    MPI_Status status;
    if (const int failed = MPI_Test(&mpi_request_, &done, &status); failed != MPI_SUCCESS) return failure(failed);
    if (!done) return Progress::kBlocked;
    if (request_.kind == Kind::kRecv) {
      int came = 0;
      MPI_Get_count(&status, type_of(request_.dtype), &came);
      if (came != int(request_.count))
        return Error{.code = Code::kMismatch,
                     .detail = detail::words(
                         "sent ", came == MPI_UNDEFINED ? "part of an element" : std::to_string(came) + " elements",
                         ", this rank expected ", std::to_string(request_.count)),
                     .hint = "send and recv must name as many elements of the same type",
                     .peer = status.MPI_SOURCE};
      if (request_.source) *request_.source = status.MPI_SOURCE;
    }
    return Progress::kDone;
  }

  void blockers(Blockers& blockers) const override { blockers.look_again = kLookAgain; }

 private:
  int submit(MPI_Comm comm) {
    const Request& r = request_;
    const MPI_Datatype type = type_of(r.dtype);
    const int count = int(r.count);
    const Parts parts(r.count, gives_parts(r.kind) ? r.in_splits : r.out_splits);
    const std::size_t own = parts.begin(rank_) * size_of(r.dtype);
    const auto* const in_bytes = static_cast<const std::byte*>(r.in);
    auto* const out_bytes = static_cast<std::byte*>(r.out);
    const bool root = rank_ == r.root, same = r.in == r.out;
    switch (r.kind) {
      case Kind::kBarrier:
        return MPI_Ibarrier(comm, &mpi_request_);
      case Kind::kBroadcast:
        return MPI_Ibcast(r.out, count, type, r.root, comm, &mpi_request_);
      case Kind::kReduce:
        return MPI_Ireduce(root && same ? MPI_IN_PLACE : r.in, r.out, count, type, op_of(r.op), r.root, comm,
                           &mpi_request_);
      case Kind::kAllReduce:
        return MPI_Iallreduce(same ? MPI_IN_PLACE : r.in, r.out, count, type, op_of(r.op), comm, &mpi_request_);
      case Kind::kScan:
        return MPI_Iscan(same ? MPI_IN_PLACE : r.in, r.out, count, type, op_of(r.op), comm, &mpi_request_);
      case Kind::kExscan:
        return MPI_Iexscan(same ? MPI_IN_PLACE : r.in, r.out, count, type, op_of(r.op), comm, &mpi_request_);
      case Kind::kGather:
        return MPI_Igather(root && in_bytes == out_bytes + own ? MPI_IN_PLACE : r.in, count, type, r.out, count, type,
                           r.root, comm, &mpi_request_);
      case Kind::kAllGather:
        return MPI_Iallgather(in_bytes == out_bytes + own ? MPI_IN_PLACE : r.in, count, type, r.out, count, type, comm,
                              &mpi_request_);
      case Kind::kScatter:
        return MPI_Iscatter(r.in, count, type, root && out_bytes == in_bytes + own ? MPI_IN_PLACE : r.out, count, type,
                            r.root, comm, &mpi_request_);
      case Kind::kReduceScatter:
        return MPI_Ireduce_scatter_block(r.in, r.out, count, type, op_of(r.op), comm, &mpi_request_);
      case Kind::kAllToAll:
        if (same) copy_.assign(in_bytes, in_bytes + elements_of(r, rank_, size_).in * size_of(r.dtype));
        if (!r.in_splits.empty())
          return MPI_Ialltoallv(same ? copy_.data() : r.in, in_parts_.counts.data(), in_parts_.places.data(), type,
                                r.out, out_parts_.counts.data(), out_parts_.places.data(), type, comm, &mpi_request_);
        return MPI_Ialltoall(same ? copy_.data() : r.in, count, type, r.out, count, type, comm, &mpi_request_);
      case Kind::kGatherV:
        return MPI_Igatherv(root && in_bytes == out_bytes + own ? MPI_IN_PLACE : r.in, count, type, r.out,
                            out_parts_.counts.data(), out_parts_.places.data(), type, r.root, comm, &mpi_request_);
      case Kind::kAllGatherV:
        return MPI_Iallgatherv(in_bytes == out_bytes + own ? MPI_IN_PLACE : r.in, out_parts_.counts[std::size_t(rank_)],
                               type, r.out, out_parts_.counts.data(), out_parts_.places.data(), type, comm,
                               &mpi_request_);
      case Kind::kScatterV:
        return MPI_Iscatterv(r.in, in_parts_.counts.data(), in_parts_.places.data(), type,
                             root && out_bytes == in_bytes + own ? MPI_IN_PLACE : r.out, count, type, r.root, comm,
                             &mpi_request_);
      case Kind::kReduceScatterV:
        return MPI_Ireduce_scatter(r.in, r.out, in_parts_.counts.data(), type, op_of(r.op), comm, &mpi_request_);
      case Kind::kSend:
        return MPI_Isend(r.in, count, type, r.root, r.tag, comm, &mpi_request_);
      case Kind::kRecv:
        return MPI_Irecv(r.out, count, type, r.root == kAnySource ? MPI_ANY_SOURCE : r.root, r.tag, comm,
                         &mpi_request_);
    }
    return MPI_ERR_OTHER;
  }

  static Error failure(int failed) {
    return Error{.code = Code::kPeerLost, .detail = "MPI reports: " + words_of(failed)};
  }

  const Request request_;
  const int rank_, size_;
  const MpiParts in_parts_, out_parts_;
  std::vector<std::byte> copy_;
  MPI_Request mpi_request_ = MPI_REQUEST_NULL;
};

class MpiBackend final : public Backend {
 public:
  MpiBackend(const BackendSetup& setup, MPI_Comm comm) : rank_(setup.rank), size_(setup.size), comm_(comm) {}
  ~MpiBackend() override {
    int ended = 0;
    if (MPI_Finalized(&ended) != MPI_SUCCESS || ended || is_given_up()) return;
    const MpiCall call;
    MPI_Comm_disconnect(&comm_);
  }

  Result<std::unique_ptr<Operation>> start(const Request& request, std::uint64_t) override {
    std::size_t most = request.count;
    for (const auto& splits : {request.in_splits, request.out_splits})
      most = std::max(most, std::accumulate(splits.begin(), splits.end(), std::size_t(0)));
    if (most > INT_MAX)
      return Error{.code = Code::kUnsupported,
                   .detail = "the engine mpi carries up to 2147483647 elements in a call, not " + std::to_string(most),
                   .hint = "make several calls"};
    if (is_point_to_point(request.kind) && request.tag < 0)
      return invalid_argument("MPI has no negative tags, such as " + std::to_string(request.tag));
    auto operation = std::make_unique<MpiOperation>(request, rank_, size_);
    TUTTI_TRY(operation->start(comm_));
    return std::unique_ptr<Operation>(std::move(operation));
  }

  void abort() override { give_mpi_up(); }

 private:
  const int rank_, size_;
  MPI_Comm comm_;
};

// The rank of every member in MPI_COMM_WORLD, by rank in the group. The members exchange them through the store.
Result<std::vector<int>> mpi_ranks(const BackendSetup& setup) {
  int mine = 0, all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &mine);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  std::vector<int> ranks;
  TUTTI_TRY(setup.store->set(setup.key + std::to_string(setup.rank), std::to_string(mine)));
  for (int r = 0; r < setup.size; ++r) {
    const std::string text = TUTTI_TRY(setup.store->get(setup.key + std::to_string(r), setup.deadline));
    ranks.push_back(std::atoi(text.c_str()));
  }
  for (int r = 0; r < setup.size; ++r)
    if (ranks[r] >= all || std::count(ranks.begin(), ranks.end(), ranks[r]) > 1)
      return Error{.code = Code::kUsage,
                   .detail = detail::words("the ranks were not started by one mpirun: MPI's world has ", all,
                                           all == 1 ? " rank" : " ranks", ", and rank ", r, " is number ", ranks[r],
                                           " of its own"),
                   .hint = "start all of them by one mpirun or srun"};
  return ranks;
}

Result<Backend*> open(const BackendSetup& setup) {
  TUTTI_TRY(begin_mpi());
  if (is_given_up())
    return Error{.code = Code::kAborted, .detail = "MPI is not used after an error: no further group can be made"};
  const MpiCall call;
  const std::vector<int> ranks = TUTTI_TRY(mpi_ranks(setup));
  MPI_Group world, members;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, setup.size, ranks.data(), &members);
  const int tag = int(std::hash<std::string>{}(setup.key) % 32768);  // separates concurrent groups of the same ranks
  const int failed = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm);
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  if (failed != MPI_SUCCESS)
    return Error{.code = Code::kSystem, .detail = "MPI could not make the group: " + words_of(failed)};
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return static_cast<Backend*>(new MpiBackend(setup, comm));
}

}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const int tutti_backend_abi = kBackendAbi;

[[gnu::visibility("default")]] Backend* tutti_open_backend(const BackendSetup* setup, Error* error) {
  const Result<Backend*> opened = open(*setup);
  if (opened.ok()) return *opened;
  *error = opened.error();
  return nullptr;
}
}

}  // namespace tutti::comm::mpi_engine
