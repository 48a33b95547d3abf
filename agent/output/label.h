// core. The label in front of a line: torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE.
//
// Text:    `${name}` and `$name` are replaced for role_name, local_rank, rank, node_rank, host
//          and hostname, which is the same; `$$` is `$`; a name that is none of these, and a `$`
//          before anything else, stay as they stand. Nothing is added after the label:
//          "[${role_name}${local_rank}]:" gives
//          "[default0]:hello".
// Source:  Python's string.Template.safe_substitute, which torchrun uses; names are exact.
// Errors:  none; every text is a template.   Thread: any.
#pragma once

#include <string>
#include <string_view>

namespace drun::agent {

struct LabelValues {
  std::string role_name = "default";
  int local_rank = 0;
  int rank = 0;
  int node_rank = 0;
  std::string host;
};

std::string fill_label(std::string_view label_template, const LabelValues& values);

}  // namespace drun::agent
