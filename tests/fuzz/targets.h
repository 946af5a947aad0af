#pragma once
// One function for each family of parsers of bytes that come from a peer, a stranger, a file or the environment. Each
// takes any bytes and throws a std::logic_error where a promise is broken that goes beyond not to crash: what was
// parsed survives being written and parsed again, a refusal is a sentence, nothing is read that was not sent.
//
// With clang they are libFuzzer programs (driver.cc), everywhere the corpus is replayed as ordinary tests, with
// mutations of it (replay_test.cc). Seeds are made by make_corpus.cc.
#include <cstdint>
#include <string>

#include "tests/fuzz/input.h"

namespace tutti::fuzz {

void call_header(Input input);     // comm/call_header: two calls compared
void cluster(Input input);         // planning/training: the file of a cluster
void criteo_text(Input input);     // data/clicks: lines of Criteo's text
void doctor(Input input);          // doctor: what nodes tell of themselves, found and measured
void embedding_wire(Input input);  // embedding/wire: rows of other hosts
void error_file(Input input);      // launch/output: why a worker failed, by itself
void etcd(Input input);            // store/etcd: what an etcd answers
void file_store(Input input);      // store/file_log: records in the file of a FileStore
void flight(Input input);          // trace: records of the flight recorder, and the report over them
void handshake(Input input);       // transport/handshake: a stranger without the secret
void idx(Input input);             // data: IDX files, plain and compressed
void introduction(Input input);    // runtime: what ranks tell each other about their machines
void manifest(Input input);        // checkpoint: what a manifest says
void measured(Input input);        // planning/schedules: the times of a step of a pipeline, and its pictures
void membership(Input input);      // launch/membership: what agents of other nodes wrote, heartbeats
void network(Input input);         // comm/network_probe: questions, answers, words
void objects(Input input);         // comm/json_objects: text of a peer
void packed_clicks(Input input);   // data/clicks: packed files, their header and their rows
void pickle(Input input);          // checkpoint/torch: pickles
void plan(Input input);            // comm/executor: the streams of a collective
void point_to_point(Input input);  // comm/point_to_point: the streams of sends
void probe_command(Input input);   // doctor: what one host asks of another while it measures the way there
void remote_error(Input input);    // comm/agree: errors of other ranks
void rendezvous(Input input);      // rendezvous, transport/address: arrivals, troubles, URLs, host lists, addresses
void safetensors(Input input);     // checkpoint: files of others
void shm(Input input);             // transport/shm: what a peer hands over, where it says that a block lies
void sparse_metadata(Input input);  // comm/sparse_metadata: what ranks announce of sparse tensors
void ssh(Input input);             // launch/ssh: lists of hosts, what the ends of a session say to each other
void status(Input input);         // launch/watch, launch/places: how ranks of other nodes are doing, and where they run
void store_frame(Input input);    // store: clients of a store
void striped_link(Input input);   // transport/striped_link: chunks
void torch_file(Input input);     // checkpoint/torch: zip archives, and what PyTorch puts in them
void trace_profile(Input input);  // data/clicks: traces of accesses, and profiles of them

struct Target {
  const char* name;
  void (*run)(Input);
};
inline constexpr Target kTargets[] = {
    {"call_header", call_header},
    {"cluster", cluster},
    {"criteo_text", criteo_text},
    {"doctor", doctor},
    {"embedding_wire", embedding_wire},
    {"error_file", error_file},
    {"etcd", etcd},
    {"file_store", file_store},
    {"flight", flight},
    {"handshake", handshake},
    {"idx", idx},
    {"introduction", introduction},
    {"manifest", manifest},
    {"measured", measured},
    {"membership", membership},
    {"network", network},
    {"objects", objects},
    {"packed_clicks", packed_clicks},
    {"pickle", pickle},
    {"plan", plan},
    {"point_to_point", point_to_point},
    {"probe_command", probe_command},
    {"remote_error", remote_error},
    {"rendezvous", rendezvous},
    {"safetensors", safetensors},
    {"shm", shm},
    {"sparse_metadata", sparse_metadata},
    {"ssh", ssh},
    {"status", status},
    {"store_frame", store_frame},
    {"striped_link", striped_link},
    {"torch_file", torch_file},
    {"trace_profile", trace_profile},
};

}  // namespace tutti::fuzz
