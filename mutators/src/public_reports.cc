#include "shardcheck/mutators/public_reports.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "shardcheck/layout/embedded.h"

namespace shardcheck {

std::span<const EmbeddedFile> embedded_reports();

namespace {

ReportEffect effect_from(const std::string& text) {
  for (const auto effect : {ReportEffect::silent, ReportEffect::raises, ReportEffect::mixed}) {
    if (to_string(effect) == text) return effect;
  }
  throw InvalidInput("reports.json: effect '" + text + "' is not silent, raises or mixed");
}

struct Catalogue {
  std::vector<PublicReport> reports;
  std::vector<FaultClass> classes;
};

Catalogue parse() {
  const auto document = nlohmann::json::parse(embedded_reports().front().text);
  Catalogue all;
  for (const auto& entry : document.at("classes"))
    all.classes.push_back({entry.at("code").get<std::string>(), entry.at("what").get<std::string>()});
  for (const auto& entry : document.at("reports")) {
    all.reports.push_back({entry.at("id").get<std::string>(), entry.at("thread").get<std::string>(),
                           entry.at("year").get<int>(), entry.at("class").get<std::string>(),
                           effect_from(entry.at("effect").get<std::string>()),
                           entry.at("geometry").get<std::string>(),
                           entry.at("mechanism").get<std::string>()});
  }
  return all;
}

const Catalogue& catalogue() {
  static const Catalogue all = parse();
  return all;
}

bool stands_for(const Fault& fault, std::string_view id) {
  return std::ranges::find(fault.reports, id) != fault.reports.end();
}

}  // namespace

std::string_view to_string(ReportEffect effect) noexcept {
  switch (effect) {
    case ReportEffect::silent:
      return "silent";
    case ReportEffect::raises:
      return "raises";
    case ReportEffect::mixed:
      return "mixed";
  }
  return "unknown";
}

const std::vector<PublicReport>& public_reports() { return catalogue().reports; }
const std::vector<FaultClass>& fault_classes() { return catalogue().classes; }

const PublicReport* find_report(std::string_view id) {
  const auto found = std::ranges::find(public_reports(), id, &PublicReport::id);
  return found == public_reports().end() ? nullptr : &*found;
}

std::vector<const Fault*> faults_of_report(std::string_view id) {
  std::vector<const Fault*> found;
  for (const Fault* fault : all_faults()) {
    if (stands_for(*fault, id)) found.push_back(fault);
  }
  return found;
}

std::vector<const Fault*> faults_of_class(std::string_view code) {
  const auto has_class = [&](std::string_view id) {
    const PublicReport* report = find_report(id);
    return report != nullptr && report->fault_class == code;
  };
  std::vector<const Fault*> found;
  for (const Fault* fault : all_faults()) {
    if (std::ranges::any_of(fault->reports, has_class)) found.push_back(fault);
  }
  return found;
}

}  // namespace shardcheck
