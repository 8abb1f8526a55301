#include "shardcheck/tolerance/floor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <tuple>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/tolerance/comparator.h"

namespace shardcheck {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const RecordedFloor& recorded() {
  static const RecordedFloor floor = load_recorded_floor("in_process");
  return floor;
}

/// The failures of a recording in which one thing was changed.
template <typename Change>
std::vector<std::string> failures_after(Change change) {
  RecordedFloor floor = recorded();
  change(floor);
  return check_floor(floor).failures;
}

TEST(SeedThreshold, IsTheSmallestPowerOfTenAtOrAboveAHundredTimesTheWorst) {
  struct Row {
    double worst, threshold;
  };
  for (const Row& row : {Row{1.669e-6, 1e-3}, Row{1.0000001e-5, 1e-2}, Row{0.999e-5, 1e-3},
                         Row{9.99e-8, 1e-5}, Row{2.0, 1e3}, Row{1e-12, 1e-10}, Row{0.5, 1e2}}) {
    EXPECT_EQ(seed_threshold(row.worst), row.threshold) << row.worst;
  }
}

TEST(SeedThreshold, IsExactAtPowersOfTen) {
  for (int exponent = -20; exponent <= 20; ++exponent) {
    const double worst = std::stod("1e" + std::to_string(exponent));
    const double threshold = std::stod("1e" + std::to_string(exponent + 2));
    EXPECT_EQ(seed_threshold(worst), threshold);
    EXPECT_EQ(seed_threshold(std::nextafter(worst, 0.0)), threshold) << "just below 1e" << exponent;
    EXPECT_EQ(seed_threshold(std::nextafter(worst, 1e300)), std::stod("1e" + std::to_string(exponent + 3)));
  }
}

TEST(SeedThreshold, NothingMeasuredGivesTheSmallestThreshold) {
  EXPECT_EQ(seed_threshold(0.0), 1e-9);
  EXPECT_EQ(seed_threshold(-1.0), 1e-9);
}

TEST(SeedThreshold, RefusesWhatIsNoNumber) {
  EXPECT_THROW(seed_threshold(std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
  EXPECT_THROW(seed_threshold(std::numeric_limits<double>::infinity()), std::invalid_argument);
}

TEST(RecordedFloorArtifact, PassesItsCheck) { EXPECT_THAT(check_floor(recorded()).failures, IsEmpty()); }

TEST(RecordedFloorArtifact, IsTrusted) { EXPECT_EQ(check_floor(recorded()).mistrusted, ""); }

/// A recording that follows the rule in every cell, with deviations of this size.
RecordedFloor inflated(double worst) {
  RecordedFloor floor = recorded();
  for (auto& cell : floor.cells) {
    if (cell.target_degree == 1) continue;
    cell.per_seed.assign(cell.per_seed.size(), worst);
    cell.max_deviation = worst;
    cell.max_ulp = worst / kUlp;
    cell.mean_ulp = cell.median_ulp = cell.max_ulp / 2;
  }
  floor.max_deviation = worst;
  floor.threshold = seed_threshold(worst);
  return floor;
}

TEST(CheckFloor, AThresholdThatTheControlWouldPassIsMistrusted) {
  for (const double worst : {0.1, 1e6}) {
    const FloorCheck check = check_floor(inflated(worst));
    EXPECT_THAT(check.failures, IsEmpty()) << worst;
    EXPECT_THAT(check.mistrusted, HasSubstr("too large")) << worst;
  }
  EXPECT_EQ(check_floor(inflated(1e-5)).mistrusted, "");
}

TEST(CheckFloor, AThresholdThatIsNoNumberIsMistrustedToo) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    RecordedFloor floor = recorded();
    floor.threshold = floor.max_deviation = value;
    EXPECT_NE(check_floor(floor).mistrusted, "");
    EXPECT_THAT(check_floor(floor).failures, testing::Not(IsEmpty()));
  }
}

TEST(RecordedFloorArtifact, IsOfTheInProcessPhase) {
  EXPECT_EQ(recorded().phase, "in_process");
  EXPECT_EQ(recorded().dtype, "f32");
}

TEST(RecordedFloorArtifact, CoversExactlyTheThirteenOrderedPairs) {
  std::set<std::tuple<std::string, int, int>> cells;
  for (const auto& cell : recorded().cells)
    cells.insert({cell.config, cell.source_degree, cell.target_degree});
  std::set<std::tuple<std::string, int, int>> expected;
  for (const int s : {1, 2}) {
    for (const int t : {1, 2}) expected.insert({"kv2", s, t});
  }
  for (const int s : {1, 2, 4}) {
    for (const int t : {1, 2, 4}) expected.insert({"kv4", s, t});
  }
  EXPECT_EQ(cells, expected);
  EXPECT_EQ(recorded().cells.size(), 13U);
}

TEST(RecordedFloorArtifact, RecordsTwentyRepetitionsOfEveryCell) {
  EXPECT_EQ(recorded().repetitions, 20);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(recorded().model_seeds.at(static_cast<std::size_t>(i)), static_cast<std::uint64_t>(i));
    EXPECT_EQ(recorded().token_seeds.at(static_cast<std::size_t>(i)), static_cast<std::uint64_t>(10000 + i));
  }
  for (const auto& cell : recorded().cells) EXPECT_EQ(cell.per_seed.size(), 20U);
}

