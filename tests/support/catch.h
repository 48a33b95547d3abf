// Hides the difference between Catch2 2.x (Debian 12) and 3.x (Debian 13).
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
using Catch::Matchers::Contains;
inline auto ContainsSubstring(const std::string& text) { return Contains(text); }
#endif
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
