#pragma once
// NCCL's functions, found at run time: in what the process has loaded, as LibTorch brings it, else by name.
#include <nccl.h>

#include <string>

#include "tutti/comm/backends/backend.h"

namespace tutti::nccl_engine {

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

  // "NCCL could not add: unhandled system error (Connection refused)". `comm` may be null.
  Error failure(ncclResult_t result, const char* doing, ncclComm_t comm) const;
};

// At least 2.14, which can be opened without blocking. The same answer at every call of this process.
Result<const Api*> api(const BackendServices& services);

}  // namespace tutti::nccl_engine