TEST(RecordedFloorArtifact, WasMeasuredOnTheConfigurationsInCode) {
  EXPECT_EQ(recorded().configs.at("kv2"), toy());
  EXPECT_EQ(recorded().configs.at("kv4"), toy_kv4());
  EXPECT_EQ(recorded().batch, 2);
  EXPECT_EQ(recorded().length, 16);
}

TEST(RecordedFloorArtifact, ThresholdFollowsFromTheWorstCell) {
  double worst = 0.0;
  for (const auto& cell : recorded().cells) worst = std::max(worst, cell.max_deviation);
  EXPECT_EQ(recorded().max_deviation, worst);
  EXPECT_EQ(recorded().threshold, seed_threshold(worst));
  for (const auto& cell : recorded().cells) EXPECT_LT(cell.max_deviation, recorded().threshold);
}

TEST(RecordedFloorArtifact, OneRankDeviatesByExactlyNothing) {
  for (const auto& cell : recorded().cells) {
    EXPECT_EQ(cell.max_deviation == 0.0, cell.target_degree == 1);
  }
}

TEST(RecordedFloorArtifact, SourceDegreeIsInvisible) {
  for (const auto& cell : recorded().cells) {
    for (const auto& other : recorded().cells) {
      if (cell.config == other.config && cell.target_degree == other.target_degree) {
        EXPECT_EQ(cell.per_seed, other.per_seed);
      }
    }
  }
}

TEST(RecordedFloorArtifact, StatisticsAreOfOneDistribution) {
  for (const auto& cell : recorded().cells) {
    if (cell.max_deviation == 0.0) continue;
    EXPECT_GT(cell.median_ulp, 0.0);
    EXPECT_LE(cell.median_ulp, 2 * cell.mean_ulp);
    EXPECT_LT(cell.mean_ulp, cell.max_ulp);
  }
}

TEST(RecordedFloorArtifact, RecordsItsEnvironment) {
  for (const char* key : {"compiler", "flags", "cpu", "simd_target", "mpi", "commit"}) {
    EXPECT_NE(recorded().environment.at(key), "") << key;
    EXPECT_NE(this_environment().at(key), "") << key;
  }
}

TEST(CheckFloor, AnotherGeometryFails) {
  EXPECT_THAT(failures_after([](auto& f) { f.configs.at("kv4").ffn = 705; }),
              Contains(HasSubstr("another geometry")));
  EXPECT_THAT(failures_after([](auto& f) { f.configs.erase("kv4"); }),
              Contains(HasSubstr("kv4 is not recorded")));
  EXPECT_THAT(failures_after([](auto& f) { f.configs["kv8"] = toy(); }),
              Contains(HasSubstr("kv8 is not known")));
}

TEST(CheckFloor, AnotherTokenShapeOrDtypeFails) {
  EXPECT_THAT(failures_after([](auto& f) { f.length = 32; }), Contains(HasSubstr("token shape 2 x 32")));
  EXPECT_THAT(failures_after([](auto& f) { f.batch = 1; }), Contains(HasSubstr("token shape 1 x 16")));
  EXPECT_THAT(failures_after([](auto& f) { f.dtype = "bf16"; }), Contains(HasSubstr("dtype bf16")));
}

