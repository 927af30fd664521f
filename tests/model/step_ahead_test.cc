#include "model/step_ahead.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/embed.h"

namespace vitrine {
namespace {

using ::testing::Test;

struct Stream {
  TokenId token = 0;
  int32_t position = 0;
  int32_t block = 0;  // Of the position; those before it are this one less 1, 2, ...
  uint64_t seed = 0;
  int rows = 1;  // From `position` on, each with the token one higher.
};

constexpr int kMaxBlocks = 4;

Batch BatchOf(const std::vector<Stream>& streams, std::vector<int32_t> continuing = {}) {
  Batch batch;
  batch.max_blocks = kMaxBlocks;
  for (const Stream& stream : streams) {
    for (int i = 0; i < stream.rows; ++i) batch.token_ids.push_back(stream.token + i);
    batch.row_begin.push_back(batch.rows());
    batch.first_position.push_back(stream.position);
    const int own = stream.position / 16;
    for (int b = 0; b < kMaxBlocks; ++b) batch.block_table.push_back(stream.block + b - own);
    batch.sampled_rows.push_back(batch.rows() - 1);
    batch.sampling.push_back(
        {.temperature = 0.5f, .seed = stream.seed, .position = stream.position + stream.rows});
  }
  batch.continuing = std::move(continuing);
  return batch;
}

// Three streams decode, the first and the last go on, the last into its next block.
class StepAheadTest : public Test {
 protected:
  const std::vector<Stream> streams_ = {{.token = 5, .position = 3, .block = 10, .seed = 1},
                                        {.token = 6, .position = 30, .block = 20, .seed = 2},
                                        {.token = 7, .position = 31, .block = 30, .seed = 3}};
  const Stream first_ = {.token = 50, .position = 4, .block = 10, .seed = 1};
  const Stream last_ = {.token = 70, .position = 32, .block = 31, .seed = 3};

  const Batch* Guess() {
    const Batch* const guess = ahead_.Guess(BatchOf(streams_, {0, 2}), places_);
    ahead_.NoteDrawn(std::vector<TokenId>{50, 60, 70});
    return guess;
  }
  void ExpectNothingAnswered(const Batch& next) {
    const StepAhead::Answer answer = ahead_.Take(next);
    EXPECT_TRUE(answer.samples.empty());
    EXPECT_EQ(answer.rest, &next);
  }
  static std::vector<int32_t> Samples(const StepAhead::Answer& answer) {
    return {answer.samples.begin(), answer.samples.end()};
  }

