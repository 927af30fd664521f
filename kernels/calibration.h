// What the machine can do right now: the limits that measured speeds are compared with.
#pragma once

namespace vitrine {

// Rates over all workers of a backend. 0: not measured there.
struct Calibration {
  double read_bytes_per_s = 0;  // Sequential reads of memory far larger than the caches.
  double int8_ops_per_s = 0;    // Integer dot products from registers; multiply and add count two.
  double handover_s = 0;        // From a store of one worker to the load of another.
};

}  // namespace vitrine
