// shardcheck: verification of tensor-parallel weight layouts. Dispatches to the subcommands of subcommands/.
#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "exit_code.h"
#include "options.h"
#include "process.h"
#include "report_json.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/placement.h"
#include "subcommand.h"
#include "terminal.h"

namespace {

using namespace shardcheck;

void print_help() {
  print(
      "usage: shardcheck COMMAND [OPTIONS]\n\nVerifies that tensor-parallel weight layouts compute what the "
      "unsharded model computes.\n\nCommands:\n");
  for (const Subcommand* command : all_subcommands())
    print(fmt::format("  {:<11}{}\n", command->name, command->summary));
  print(
      "\nshardcheck COMMAND --help shows the options of a command; shardcheck --version the version.\n"
      "Exit codes: 0 passed, 1 failed, 2 invalid use or input, 3 inconclusive, 4 environment or internal "
      "error.\n\nExample:\n  shardcheck run --suite=smoke\n");
}

const Subcommand& subcommand_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Subcommand* command : all_subcommands()) {
    if (command->name == name) return *command;
    names.emplace_back(command->name);
  }
  refuse_unknown("command", name, names);
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) throw InvalidInput("no command given; see shardcheck --help");
  const std::string& first = words.front();
  if (first == "help" && words.size() > 1) return subcommand_named(words[1]).run({"--help"});
  if (first == "--help" || first == "-h" || first == "help") {
    print_help();
    return kPassed;
  }
  if (first == "--version") {
    print_line(fmt::format("shardcheck {} (commit {})", SHARDCHECK_VERSION, build_commit()));
    return kPassed;
  }
  if (first.starts_with('-'))
    throw InvalidInput(
        fmt::format("unknown option {}; options follow a command, see shardcheck --help", first));
  return subcommand_named(first).run({words.begin() + 1, words.end()});
}

/// One line, whatever bytes a name in a file put into the message.
void complain(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "shardcheck: %s\n", printable(message).c_str());
}

int run_guarded(const std::vector<std::string>& words) {
  try {
    const int code = dispatch(words);
    flush_results();
    return code;
  } catch (const InvalidInput& error) {
    complain(error.what());
    return kInvalid;
  } catch (const UnsupportedLayout& error) {
    complain(error.what());
    return kInvalid;
  } catch (const IoError& error) {
    complain(error.what());
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    complain(error.what());
  } catch (const std::exception& error) {
    complain(fmt::format("internal error: {}", error.what()));
  }
  return kError;
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process();
  if (argc > 0) set_program_name(argv[0]);
  return run_guarded({argv + (argc > 0 ? 1 : 0), argv + argc});
}
