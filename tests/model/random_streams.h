// Sequences that come, decode and go at random, computed by one runner that runs ahead and one that
// does not: for tests that both draw the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "model/step_ahead.h"
#include "tests/model/model_on_backend.h"

namespace vitrine::testing {

class RandomStreams {
 public:
  RandomStreams(const std::string& model, const std::string& backend, Numerics numerics,
                uint32_t seed)
      : ahead_(model, backend, numerics), plain_(model, backend, numerics), random_(seed) {
    ahead_.runner().set_runs_ahead(true);
    for (int b = kSequences * kBlocksPerSequence - 1; b >= 0; --b) free_blocks_.push_back(b);
  }

  // `steps` steps, of which a fair part must have been computed ahead.
  void Run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE(step);
      Arrive();
      Step();
    }
    EXPECT_GT(answered_, drawn_ / 4);
    EXPECT_GT(partly_answered_, 0);
  }

 private:
  struct Stream {
    std::vector<TokenId> tokens;
    int computed = 0;
    int planned = 0;
    size_t end = 0;  // Length at which it leaves.
    SampleRow sampling;
    bool wants_logprobs = false;
    std::vector<int32_t> blocks = {};
  };

  bool Chance(uint32_t percent) { return random_() % 100 < percent; }

  void Arrive() {
    while (streams_.size() < 4 && Chance(streams_.empty() ? 100 : 15)) {
      const int length = 1 + static_cast<int>(random_() % 20);
      Stream stream = {.tokens = RandomTokens(length, plain_.vocabulary(), random_()),
                       .sampling = {.temperature = Chance(50) ? 0.0f : 0.8f, .seed = random_()},
                       .wants_logprobs = Chance(10)};
      stream.end = std::min<size_t>(kTokens, stream.tokens.size() + 1 + random_() % 30);
      streams_.insert(streams_.begin() + static_cast<ptrdiff_t>(random_() % (streams_.size() + 1)),
                      std::move(stream));
    }
  }

  // What was given back last is taken first, as a step that ran ahead may still write to it.
  void Own(Stream& stream, int tokens) {
    while (static_cast<int>(stream.blocks.size()) < BlocksFor(tokens)) {
      stream.blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
  }
  void Release(Stream& stream) {
    free_blocks_.insert(free_blocks_.end(), stream.blocks.begin(), stream.blocks.end());
    stream.blocks.clear();
    stream.computed = 0;
  }

  void Step() {
    const Batch batch = MakeBatch();
    std::vector<TokenId> next(batch.sampling.size()), expected(batch.sampling.size());
    CountAnswered(batch);
    ahead_.runner().Step(batch, next);
    plain_.runner().Step(batch, expected);
    ASSERT_EQ(next, expected);
    mirror_.NoteDrawn(next);
    ASSERT_EQ(ahead_.runner().logprobs().size(), batch.logprobs.size());
    for (size_t i = 0; i < batch.logprobs.size(); ++i) {
      EXPECT_EQ(ahead_.runner().logprobs()[i].logprob, plain_.runner().logprobs()[i].logprob);
      EXPECT_EQ(ahead_.runner().logprobs()[i].rank, plain_.runner().logprobs()[i].rank);
    }
    size_t sample = 0;
    std::vector<Stream> staying;
    for (Stream& stream : streams_) {
      stream.computed += stream.planned;
      if (stream.computed == static_cast<int>(stream.tokens.size())) {
        stream.tokens.push_back(next[sample++]);
      }
      // Cancelled, preempted, or done.
      const bool leaves = stream.tokens.size() >= stream.end || Chance(2);
      if (leaves || Chance(2)) Release(stream);
      if (!leaves) staying.push_back(std::move(stream));
    }
    streams_ = std::move(staying);
  }

  Batch MakeBatch() {
    Batch batch;
    batch.max_blocks = kBlocksPerSequence;
    for (Stream& stream : streams_) {
      const int left = static_cast<int>(stream.tokens.size()) - stream.computed;
      stream.planned = std::min(left, 1 + static_cast<int>(random_() % 8));
      const auto begin = stream.tokens.begin() + stream.computed;
      batch.token_ids.insert(batch.token_ids.end(), begin, begin + stream.planned);
      batch.row_begin.push_back(batch.rows());
      batch.first_position.push_back(stream.computed);
      if (stream.planned == left) AddSample(batch, stream);
      Own(stream, stream.computed + stream.planned + 1);
      std::vector<int32_t> table = stream.blocks;
      table.resize(kBlocksPerSequence, 0);
      batch.block_table.insert(batch.block_table.end(), table.begin(), table.end());
    }
    return batch;
  }

  void AddSample(Batch& batch, const Stream& stream) {
    const auto sample = static_cast<int32_t>(batch.sampling.size());
    batch.sampled_rows.push_back(batch.rows() - 1);
    batch.sampling.push_back(stream.sampling);
    batch.sampling.back().position = static_cast<int64_t>(stream.tokens.size());
    if (stream.wants_logprobs) batch.logprobs.push_back({.row = sample, .top_count = 2});
    // Some that go on do not say so, and some that say so will be cancelled.
    if (stream.tokens.size() + 1 < stream.end && Chance(95)) {
      batch.continuing.push_back(batch.sequences() - 1);
    }
  }

  // What the runner's own guesses answer.
  void CountAnswered(const Batch& batch) {
    const StepAhead::Answer answer = mirror_.Take(batch);
    const auto unanswered = std::ranges::count(answer.samples, -1);
    const auto answered = static_cast<int>(answer.samples.size()) - static_cast<int>(unanswered);
    answered_ += answered;
    drawn_ += static_cast<int>(batch.sampling.size());
    if (answered > 0 && answer.rest != nullptr) {
      ++partly_answered_;
    } else {
      mirror_.Guess(batch, std::vector<int32_t>(batch.sampling.size(), 0));
    }
  }

  ModelOnBackend ahead_;
  ModelOnBackend plain_;
  std::mt19937 random_;
  std::vector<Stream> streams_;
  std::vector<int32_t> free_blocks_;
  StepAhead mirror_{kTokens, kTokens, kBlocksPerSequence};
  int drawn_ = 0;
  int answered_ = 0;
  int partly_answered_ = 0;
};

}  // namespace vitrine::testing
