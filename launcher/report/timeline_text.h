// core. A job (timeline.h) as text for a terminal: `drun report --text`, and the timeline of
// `drun status --watch`.
// Thread: any.   Errors: none.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "launcher/report/timeline.h"

namespace drun {

struct TextStyle {
  int columns = 80;
  bool has_colour = false;
};

// Several lines, the last one ended. None is longer than the columns but the headline, notes, and
// what workers wrote.
std::string report_text(const timeline::Job& job, const TextStyle& style);

// A bar of `width` characters for [0, wall_s]: of each piece the phase that takes most of it.
// Without colours each phase has a letter, which phase_legend explains.
std::string phase_bar(std::span<const timeline::Span> spans, double wall_s, std::size_t width,
                      bool has_colour);
// "w waiting  = running", those phases that `totals` has any of, in lines of at most `columns`.
std::string phase_legend(const timeline::PhaseSeconds& totals, std::size_t columns,
                         bool has_colour);

}  // namespace drun
