#pragma once
// NCCL's functions, resolved at run time: from libraries that the process has loaded (LibTorch brings NCCL), or by
// name.
#include <nccl.h>

#include <string>

#include "tutti/comm/backends/backend.h"

namespace tutti::comm::nccl_engine {

struct Api {
  decltype(&::ncclGetVersion) ncclGetVersion;
  decltype(&::ncclGetUniqueId) ncclGetUniqueId;
  decltype(&::ncclCommInitRankConfig) ncclCommInitRankConfig;
  decltype(&::ncclCommGetAsyncError) ncclCommGetAsyncError;
  decltype(&::ncclCommFinalize) ncclCommFinalize;
  decltype(&::ncclCommDestroy) ncclCommDestroy;
  decltype(&::ncclCommAbort) ncclCommAbort;
  decltype(&::ncclGetErrorString) ncclGetErrorString;
  decltype(&::ncclGetLastError) ncclGetLastError;
  decltype(&::ncclRedOpCreatePreMulSum) ncclRedOpCreatePreMulSum;
  decltype(&::ncclRedOpDestroy) ncclRedOpDestroy;
  decltype(&::ncclAllReduce) ncclAllReduce;
  decltype(&::ncclBroadcast) ncclBroadcast;
  decltype(&::ncclReduce) ncclReduce;
  decltype(&::ncclAllGather) ncclAllGather;
  decltype(&::ncclReduceScatter) ncclReduceScatter;
  decltype(&::ncclSend) ncclSend;
  decltype(&::ncclRecv) ncclRecv;
  decltype(&::ncclGroupStart) ncclGroupStart;
  decltype(&::ncclGroupEnd) ncclGroupEnd;

  std::string version() const;  // "2.27.3"
  // "NCCL could not add: unhandled system error (Connection refused)". `comm` may be null.
  Error failure(ncclResult_t result, const char* doing, ncclComm_t comm) const;
};

// Requires NCCL 2.14, the first version that can be opened without blocking. Every call of this process gets the same
// result.
Result<const Api*> api(const BackendServices& services);

}  // namespace tutti::comm::nccl_engine
