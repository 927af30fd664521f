// The engine, its scheduler, block pool, queue, delivery, stream messages and validator, driven by
// a seeded random world on a virtual clock: arrivals, cancels, deadlines, slow readers, failures.
// The model is a hash of the history, so that any mix-up shows as a wrong token. After every turn
// the invariants of the server are checked. One seed is one run, always the same.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace vitrine::server {

// What the world can do to the server; each is counted when it really happened.
enum class FaultPoint {
  kInvalidRequest,       // Refused by the validator.
  kNeverFits,            // Refused: larger than the pool.
  kQueueFull,            // Refused by the queue.
  kExpectedWaitTooLong,  // Refused: the deadline comes before its turn.
  kCancelBeforeFirstTurn,
  kCancelWaiting,
  kCancelPrefill,
  kCancelDecode,
  kCancelDuringStep,
  kCancelAfterEnd,
  kDeadlineWaiting,
  kDeadlineRunning,
  kTimeLimitWaiting,
  kTimeLimitRunning,
  kNonFiniteFirstToken,
  kNonFiniteLaterToken,
  kSlowReader,          // A message that gathered several tokens.
  kDeadReader,          // Reads nothing until its end.
  kDeliveryLag,         // Turns without delivery.
  kTextStopWhileAhead,  // The engine had computed past a stop string.
  kStopStringAtTheEnd,  // Decided by the end of the answer.
  kEos,
  kStopToken,
  kPrefillOnly,
  kContextFull,
  kPreemption,
  kPrefixHit,
  kTraced,
  kPausedByItsReader,
  kSeveralChoices,
  kChoiceEndsBeforeAnother,
  kTooManyChoices,  // Refused: more than the server runs at once.
  kPoolExhausted,   // No block free or cached.
  kSlowStep,
  kClockStandsStill,
  kShutDownRunning,
  kShutDownWaiting,
  kRefusedWhileDraining,
  kCount,
};

using FaultCounts = std::array<int64_t, static_cast<size_t>(FaultPoint::kCount)>;

const char* NameOf(FaultPoint point);

struct SimulationReport {
  std::string violation;  // Empty: every invariant held.
  FaultCounts fired = {};
  int64_t requests = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t simulated_us = 0;
};

SimulationReport Simulate(uint64_t seed);

}  // namespace vitrine::server
