#pragma once
// A real `tutti` process under test: its output, its end, and whether it left anybody behind.
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace tutti::testing {

struct Ended {
  int code = -1;  // as a shell sees it
  std::string out, err;
};

// A folder for one test, removed at its end.
class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  ~Folder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Running {
 public:
  // Starts `tutti ARGUMENTS` with these changes to the environment (an empty value unsets). `entering`: words to be put
  // before the command, such as Hosts::entering().
  explicit Running(std::vector<std::string> arguments, std::map<std::string, std::string> changes = {},
                   std::string input = {}, const std::vector<std::string>& entering = {});
  Running(const Running&) = delete;
  ~Running();  // kills what is still there

  pid_t pid() const { return pid_; }  // of the supervisor
  pid_t agent();                      // its child
  // Reads until `text` has come on standard output (or error); fails the test at the deadline.
  void await_out(const std::string& text, int times = 1);
  void await_err(const std::string& text);
  void send(int signal) const;
  bool is_over() const;  // it has ended, though nobody has waited for it yet
  Ended wait();
  void close_output();  // as a reader that goes away
  // Reads nothing from now on, until wait().
  void stop_reading() { reading_ = false; }
  // Whether every process that descends from this one is gone, at most some seconds later.
  bool nobody_left();
  std::string census();  // the names of those that live

 private:
  bool pump(int timeout_ms);  // false: both ends closed

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool reading_ = true, waited_ = false;
  Ended ended_;
  std::string mark_;
  Folder flight_;
};

Ended run(std::vector<std::string> arguments, std::map<std::string, std::string> changes = {}, std::string input = {});
std::string worker();  // path of the worker program

std::string read_file(const std::string& path);

}  // namespace tutti::testing
