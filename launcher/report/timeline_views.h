// core. The views of a job (timeline.h): as one HTML page, as text for a terminal, and the
// diagnosis that both show.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "agent/diagnosis/diagnosis.h"
#include "launcher/report/timeline.h"

namespace drun {

// --- Diagnosis: a diagnosis (agent/diagnosis) as the reports show it, and the
// diagnosis of a job that is only known from its events

// "desync", "out of memory on a GPU"
std::string title_of(agent::FaultClass fault);

// The advice, preceded by whether a restart can help, if that is known.
std::string advice_text(const agent::Diagnosis& diagnosis);

// Of a job that runs or has succeeded: of class None.
agent::Diagnosis diagnosis_of(const timeline::Job& job);

// --- HTML (html.cc): one page without scripts or network access. All data from workers and nodes
// is shown as text.
//
// The page has at most kMostHtmlBytes: with very many ranks, those without a failure lose first
// their bars, then their rows, and the page reports it. Never throws.

inline constexpr std::size_t kMostHtmlBytes = 1'900'000;

std::string report_html(const timeline::Job& job);

// Escapes text for use between tags and in attributes. Makes control characters visible, including
// those that change the text direction.
std::string html_text(std::string_view text);

// "Job failed: rank 3 on node 1 (gpu1) exited with code 1"; also used by the text report.
std::string headline_of(const timeline::Job& job);

// "rank 5 on node 1 (gpu1) printed its first line after 12 s; the median is 3 s"
std::string words_of(const timeline::Slow& slow);

// --- Text, for `drun report --text`

struct TextStyle {
  int columns = 80;
  bool has_color = false;
};

// Several lines, each ending with a newline. Lines fit the columns, except the headline, notes, and
// output of workers.
std::string report_text(const timeline::Job& job, const TextStyle& style);

// A bar of `width` characters for [0, wall_s]. Each character shows the phase with the largest
// share of its interval, by color, or else by a letter.
std::string phase_bar(std::span<const timeline::Span> spans, double wall_s, std::size_t width,
                      bool has_color);
}  // namespace drun