TEST(CheckFloor, AMissingADuplicateAndAForeignCellFail) {
  EXPECT_THAT(failures_after([](auto& f) { f.cells.erase(f.cells.begin() + 2); }),
              Contains(HasSubstr("kv2 tp2 -> tp1 is not recorded")));
  EXPECT_THAT(failures_after([](auto& f) { f.cells.push_back(f.cells.front()); }),
              Contains(HasSubstr("recorded twice")));
  EXPECT_THAT(failures_after([](auto& f) { f.cells.back().target_degree = 8; }),
              Contains(HasSubstr("none of the ordered pairs")));
}

TEST(CheckFloor, ACellThatContradictsItselfFails) {
  EXPECT_THAT(failures_after([](auto& f) { f.cells.back().per_seed.pop_back(); }),
              Contains(HasSubstr("19 maxima")));
  EXPECT_THAT(failures_after([](auto& f) { f.cells.back().per_seed.assign(20, 1e-6); }),
              Contains(HasSubstr("not the largest of per_seed")));
  EXPECT_THAT(failures_after([](auto& f) { f.cells.back().median_ulp = 100.0; }),
              Contains(HasSubstr("one distribution")));
  EXPECT_THAT(failures_after([](auto& f) { f.cells.back().max_ulp = 1.0; }), Contains(HasSubstr("max_ulp")));
  EXPECT_THAT(failures_after(
                  [](auto& f) { f.cells.front().max_deviation = f.cells.front().per_seed.front() = kUlp; }),
              Contains(HasSubstr("one rank reorders nothing")));
}

TEST(CheckFloor, AThresholdThatDoesNotFollowTheRuleFails) {
  EXPECT_THAT(failures_after([](auto& f) { f.threshold = 1e-2; }), Contains(HasSubstr("does not follow")));
  EXPECT_THAT(failures_after([](auto& f) { f.max_deviation = 1e-9; }),
              Contains(HasSubstr("not the largest of the cells")));
}

TEST(CheckFloor, AnotherEnvironmentWarnsAndDoesNotFail) {
  for (const char* key : {"compiler", "flags", "cpu", "simd_target"}) {
    RecordedFloor floor = recorded();
    floor.environment = this_environment();
    EXPECT_THAT(check_floor(floor).warnings, IsEmpty());
    floor.environment[key] = "something else";
    const FloorCheck check = check_floor(floor);
    EXPECT_THAT(check.failures, IsEmpty());
    EXPECT_THAT(check.warnings, Contains(HasSubstr(key)));
  }
}

TEST(CheckFloor, AnotherCommitIsNoWarning) {
  RecordedFloor floor = recorded();
  floor.environment = this_environment();
  floor.environment["commit"] = "another";
  EXPECT_THAT(check_floor(floor).warnings, IsEmpty());
}

TEST(FloorJson, WhatIsWrittenIsRead) {
  const RecordedFloor again = parse_floor(to_json(recorded()), "copy");
  EXPECT_EQ(to_json(again), to_json(recorded()));
  EXPECT_EQ(again.threshold, recorded().threshold);
  EXPECT_EQ(again.configs, recorded().configs);
  EXPECT_EQ(again.cells.back().per_seed, recorded().cells.back().per_seed);
}