  const std::vector<int32_t> places_ = {100, 101, 102};
  StepAhead ahead_{64, 8, kMaxBlocks};
};

TEST_F(StepAheadTest, GuessesThoseWhichGoOn) {
  const Batch* const guess = Guess();
  ASSERT_NE(guess, nullptr);
  EXPECT_EQ(guess->token_ids, (std::vector<TokenId>{DrawnToken(100), DrawnToken(102)}));
  const Batch expected = BatchOf({first_, last_});
  EXPECT_EQ(guess->row_begin, expected.row_begin);
  EXPECT_EQ(guess->first_position, expected.first_position);
  EXPECT_EQ(guess->block_table, expected.block_table);
  EXPECT_EQ(guess->max_blocks, expected.max_blocks);
  EXPECT_EQ(guess->sampled_rows, expected.sampled_rows);
  EXPECT_EQ(guess->sampling, expected.sampling);
}

TEST_F(StepAheadTest, GuessesNothingWhereNobodyGoesOn) {
  EXPECT_EQ(ahead_.Guess(BatchOf(streams_), places_), nullptr);
}

TEST_F(StepAheadTest, GuessesNothingBehindAPromptOrResultsBesideTokens) {
  std::vector<Stream> streams = streams_;
  streams[1].rows = 2;
  EXPECT_EQ(ahead_.Guess(BatchOf(streams, {0}), places_), nullptr);
  for (int kind = 0; kind < 5; ++kind) {
    Batch batch = BatchOf(streams_, {0});
    if (kind == 0) batch.adjustments.push_back({});
    if (kind == 1) batch.logprobs.push_back({});
    if (kind == 2) batch.scored.push_back({});
    if (kind == 3) batch.traces.push_back({});
    if (kind == 4) batch.certified_rows.push_back(0);
    EXPECT_EQ(ahead_.Guess(batch, places_), nullptr) << kind;
  }
}

TEST_F(StepAheadTest, AnswersTheStepThatWasGuessed) {
  Guess();
  const Batch next = BatchOf({first_, last_});
  const StepAhead::Answer answer = ahead_.Take(next);
  EXPECT_EQ(Samples(answer), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(answer.rest, nullptr);
  // Used up.
  ExpectNothingAnswered(next);
}

TEST_F(StepAheadTest, AnswersWhoIsLeft) {
  Guess();
  const StepAhead::Answer answer = ahead_.Take(BatchOf({last_}));
  EXPECT_EQ(Samples(answer), std::vector<int32_t>{1});
  EXPECT_EQ(answer.rest, nullptr);
}

TEST_F(StepAheadTest, TablesMayBeOfAnotherWidth) {
  Guess();
  Batch next = BatchOf({first_, last_});
  next.max_blocks = 3;
  next.block_table = {10, 0, 0, 29, 30, 31};
  const StepAhead::Answer answer = ahead_.Take(next);
  EXPECT_EQ(Samples(answer), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(answer.rest, nullptr);
}

TEST_F(StepAheadTest, LeavesWhoArrives) {
  Guess();
  const Stream prompt = {.token = 200, .position = 16, .block = 40, .seed = 9, .rows = 5};
  const Stream decode = {.token = 300, .position = 2, .block = 44, .seed = 8};
  Batch next = BatchOf({first_, prompt, last_, decode});
  // The prompt's second row is sampled, too.
  next.sampled_rows.insert(next.sampled_rows.begin() + 1, 2);
  next.sampling.insert(next.sampling.begin() + 1, SampleRow{.seed = 77});
  const StepAhead::Answer answer = ahead_.Take(next);
  EXPECT_EQ(Samples(answer), (std::vector<int32_t>{0, -1, -1, 1, -1}));
  Batch expected = BatchOf({prompt, decode});
  expected.sampled_rows.insert(expected.sampled_rows.begin(), 1);
  expected.sampling.insert(expected.sampling.begin(), SampleRow{.seed = 77});
  ASSERT_NE(answer.rest, nullptr);
  EXPECT_EQ(answer.rest->token_ids, expected.token_ids);
  EXPECT_EQ(answer.rest->row_begin, expected.row_begin);
  EXPECT_EQ(answer.rest->first_position, expected.first_position);
  EXPECT_EQ(answer.rest->block_table, expected.block_table);
  EXPECT_EQ(answer.rest->max_blocks, expected.max_blocks);
  EXPECT_EQ(answer.rest->sampled_rows, expected.sampled_rows);
  EXPECT_EQ(answer.rest->sampling, expected.sampling);
}

TEST_F(StepAheadTest, WhatDiffersInAnythingIsNotAnswered) {
  std::vector<Stream> others(5, first_);
  others[0].token = 51;
  others[1].position = 5;
  others[2].block = 11;
  others[3].seed = 4;
  others[4].rows = 2;
  for (const Stream& other : others) {
    Guess();
    ExpectNothingAnswered(BatchOf({other}));
  }
  Guess();
  Batch next = BatchOf({first_});
  next.sampling[0].top_k = 3;
  ExpectNothingAnswered(next);
  Guess();
  next = BatchOf({first_});
  next.logprobs.push_back({});
  ExpectNothingAnswered(next);
  Guess();
  // An earlier block of the same sequence.
  next = BatchOf({last_});
  next.block_table[0] = 3;
  ExpectNothingAnswered(next);
}

}  // namespace
}  // namespace vitrine
