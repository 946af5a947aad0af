#pragma once
// A Store in an etcd server (3.4 or later), which the site runs and which outlives any host of the job. It speaks the
// JSON gateway (/v3/...) that every etcd serves beside gRPC, through libcurl, which is opened when the first etcd is.
//
// What differs from a store of our own: etcd knows nothing of the job's secret, so any client that may write below the
// prefix controls the job (give it users or client certificates); a value is at most 1.5 MiB unless etcd runs with a
// larger
// --max-request-bytes; a multi_set of more than 100 keys is several changes. All keys of a job are attached to one
// lease, which every process of the job keeps alive: when all have ended, etcd deletes the keys by itself.
#include <memory>
#include <string>

#include "tutti/base/deadline.h"
#include "tutti/store/store.h"

namespace tutti {

struct EtcdOptions {
  std::string endpoints;  // "10.0.0.5:2379", "https://a:2379,https://b:2379": the members of one cluster
  std::string prefix;     // of all keys of this job, such as "/tutti/JOB"; not empty
  Duration lease = std::chrono::seconds(60);  // how long etcd keeps the keys of a job that has ended; at least 5 s
  std::string ca_file, certificate_file, key_file;  // for https; empty: the system's, and none
  std::string user, password;                       // where etcd demands them
};

// Threads: as any Store; calls of one handle are made one after another. Waits until etcd answers, at most until the
// deadline. kUnreachable names every endpoint that was tried; kUnsupported: this tutti was built without libcurl's
// headers, or libcurl is not installed here; kRefused: user, password, or no etcd at that address. A handle
// switches to another endpoint when one fails, and no change is made twice by that.
Result<std::unique_ptr<Store>> connect_etcd(EtcdOptions options, Deadline deadline);

// Ends the job's lease, and with it all its keys, so that the next job of this name begins with none. For the last
// process of a job: handles that others still have fail from now on.
Status forget_etcd_job(EtcdOptions options, Deadline deadline);

}  // namespace tutti
