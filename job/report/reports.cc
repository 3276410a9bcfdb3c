#include "job/report/reports.h"

#include "job/report/wire.h"

namespace dsj::report {
namespace {

constexpr char kReportKey[] = "report";

}  // namespace

std::string to_line(const Report& report) {
  return kind_to_line(kReportKey, report);
}

std::optional<Report> report_from_line(const std::string& line) {
  return kind_from_line<Report>(kReportKey, line);
}

std::optional<Report> passed_on(const Event& event) {
  return std::visit(
      []<typename Kind>(const Kind& kind) -> std::optional<Report> {
        if constexpr (std::is_constructible_v<Report, std::in_place_type_t<Kind>, const Kind&> &&
                      !std::is_same_v<Kind, Warning>) {
          return Report(std::in_place_type<Kind>, kind);
        } else {
          return std::nullopt;
        }
      },
      event);
}

}  // namespace dsj::report
