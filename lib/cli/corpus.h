// The corpus: case files and batches below a folder, what their headers must say, and which of them repeat
// another.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/outcome.h"
#include "shardcheck/properties/law.h"

namespace shardcheck {

/// What every case of the corpus is recorded with, in the order of its header.
struct CaseRecord {
  std::string law;  // of the case line
  Verdict verdict = Verdict::passed;
  std::string found_by;  // what found it
  std::string commit;    // at which it was recorded
  std::string why;       // it is kept

  /// The case file with this header.
  CaseFile file_of(Case value) const;
};

/// A case where it stands in the corpus.
struct CorpusCase {
  std::filesystem::path file;
  int line = 0;                // of a batch; 0: a case file
  CaseFile value;              // with the header of its file
  std::string origin() const;  // "FILE" or "FILE:LINE"
};

/// Cases by their canonical line, so that none is kept twice. One line may stand in several files of
/// reports/, which has a file for each public report.
class CaseIndex {
 public:
  /// Where the case stands already, or nothing; adds it otherwise.
  std::string add(const CorpusCase& one);
  std::string find(const Case& value) const;

 private:
  std::map<std::string, CorpusCase> by_line_;
};

/// Every case file and batch below a folder that is there, but for those of its seeds/, sorted.
std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder);

/// The cases of a case file or a batch. Throws InvalidCase, IoError.
std::vector<CorpusCase> cases_of(const std::filesystem::path& file);

/// The cases of a corpus that parse.
CaseIndex index_of(const std::filesystem::path& corpus);

/// What is wrong with the text of a file: header incomplete, unknown, empty or out of order, case line not
/// canonical, name with other characters than letters, digits and "_". Empty when nothing is.
std::vector<std::string> form_problems(const std::filesystem::path& file);

/// What is wrong with the seeds of fuzz targets, a line each "FILE: WHAT": a file that is empty, no text, no
/// hexadecimal where its name says so, or equal to another of its target.
std::vector<std::string> seed_problems(const std::filesystem::path& corpus);

/// The verdict that a law must give a case: failed where the case's fault must be detected by the law, else
/// passed.
Verdict required_verdict(const Law& law, const Case& c);

/// "sharded_equals_reference_heads_6_fault_swap_gate_and_up": law and keys but for the seed, at most 100
/// characters.
std::string name_of(const Case& c);

/// Writes a case file FOLDER/NAME.case, which must not exist, and returns its path. Throws InvalidInput,
/// IoError.
std::filesystem::path write_case_file(const std::filesystem::path& folder, const std::string& name,
                                      const CaseFile& file);

}  // namespace shardcheck