std::string refusal(const std::string& text) {
  try {
    parse_floor(text, "floor.json");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = to_json(recorded());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(FloorJson, RefusalsNameTheFileAndTheField) {
  EXPECT_THAT(refusal(""), HasSubstr("floor.json: not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("field phase is missing"));
  EXPECT_THAT(refusal(with("\"in_process\"", "\"gloo\"")),
              HasSubstr("field phase must be in_process or mpi"));
  EXPECT_THAT(refusal(with("\"threshold\": 0.001", "\"threshold\": \"0.001\"")),
              HasSubstr("field threshold"));
  EXPECT_THAT(refusal(with("\"threshold\": 0.001", "\"threshold\": -1")), HasSubstr("field threshold"));
  EXPECT_THAT(refusal(with("\"ffn\": 704", "\"ffn\": 1e99")),
              HasSubstr("configs.kv2.ffn must be an integer"));
  EXPECT_THAT(refusal(with("\"rope\": \"none\"", "\"rope\": \"yarn\"")),
              HasSubstr("configs.kv2.rope must be none or half"));
  EXPECT_THAT(refusal(with("\"tied\": false", "\"tied\": 0")),
              HasSubstr("configs.kv2.tied must be true or false"));
  EXPECT_THAT(refusal(with("\"length\": 16", "\"length\": 18446744073709551615")),
              HasSubstr("measurement.length"));
  EXPECT_THAT(refusal(with("\"source_degree\": 1", "\"source_degree\": 0")),
              HasSubstr("results[0].source_degree"));
  EXPECT_THAT(refusal(with("\"per_seed\": [", "\"per_seed\": [null,")), HasSubstr("results[0].per_seed"));
  EXPECT_THAT(refusal(with("\"cpu\": \"", "\"cpu\": 1, \"x\": \"")), HasSubstr("field environment"));
}

TEST(FloorJson, IsReadAsStrictlyAsEveryOtherFile) {
  struct Row {
    const char *from, *to, *part;
  };
  for (const Row& row : {
           Row{"\"phase\":", "\"extra\": 1, \"phase\":", "field 'extra' is unknown"},
           Row{"\"ffn\":", "\"ffm\": 704, \"ffn\":", "field configs.kv2.'ffm' is unknown"},
           Row{"\"batch\":", "\"bach\": 2, \"batch\":", "field measurement.'bach' is unknown"},
           Row{"\"max_ulp\":", "\"ulps\": 2, \"max_ulp\":", "field results[0].'ulps' is unknown"},
           Row{"\"safety_factor\": 100", "\"safety_factor\": 1000", "field rule.safety_factor must be"},
           Row{"\"phase\":", "\"phase\": \"mpi\", \"phase\":", "appears twice"},
           Row{"\"ulp\": ", "\"ulp\": 1", "field ulp must be"},
           Row{"\"threshold\": 0.001", "\"threshold\": NaN", "not valid JSON"},
           Row{"\"threshold\": 0.001", "\"threshold\": 1e999", "not valid JSON"},
           Row{"\"threshold\": 0.001", "\"threshold\": null", "field threshold must be"},
       }) {
    EXPECT_THAT(refusal(with(row.from, row.to)), HasSubstr(row.part));
  }
  EXPECT_THAT(refusal(std::string(200'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("{\"\xFF\":1}"), HasSubstr("UTF-8"));
}

TEST(LoadRecordedFloor, ReadsAFolderInsteadOfTheEmbeddedFile) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "floors";
  std::filesystem::create_directories(folder);
  RecordedFloor floor = recorded();
  floor.environment["commit"] = "from the folder";
  std::ofstream(folder / "in_process.json") << to_json(floor);
  EXPECT_EQ(load_recorded_floor("in_process", folder).environment.at("commit"), "from the folder");
}

TEST(LoadRecordedFloor, APhaseIsNeverUsedForAnother) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "phases";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "mpi.json") << to_json(recorded());
  EXPECT_THROW(load_recorded_floor("mpi", folder), InvalidInput);
  EXPECT_THROW(load_recorded_floor("in_process", folder), IoError);
  EXPECT_THROW(load_recorded_floor("no such phase"), InvalidInput);
}

TEST(UseFloorOf, AFolderThatBreaksTheRuleIsRefusedAndChangesNothing) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "broken_floors";
  std::filesystem::create_directories(folder);
  RecordedFloor floor = recorded();
  floor.threshold = 1.0;
  std::ofstream(folder / "in_process.json") << to_json(floor);
  EXPECT_THROW(use_floor_of(folder), InvalidInput);
  EXPECT_THROW(use_floor_of(folder / "absent"), std::exception);
  EXPECT_EQ(floor_in_use().threshold, recorded().threshold);
  EXPECT_EQ(source_of_floor_in_use(), "tolerance/in_process.json");
}

TEST(MeasureFloor, SaysWhichShareOfAConfigurationIsDone) {
  std::vector<ProgressEvent> events;
  (void)measure_floor(1, [&](const ProgressEvent& event) { events.push_back(event); });
  const auto stages = std::ranges::count(events, ProgressEvent::Kind::stage, &ProgressEvent::kind);
  EXPECT_EQ(static_cast<std::size_t>(stages), recorded().configs.size());
  EXPECT_EQ(events.back().share, 1.0);
}

TEST(MeasureFloor, RepeatsTheRecordedFirstRepetition) {
  const RecordedFloor measured = measure_floor(1);
  ASSERT_EQ(measured.cells.size(), recorded().cells.size());
  for (std::size_t i = 0; i < measured.cells.size(); ++i) {
    EXPECT_EQ(measured.cells[i].config, recorded().cells[i].config);
    EXPECT_EQ(measured.cells[i].target_degree, recorded().cells[i].target_degree);
    EXPECT_EQ(measured.cells[i].per_seed.front(), recorded().cells[i].per_seed.front());
  }
  EXPECT_THROW(measure_floor(0), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
