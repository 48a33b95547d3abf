// core. A job (timeline.h) as text for a terminal, for `drun report --text` and for the timeline of
// `drun status --watch`.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "launcher/report/timeline.h"

namespace drun {

struct TextStyle {
  int columns = 80;
  bool has_color = false;
};

// Several lines, each ending with a newline. Lines fit the columns, except the headline, notes, and
// output of workers.
std::string report_text(const timeline::Job& job, const TextStyle& style);

// A bar of `width` characters for [0, wall_s]. Each character shows the phase with the largest
// share of its interval, by color, or else by a letter that phase_legend explains.
std::string phase_bar(std::span<const timeline::Span> spans, double wall_s, std::size_t width,
                      bool has_color);
// "w waiting  = running": the phases with nonzero `totals`, in lines of at most `columns`.
std::string phase_legend(const timeline::PhaseSeconds& totals, std::size_t columns, bool has_color);

}  // namespace drun
