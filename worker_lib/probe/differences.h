// core. Which nodes differ from the others in one thing.
// Thread: any.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker_lib/probe/findings.h"

namespace drun::probe {

struct Property {
  std::string name{};  // "nofile", "MTU"
  bool is_problem = false;
  // A node may have more than most: only less is told.
  bool is_less_worse = false;
  // Of a number, what fraction of the others' is still as good.
  double tolerance = 1.0;
  std::string remedy{};
  std::function<std::string(const NodeFacts&)> text{};  // empty: not known there
  std::function<double(const NodeFacts&)> number{};     // absent: texts are compared
};

// A finding for each value that is not the one that most nodes have.
std::vector<Finding> differences(const Reports& reports, const Property& property);

}  // namespace drun::probe
