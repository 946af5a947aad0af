#include "tutti/store/etcd/etcd_store.h"

namespace tutti {

namespace {

Error unsupported() {
  return Error{.code = Code::kUnsupported,
               .detail = "this tutti was built without etcd: libcurl's headers were missing",
               .hint = "install them (Debian: apt-get install libcurl4-openssl-dev) and build again"};
}

}  // namespace

Result<std::unique_ptr<Store>> connect_etcd(EtcdOptions, Deadline) { return unsupported(); }
Status forget_etcd_job(EtcdOptions, Deadline) { return unsupported(); }

}  // namespace tutti
