#include "server/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace vitrine::server {
namespace {

struct Found {
  std::string text;  // Before the match, or all.
  int stop = -1;
  int64_t end = -1;

  bool operator==(const Found&) const = default;
};

std::ostream& operator<<(std::ostream& stream, const Found& found) {
  return stream << '"' << found.text << "\" stop " << found.stop << " end " << found.end;
}

// The definition: earliest start, then the longest.
Found NaiveSearch(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t start = 0; start < text.size(); ++start) {
    Found best;
    size_t longest = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].size() > longest && text.compare(start, stops[i].size(), stops[i]) == 0) {
        longest = stops[i].size();
        best = {text.substr(0, start), static_cast<int>(i), static_cast<int64_t>(start + longest)};
      }
    }
    if (best.stop >= 0) return best;
  }
  return {text};
}

// Cuts `text` after each set bit of `cuts`.
Found Stream(const std::string& text, const std::vector<std::string>& stops, uint64_t cuts) {
  StopMatcher matcher(stops);
  Found found;
  std::string piece;
  for (size_t i = 0; i < text.size() && matcher.matched() < 0; ++i) {
    piece += text[i];
    if ((cuts >> (i % 64)) & 1) {
      found.text += matcher.Append(piece);
      piece.clear();
    }
  }
  if (matcher.matched() < 0) found.text += matcher.Append(piece);
  if (matcher.matched() < 0) found.text += matcher.Flush();
  found.stop = matcher.matched();
  found.end = found.stop >= 0 ? matcher.match_end() : -1;
  return found;
}

TEST(StopMatcher, KnownReports) {
  struct Case {
    const char* source;
    std::string text;
    std::vector<std::string> stops;
    std::string before;
    int stop;
  };
  const std::vector<Case> cases = {
      {"vllm#3574 (case 57)",
       "English alphabet: ABCDEFGHIJKL",
       {"DEFGHIJ"},
       "English alphabet: ABC",
       0},
      {"llama.cpp#11538 (case 58)", "M N O P Q R", {"O P Q"}, "M N ", 0},
      {"llama.cpp#9867 (case 59)", "one\ntwo", {"\n"}, "one", 0},
      {"omlx#2386 (case 61)",
       "code\n>>>>>>> UPDATED\nrest",
       {">>>>>>> UPDATED", ">>>>>>> UPDATED\n"},
       "code\n",
       1},
      {"the end decides",
       "code>>>>>>> UPDATED",
       {">>>>>>> UPDATED", ">>>>>>> UPDATED\n"},
       "code",
       0},
      {"half a character (case 63)", "a\xF0\x9F\x98\x80", {"\xF0\x9F"}, "a", 0},
      {"a NUL is a byte", std::string("a\0b", 3), {std::string("\0", 1)}, "a", 0},
      {"earlier beats shorter", "xabcd", {"bc", "abcd"}, "x", 1},
      {"earlier fails, later wins", "xabce", {"bc", "abcd"}, "xa", 0},
      {"self-overlap", "aaab", {"aab"}, "a", 0},
      {"no match", "DEFGHI", {"DEFGHIJ"}, "DEFGHI", -1},
  };
  for (const Case& c : cases) {
    for (const uint64_t cuts : {~uint64_t{0}, uint64_t{0}, uint64_t{0x5555555555555555}}) {
      const Found found = Stream(c.text, c.stops, cuts);
      EXPECT_EQ(found.text, c.before) << c.source;
      EXPECT_EQ(found.stop, c.stop) << c.source;
    }
  }
}

TEST(StopMatcher, EqualsNaiveSearchForAnyCuts) {
  std::mt19937_64 random(11);
  const auto word = [&](size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i <= random() % 4; ++i) stops.push_back(word(6));
    const std::string text = word(16);
    ASSERT_EQ(Stream(text, stops, random()), NaiveSearch(text, stops)) << text;
  }
}

TEST(StopMatcher, HoldsNoMoreThanAnOpenMatchNeeds) {
  const std::vector<std::string> stops = {"DEFGHIJ"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.Append("ABCDE"), "ABC");
  EXPECT_EQ(matcher.Append("FGX"), "DEFGX");
  EXPECT_EQ(matcher.candidate_end(), -1);
}

TEST(StopMatcher, TellsACompleteMatchThatMayStillGrow) {
  const std::vector<std::string> stops = {"ab", "abc"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.Append("xab"), "x");
  EXPECT_EQ(matcher.matched(), -1);
  EXPECT_EQ(matcher.candidate_end(), 3);
  EXPECT_EQ(matcher.Append("d"), "");
  EXPECT_EQ(matcher.matched(), 0);
  EXPECT_EQ(matcher.match_end(), 3);
}

}  // namespace
}  // namespace vitrine::server
